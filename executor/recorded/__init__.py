"""Recorded computations of imported layers, run on the part of the output that a rank holds."""
