"""Sweeps: many what-if points from one file, computed side by side, each stored as soon as it is there."""
