"""Computation of points in parallel processes of this machine."""

from collections import deque
from collections.abc import Generator, Iterable
from contextlib import closing

from studies.sweep.evaluate_point import PointResult, evaluate_point
from studies.sweep.point import SweepPoint
from studies.sweep.workers import Evaluate, WorkerDiedError, Workers

__all__ = ["compute_locally"]

_AHEAD = 2
"""Points sent to each process in advance, so that it never waits, and a stop loses few of them."""


def compute_locally(
    points: Iterable[SweepPoint], *, processes: int, evaluate_point: Evaluate = evaluate_point
) -> Generator[tuple[SweepPoint, PointResult]]:
    """Compute points in processes, and yield each result as soon as it is computed.

    A process that dies (killed, or out of memory) loses a few points, which are computed again one at a time;
    a point whose process dies again has failed.

    Args:
        points: Points in the order in which they begin.
        processes: Number of processes, >= 1.
        evaluate_point: Function that computes a point, importable by its name.
    """
    waiting, suspects = deque(points), deque[SweepPoint]()
    while waiting or suspects:
        ahead = 1 if suspects else processes * _AHEAD
        with closing(Workers(min(processes, ahead), evaluate_point)) as workers:
            try:
                while waiting or suspects or workers.running():
                    source = suspects or waiting
                    while source and len(workers.running()) < ahead:
                        workers.submit(source.popleft())
                    yield from workers.results()
                    if ahead == 1 and not suspects:
                        break  # all suspects are computed: go on with all processes
            except WorkerDiedError:
                lost = workers.running()
                if ahead == 1:
                    yield (
                        lost[0],
                        PointResult(status="failed", error="the process that computed it died (out of memory?)"),
                    )
                else:
                    suspects.extend(lost)
