"""Crossovers: values of an axis at which a data type starts or stops to pay, by interpolation or by bisection."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

BEST = 0
"""Stands for a number of sub-batches where every type has the number that is best for it."""
LEAST_GAIN = 1e-6
"""Smallest gain that pays; anything smaller is rounding."""
_CLOSE = 1.001
"""Ratio of the ends at which bisection stops."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Crossing:
    """Thresholds of a type along one axis, with one value of each of the other two axes."""

    axis: str
    """``sub_batches``, ``devices`` or ``link_speed``; the field of that name is 0."""
    type: str
    sub_batches: int
    """``BEST`` where each type has its own best."""
    devices: int
    link_speed: float
    low: float
    high: float
    pays_at_low: bool
    thresholds: tuple[float, ...]
    """Rising values of the axis; at each the type starts or stops to pay."""
    between: tuple[tuple[float, float], ...]
    """Two simulated values that each threshold lies between."""
    exact: bool = False
    """Computed by bisection, to a thousandth."""


def crossing(
    axis: str, kind: str, gains: Sequence[tuple[float, float]], *, sub_batches: int, devices: int, link_speed: float
) -> Crossing:
    """Interpolate the thresholds: zeros of the gain, linearly in the logarithm of the axis.

    Args:
        axis: ``sub_batches``, ``devices`` or ``link_speed``.
        kind: The data type.
        gains: Pairs of a value, > 0 and rising, and the gain of the type there.
        sub_batches: Fixed value of this axis; 0 if it is the axis, or if it is ``BEST``.
        devices: Fixed value of this axis; 0 if it is the axis.
        link_speed: Fixed value of this axis; 0 if it is the axis.
    """
    thresholds, between = [], []
    for (low, before), (high, after) in pairwise(gains):
        if (before > LEAST_GAIN) != (after > LEAST_GAIN):
            share = min(max((LEAST_GAIN - before) / (after - before), 0.0), 1.0)
            thresholds.append(low * (high / low) ** share)
            between.append((low, high))
    return Crossing(
        axis=axis,
        type=kind,
        sub_batches=sub_batches,
        devices=devices,
        link_speed=link_speed,
        low=gains[0][0],
        high=gains[-1][0],
        pays_at_low=gains[0][1] > LEAST_GAIN,
        thresholds=tuple(thresholds),
        between=tuple(between),
    )


def bisected(interpolated: Crossing, gain: Callable[[float], float]) -> Crossing:
    """Return the same crossing with each threshold bisected between its two values, to a thousandth.

    Args:
        interpolated: The crossing.
        gain: Gain of the type at a value of the axis.
    """
    exact, pays = [], interpolated.pays_at_low
    for low, high in interpolated.between:
        while high / low > _CLOSE:
            middle = math.sqrt(low * high)
            low, high = (middle, high) if (gain(middle) > LEAST_GAIN) == pays else (low, middle)
        exact.append(math.sqrt(low * high))
        pays = not pays
    return replace(interpolated, thresholds=tuple(exact), exact=True)
