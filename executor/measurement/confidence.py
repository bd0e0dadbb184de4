"""How sure the intervals are that come with measured and trained values."""

__all__ = ["CONFIDENCE"]

CONFIDENCE = 0.95
"""Share of studies, all done alike, whose intervals hold what they estimate."""
