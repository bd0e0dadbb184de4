"""Confidence of the intervals of measured and trained values."""

CONFIDENCE = 0.95
"""Share of repeated studies whose intervals contain the value that they estimate."""
