"""What computes points in tests of the sweep, importable by processes."""

import os
import signal
import sys
import time
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import NoReturn

from studies.sweep import sweep_run
from studies.sweep.evaluate_point import PointResult, evaluate_point
from studies.sweep.point import SweepPoint
from studies.sweep.workers import compute_locally

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


LEAVES = "TEST_SWEEP_LEAVES"
"""Names the folder with a file for each point that may be computed."""


def with_leave(point: SweepPoint) -> PointResult:
    """Waits until it may compute the point: until it takes a file."""
    while True:
        for leave in Path(os.environ[LEAVES]).iterdir():
            try:
                leave.unlink()
            except FileNotFoundError:  # another process has taken it
                continue
            return evaluate_point(point)
        time.sleep(0.01)


def sweep_with_leave() -> NoReturn:
    """Run ``orrery sweep``, on the words of this process, that computes no point without leave."""
    from orrery.entry import main

    sweep_run.compute_locally = partial(compute_locally, evaluate_point=with_leave)
    sys.argv[1:1] = ["sweep"]
    main()
