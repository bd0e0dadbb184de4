"""Confidence of the intervals of measured and trained values."""

__all__ = ["CONFIDENCE"]

CONFIDENCE = 0.95
"""Share of repeated studies whose intervals contain the value that they estimate."""
