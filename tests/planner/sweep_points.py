"""What computes points in tests of the sweep, importable by processes."""

import os
import signal
from dataclasses import replace

from studies.sweep.evaluate_point import Result, evaluate
from studies.sweep.point import Point

POINTS = [
    Point(model="lenet5", cluster=f"p100-4x4:nodes={nodes}", batch=batch, strategy=strategy)
    for nodes in (1, 2)
    for batch in (32, 64, 96)
    for strategy in ("data", "model", "owt", "spatial")
]


def plain(result: Result) -> Result:
    """A result without the time that it took."""
    return replace(result, seconds=0.0)


def dying(point: Point) -> Result:
    """Kills its process for the batch 96 of one strategy, as the system does where memory is short."""
    if point.batch == 96 and point.strategy == "owt":
        os.kill(os.getpid(), signal.SIGKILL)
    return evaluate(point)


def breaking(point: Point) -> Result:
    """Breaks off."""
    raise ValueError("never returned")
