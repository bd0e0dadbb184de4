"""Ranks as processes: started, supervised, diagnosed and ended."""
