"""Uncertainty of a median whose values came in turns.

Iterations of one turn share the state of the machine, such as the clock of its processor: between turns it changes,
by more than iterations of one turn differ.  So turns are counted, each by its median, not iterations.
"""

from collections.abc import Sequence
from functools import cache
from math import comb, pi, sqrt

import numpy as np
from numpy.typing import NDArray

CONFIDENCE = 0.95
_QUANTILES = {3: 4.3027, 4: 3.1824, 5: 2.7764}
"""Quantiles of Student's distribution at 97.5 %, for ``CONFIDENCE``, by the number of turns: one degree of freedom
more than the distribution has."""


@cache
def _outside(count: int) -> int:
    """Return how many of ``count`` sorted values can be left out at each end while the rest still holds the median.

    The rest holds it with a probability of at least ``CONFIDENCE``; -1 where even all values do not.
    """
    left, below = -1, 0.0
    while left + 1 < count / 2 and 2 * (below + comb(count, left + 1) / 2**count) <= 1 - CONFIDENCE:
        left += 1
        below += comb(count, left) / 2**count
    return left


def median_interval(turns: Sequence[Sequence[float] | NDArray[np.float64]]) -> tuple[float, float]:
    """Return the interval that holds the median of the distribution of turns, with 95 % confidence.

    From 6 turns on it lies between two of their sorted medians, for each lies on either side with equal chance.
    Fewer turns give no such interval: medians of 3 to 5 turns are taken as normal, and the standard error of the
    median of normal values is sqrt(pi / 2) times that of their mean.

    Returns:
        Both ends; infinite where there are fewer than 3 turns.

    Source:
        Conover, "Practical Nonparametric Statistics", 3rd ed., Sec. 3.2 (confidence interval for a quantile).
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
    """Return half the length of ``median_interval`` as a share of the median of all values; infinite below 3 turns."""
    low, high = median_interval(turns)
    return float((high - low) / 2 / np.median(np.concatenate(turns))) if np.isfinite(high - low) else np.inf
