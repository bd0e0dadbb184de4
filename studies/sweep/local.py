"""Computing points side by side in processes of this machine."""

from collections import deque
from collections.abc import Generator, Iterable
from contextlib import closing

from studies.sweep.evaluate_point import PointResult, evaluate_point
from studies.sweep.point import SweepPoint
from studies.sweep.workers import Evaluate, WorkerDiedError, Workers

__all__ = ["compute_locally"]

_AHEAD = 2
"""Points handed to each process before it asks: it never waits, and a stop loses little."""


def compute_locally(
    points: Iterable[SweepPoint], *, processes: int, evaluate_point: Evaluate = evaluate_point
) -> Generator[tuple[SweepPoint, PointResult]]:
    """Compute points in processes; yields each result as soon as it is there.

    A process that dies (killed, or out of memory) takes a few points with it, which are computed again one at a time;
    a point whose process dies then too has failed.

    Args:
        points: In the order to begin.
        processes: How many, >= 1.
        evaluate: What computes a point, importable by its name.
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
                    yield from workers.answers()
                    if ahead == 1 and not suspects:
                        break  # all that was suspected is done: on with all processes
            except WorkerDiedError:
                lost = workers.running()
                if ahead == 1:
                    yield (
                        lost[0],
                        PointResult(status="failed", error="the process that computed it died (out of memory?)"),
                    )
                else:
                    suspects.extend(lost)
