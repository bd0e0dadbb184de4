"""How well a median is known whose values came in turns.

Iterations of one turn share the state of the machine, such as the clock of its processor: between turns it changes,
by more than iterations of one turn differ.  So it is turns that are counted, each by its median, not iterations.
"""

from collections.abc import Sequence
from functools import cache
from math import comb, pi, sqrt

import numpy as np
from numpy.typing import NDArray

from executor.measurement import CONFIDENCE

__all__ = ["median_interval", "median_spread"]

_QUANTILES = {3: 4.3027, 4: 3.1824, 5: 2.7764}
"""By turns, of Student's distribution with one degree of freedom less, at 97.5 %, for ``CONFIDENCE``."""


@cache
def _outside(count: int) -> int:
    """How many of so many sorted values to leave out at each end, so that the rest holds the median."""
    left, below = -1, 0.0
    while left + 1 < count / 2 and 2 * (below + comb(count, left + 1) / 2**count) <= 1 - CONFIDENCE:
        left += 1
        below += comb(count, left) / 2**count
    return left


def median_interval(turns: Sequence[Sequence[float] | NDArray[np.float64]]) -> tuple[float, float]:
    """Interval that holds the median of what turns are drawn from, with 95 % confidence.

    From 6 turns on it lies between two of their sorted medians, for each lies on either side with equal chance
    (Conover, "Practical Nonparametric Statistics", Sec. 3.2).  That says nothing of fewer: those of 3 to 5 are taken
    for normal, of whose median the standard error is sqrt(pi / 2) times that of their mean.

    Args:
        turns: The values of each turn, at least one.

    Returns:
        Both ends; without bounds where there are fewer than 3 turns.
    """
    medians = np.sort([float(np.median(turn)) for turn in turns])
    count = len(medians)
    if (left := _outside(count)) >= 0:
        return float(medians[left]), float(medians[-1 - left])
    if count not in _QUANTILES:
        return -np.inf, np.inf
    middle, half = float(np.median(medians)), _QUANTILES[count] * float(medians.std(ddof=1)) * sqrt(pi / 2 / count)
    return middle - half, middle + half


def median_spread(turns: Sequence[Sequence[float] | NDArray[np.float64]]) -> float:
    """Half the length of the interval, as a share of the median of all values; infinite where nothing is known."""
    low, high = median_interval(turns)
    return float((high - low) / 2 / np.median(np.concatenate(turns))) if np.isfinite(high - low) else np.inf
