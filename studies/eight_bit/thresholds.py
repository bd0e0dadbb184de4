"""Where a data type starts to pay and where it stops, from gains at some places: interpolated, or by bisection."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

__all__ = ["BEST", "Crossing", "bisected", "crossing"]

BEST = 0
"""In the place of a number of sub-batches: those that suit a type best."""
LEAST_GAIN = 1e-6
"""Less is rounding and does not pay."""
_CLOSE = 1.001
"""Ratio of the ends at which bisection stops."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Crossing:
    """Where a type pays along one axis; of the other two one value each."""

    axis: str
    """``sub_batches``, ``devices`` or ``link_speed``; the field of that name is 0."""
    type: str
    sub_batches: int
    """``BEST`` where each type has its own best."""
    devices: int
    link_speed: float
    low: float
    """Ends of the axis, as far as it could be had."""
    high: float
    pays_at_low: bool
    thresholds: tuple[float, ...]
    """Rising; at each it starts or stops to pay."""
    between: tuple[tuple[float, float], ...]
    """Of each threshold the two values that were simulated."""
    exact: bool = False
    """Found by bisection, to a thousandth."""


def crossing(
    axis: str, kind: str, gains: Sequence[tuple[float, float]], *, sub_batches: int, devices: int, link_speed: float
) -> Crossing:
    """Interpolate where gains pass zero, linearly in the logarithm of the axis.

    Args:
        axis, kind, sub_batches, devices, link_speed: As in ``Crossing``.
        gains: Pairs of a value, > 0 and rising, and the share by which the type is faster there.
    """
    thresholds, between = [], []
    for (low, before), (high, after) in pairwise(gains):
        if (before > LEAST_GAIN) != (after > LEAST_GAIN):
            share = min(max((LEAST_GAIN - before) / (after - before), 0.0), 1.0)
            thresholds.append(low * (high / low) ** share)
            between.append((low, high))
    return Crossing(
        axis=axis, type=kind, sub_batches=sub_batches, devices=devices, link_speed=link_speed, low=gains[0][0],
        high=gains[-1][0], pays_at_low=gains[0][1] > LEAST_GAIN, thresholds=tuple(thresholds), between=tuple(between),
    )  # fmt: skip


def bisected(found: Crossing, gain: Callable[[float], float]) -> Crossing:
    """The same crossing with each threshold found between its two values, to a thousandth.

    Args:
        found: An interpolated crossing.
        gain: Share by which the type is faster at a value of the axis.
    """
    exact, pays = [], found.pays_at_low
    for low, high in found.between:
        while high / low > _CLOSE:
            middle = math.sqrt(low * high)
            low, high = (middle, high) if (gain(middle) > LEAST_GAIN) == pays else (low, middle)
        exact.append(math.sqrt(low * high))
        pays = not pays
    return replace(found, thresholds=tuple(exact), exact=True)
