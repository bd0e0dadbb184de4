"""Computing points side by side in processes of this machine."""

import os
import signal
import threading
from collections import deque
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context, parent_process

from planner.sweep.evaluate import Result, evaluate
from planner.sweep.point import Point

__all__ = ["begin_process", "compute_locally"]

_AHEAD = 2
"""Points handed to each process before it asks: it never waits, and a stop loses little."""

Evaluate = Callable[[Point], Result]


def compute_locally(
    points: Iterable[Point], *, processes: int, evaluate: Evaluate = evaluate
) -> Generator[tuple[Point, Result]]:
    """Compute points in processes; yields each result as soon as it is there.

    A process that dies (killed, or out of memory) takes a few points with it, which are computed again one at a time;
    a point whose process dies then too has failed.

    Args:
        points: In the order to begin.
        processes: How many, >= 1.
        evaluate: What computes a point, importable by its name.
    """
    waiting, suspects = deque(points), deque[Point]()
    while waiting or suspects:
        ahead = 1 if suspects else processes * _AHEAD
        pool = ProcessPoolExecutor(min(processes, ahead), mp_context=get_context("spawn"), initializer=begin_process)
        running: dict[Future[Result], Point] = {}
        try:
            while waiting or suspects or running:
                source = suspects or waiting
                while source and len(running) < ahead:
                    running[pool.submit(evaluate, source[0])] = source[0]
                    source.popleft()
                done, _ = wait(running, return_when=FIRST_COMPLETED)
                for future in done:
                    result = future.result()
                    yield running.pop(future), result
                if ahead == 1 and not suspects:
                    break  # all that was suspected is done: on with all processes
        except BrokenProcessPool:
            lost = list(running.values())
            if ahead == 1 and lost:
                yield lost[0], Result(status="failed", error="the process that computed it died (out of memory?)")
            else:
                suspects.extend(lost)
        finally:
            pool.shutdown(wait=False, cancel_futures=True)


def begin_process() -> None:
    """Of a process: leave Ctrl-C to the one that asks, and end with it, however that ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = parent_process()
    assert parent is not None

    def watch() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
