"""Checks of programs before any process starts: that every layer can be computed as the plan divides it."""
