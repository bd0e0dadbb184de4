"""How well a median is known."""

from collections.abc import Sequence
from functools import cache
from math import comb

import numpy as np
from numpy.typing import NDArray

__all__ = ["median_interval", "median_spread"]

_CONFIDENCE = 0.95


@cache
def _outside(count: int) -> int:
    """How many of so many sorted values to leave out at each end, so that the rest holds the median."""
    left, below = -1, 0.0
    while left + 1 < count / 2 and 2 * (below + comb(count, left + 1) / 2**count) <= 1 - _CONFIDENCE:
        left += 1
        below += comb(count, left) / 2**count
    return left


def median_interval(values: Sequence[float] | NDArray[np.float64]) -> tuple[float, float]:
    """Interval that holds the median of what the values are drawn from, with 95 % confidence.

    It lies between two of the sorted values, for each lies on either side of the median with equal chance
    (Conover, "Practical Nonparametric Statistics", Sec. 3.2).  Without bounds where there are fewer than 6.
    """
    ordered = np.sort(np.asarray(values, dtype=np.float64))
    left = _outside(len(ordered))
    if left < 0:
        return -np.inf, np.inf
    return float(ordered[left]), float(ordered[-1 - left])


def median_spread(values: Sequence[float] | NDArray[np.float64]) -> float:
    """Half the length of the interval, as a share of the median; infinite where nothing is known."""
    low, high = median_interval(values)
    return float((high - low) / 2 / np.median(values)) if np.isfinite(high - low) else np.inf
