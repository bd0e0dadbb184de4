"""Cluster files made of what files say about machines: merged, completed by assumptions, refined by measurements."""
