"""What computes points in tests of the sweep, importable by processes."""

import os
import signal
from dataclasses import replace
from functools import cache

from studies.sweep.evaluate_point import PointResult, evaluate_point
from studies.sweep.point import SweepPoint

POINTS = [
    SweepPoint(model="lenet5", cluster=f"p100-4x4:nodes={nodes}", batch=batch, strategy=strategy)
    for nodes, batch in ((1, 32), (1, 64), (2, 96), (2, 64))
    for strategy in ("data", "owt", "model", "spatial")
]


def plain(result: PointResult) -> PointResult:
    """A result without the time that it took."""
    return replace(result, seconds=0.0)


@cache
def expected(point: SweepPoint) -> PointResult:
    """What this process computes for a point."""
    return plain(evaluate_point(point))


def dying(point: SweepPoint) -> PointResult:
    """Kills its process for the batch 96 of one strategy, as the system does where memory is short."""
    if point.batch == 96 and point.strategy == "owt":
        os.kill(os.getpid(), signal.SIGKILL)
    return evaluate_point(point)


def breaking(point: SweepPoint) -> PointResult:
    """Breaks off."""
    raise ValueError("never returned")
