"""Sweeps: many what-if points from one file, computed in parallel, each stored as soon as it is computed."""
