"""Processes that compute points one after another, and receive them over pipes.

The standard library's pools keep named semaphores.  After the main process is killed, these stay until its resource
tracker removes them, with warnings.  Pipes are closed with the process that holds them.
"""

import os
import signal
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing import get_context, parent_process
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from traceback import format_exc

from studies.sweep.evaluate_point import PointResult
from studies.sweep.point import SweepPoint

__all__ = ["Evaluate", "WorkerDiedError", "Workers", "begin_process"]

Evaluate = Callable[[SweepPoint], PointResult]


class WorkerDiedError(Exception):
    """A process ended before it had returned its results."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Worker:
    """A process, and the points whose results it has not returned yet, in order."""

    process: SpawnProcess
    pending: deque[SweepPoint] = field(default_factory=deque)


class Workers:
    """Processes of this machine that end with this one, however that ends.

    Args:
        count: Number of processes, >= 1.
        evaluate: Function that computes a point, importable by its name.
    """

    def __init__(self, count: int, evaluate: Evaluate) -> None:
        context = get_context("spawn")
        self._workers: dict[Connection, _Worker] = {}
        for _ in range(count):
            ours, theirs = context.Pipe()
            process = context.Process(target=_serve, args=(theirs, evaluate), daemon=True)
            self._workers[ours] = _Worker(process=process)
            process.start()
            theirs.close()

    def running(self) -> list[SweepPoint]:
        """Return the points that were sent to processes and have no result yet."""
        return [point for worker in self._workers.values() for point in worker.pending]

    def submit(self, point: SweepPoint) -> None:
        """Send a point to the process with the fewest pending points.

        Raises:
            WorkerDiedError: The process has ended.
        """
        pipe, worker = min(self._workers.items(), key=lambda item: len(item[1].pending))
        worker.pending.append(point)
        try:
            pipe.send(point)
        except OSError as error:
            raise WorkerDiedError from error

    def results(self) -> Iterator[tuple[SweepPoint, PointResult]]:
        """Wait for results, and yield those that have arrived.

        Raises:
            WorkerDiedError: A process with pending points has ended.
            Exception: The error that ``evaluate`` raised.
        """
        for pipe in wait([pipe for pipe, worker in self._workers.items() if worker.pending]):
            assert isinstance(pipe, Connection)
            try:
                result = pipe.recv()
            except (EOFError, OSError) as error:
                raise WorkerDiedError from error
            if isinstance(result, Exception):
                raise result
            yield self._workers[pipe].pending.popleft(), result

    def close(self) -> None:
        """End all processes, also those that compute a point."""
        for worker in self._workers.values():
            worker.process.terminate()
        for pipe, worker in self._workers.items():
            worker.process.join()
            pipe.close()


def _serve(pipe: Connection, evaluate: Evaluate) -> None:
    """Compute points in a process until the main process closes the pipe."""
    begin_process()
    with suppress(EOFError, OSError):
        while True:
            pipe.send(_result(evaluate, pipe.recv()))


def _result(evaluate: Evaluate, point: SweepPoint) -> PointResult | Exception:
    """Return the result of a point, or the error with its traceback as a note."""
    try:
        return evaluate(point)
    except Exception as error:
        error.add_note(format_exc())
        return error


def begin_process() -> None:
    """Prepare a process: it ignores Ctrl-C, which the main process handles, and ends when the main process ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = parent_process()
    assert parent is not None

    def watch() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
