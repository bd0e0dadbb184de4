"""Computation of points in parallel processes of this machine."""

from collections import deque
from collections.abc import Callable, Generator, Iterable
from contextlib import closing
from typing import TypeVar

from studies.sweep.evaluate_point import PointResult, evaluate_point
from studies.sweep.point import SweepPoint
from studies.sweep.workers import WorkerDiedError, Workers

DIED = "the process that computed it died (out of memory?)"
_AHEAD = 2
"""Points sent to each process in advance, so that it never waits, and a stop loses few of them."""
_Item = TypeVar("_Item")
_Result = TypeVar("_Result")


def compute_locally(
    points: Iterable[SweepPoint],
    *,
    processes: int,
    evaluate_point: Callable[[SweepPoint], PointResult] = evaluate_point,
) -> Generator[tuple[SweepPoint, PointResult]]:
    """Compute points of a sweep as ``compute_in_processes`` does; those whose process dies again have failed."""
    failed = PointResult(status="failed", error=DIED)
    return compute_in_processes(points, processes=processes, evaluate=evaluate_point, died=lambda _: failed)


def compute_in_processes(
    points: Iterable[_Item],
    *,
    processes: int,
    evaluate: Callable[[_Item], _Result],
    died: Callable[[_Item], _Result],
) -> Generator[tuple[_Item, _Result]]:
    """Compute points in processes, and yield each result as soon as it is computed.

    A process that dies (killed, or out of memory) loses a few points, which are computed again one at a time;
    a point whose process dies again has a result of its own.
    """
    waiting, suspects = deque(points), deque[_Item]()
    while waiting or suspects:
        ahead = 1 if suspects else processes * _AHEAD
        with closing(Workers(min(processes, ahead), evaluate)) as workers:
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
                    yield lost[0], died(lost[0])
                else:
                    suspects.extend(lost)
