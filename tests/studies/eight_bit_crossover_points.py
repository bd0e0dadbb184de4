"""Crossovers of the 8-bit paper's closed form: where a data type starts and stops to pay, by bisection."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from groundwork.array_types import Floats
from groundwork.errors import ConfigError
from studies.eight_bit.many_machines import (
    FLOAT32_COST,
    ElementCost,
    Interpretation,
    Setting,
    Workload,
    sub_batch_times,
)

Pays = Callable[[Floats], NDArray[np.bool_]]

_POINTS = 513
"""Points of the first look at a continuous range; two thresholds closer than a step may be missed."""
_HALVINGS = 60
_VARIED = ("bytes_per_s", "sub_batch", "machines")
_MOST_MACHINES = 1_000_000


@dataclass(frozen=True, slots=True)
class Crossover:
    """Where a data type pays within a range."""

    pays_at_low: bool
    """At the range's lower end."""
    thresholds: tuple[float, ...]
    """Rising; at each it starts or stops to pay.  The first value beyond the change where values are whole."""


def crossover(
    workload: Workload,
    setting: Setting,
    element_cost: ElementCost,
    *,
    over: Literal["bytes_per_s", "sub_batch", "machines"],
    low: float,
    high: float,
    baseline: ElementCost = FLOAT32_COST,
    least_gain: float = 0.0,
    interpretation: Interpretation = Interpretation.SCHEME,
) -> Crossover:
    """Return where a data type pays against another: its speedup is more than ``1 + least_gain`` times the other's.

    Bandwidths are continuous, and each threshold is found to rounding.  Sub-batches are those that divide the
    mini-batch, machines are whole and such that the sub-batch divides.

    Args:
        workload: The network.
        setting: Machines and links; its ``over`` is replaced, all else is one number.
        element_cost: The data type.
        over: Field of ``setting`` that is varied.
        low, high: Ends of its range.
        baseline: The data type that it is compared with.
        least_gain: Share by which it must be faster.
        interpretation: See ``Interpretation``.

    Raises:
        ConfigError: Nothing of that name is varied, the range is empty or holds no value that is allowed, or the
            closed form refuses a value.
    """
    if over not in _VARIED:
        raise ConfigError(f"over must be one of {', '.join(_VARIED)}, got {over!r}")
    if not 0 < low < high < np.inf:
        raise ConfigError(f"low and high must be 0 < low < high, got {low} and {high}")

    def pays(values: Floats) -> NDArray[np.bool_]:
        changes: dict[str, Any] = {over: values}
        varied = replace(setting, **changes)
        mine, other = (
            sub_batch_times(workload, varied, each, interpretation).speedup for each in (element_cost, baseline)
        )
        return np.asarray(mine > other * (1 + least_gain))

    if over == "bytes_per_s":
        return _thresholds(np.geomspace(low, high, _POINTS), pays, whole=False)
    return _thresholds(_divided(workload, setting, over, low, high), pays, whole=True)


def _divided(workload: Workload, setting: Setting, over: str, low: float, high: float) -> Floats:
    """Whole values for which sub-batches divide the mini-batch."""
    samples = np.multiply(setting.devices_per_machine, workload.samples)
    if over == "machines":
        if high > _MOST_MACHINES:
            raise ConfigError(f"high must be at most {_MOST_MACHINES} machines, got {high:g}")
        values = np.arange(np.ceil(low), np.floor(high) + 1)
        divides = samples * values % setting.sub_batch == 0
    else:
        batch = samples * setting.machines
        values = np.arange(np.ceil(low), np.floor(min(high, float(batch))) + 1)
        divides = batch % values == 0
    if not divides.any():
        raise ConfigError(
            f"{over} must divide into whole sub-batches somewhere in {low:g} .. {high:g}, got none that does"
        )
    return np.asarray(values[divides])


def _thresholds(points: Floats, pays: Pays, *, whole: bool) -> Crossover:
    known = pays(points)
    changes = np.flatnonzero(known[1:] != known[:-1]).tolist()
    ends = list(pairwise(points.tolist()))
    found = [points[i + 1] if whole else _bisect(*ends[i], bool(known[i]), pays) for i in changes]
    return Crossover(bool(known[0]), tuple(map(float, found)))


def _bisect(low: float, high: float, pays_at_low: bool, pays: Pays) -> float:
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if bool(pays(np.array(middle))) == pays_at_low else (low, middle)
    return high
