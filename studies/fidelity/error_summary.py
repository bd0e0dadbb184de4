"""The errors of one comparison in a few numbers."""

import math
from dataclasses import dataclass

__all__ = ["ErrorSummary", "WorstRow"]


@dataclass(frozen=True, slots=True, kw_only=True)
class WorstRow:
    """One of the rows with the largest errors."""

    label: str
    measured_s: float
    predicted_s: float
    error: float
    reason: str
    """Why it is so far off, where that is known; else empty."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorSummary:
    """The errors of a comparison: predicted over measured time, minus 1.  What is not known is NaN."""

    name: str
    kind: str
    fitted: str
    """``no``; ``yes``; ``part`` where some of the rows were fitted to; or ``held out`` where they were in turn left out
    of the fit that they judge."""
    rows: int
    """Rows with a prediction."""
    without: int = 0
    """Rows without one."""
    without_reason: str = ""
    """The most frequent reason of those."""
    median: float = math.nan
    """Median of the absolute errors."""
    p90: float = math.nan
    """90th percentile of the absolute errors."""
    worst: float = math.nan
    bias: float = math.nan
    """Mean of the logarithm of predicted over measured time: positive where predictions are too slow."""
    centre: float = math.nan
    """Median of predicted over measured time."""
    low: float = math.nan
    """10th percentile of predicted over measured time."""
    high: float = math.nan
    """90th percentile of it."""
    close: float = math.nan
    """Share of all rows, also those without a prediction, whose error is at most 10 %."""
    median_bar: float | None = None
    p90_bar: float | None = None
    worst_rows: tuple[WorstRow, ...] = ()
