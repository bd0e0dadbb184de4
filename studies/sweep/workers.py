"""Processes that compute points one after another, over pipes.

The library's pools keep named semaphores, which outlive a process that is killed until its resource tracker takes
them away and complains.  Pipes end with whoever holds them.
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
    """A process ended before it had answered."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Worker:
    """A process, and the points that it has not answered yet, in order."""

    process: SpawnProcess
    given: deque[SweepPoint] = field(default_factory=deque)


class Workers:
    """Processes of this machine that end with this one, however that ends.

    Args:
        count: How many, >= 1.
        evaluate: What computes a point, importable by its name.
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
        """What has been handed out and not answered."""
        return [point for worker in self._workers.values() for point in worker.given]

    def submit(self, point: SweepPoint) -> None:
        """Hand a point to the process that has fewest.

        Raises:
            WorkerDiedError: That process has ended.
        """
        pipe, worker = min(self._workers.items(), key=lambda item: len(item[1].given))
        worker.given.append(point)
        try:
            pipe.send(point)
        except OSError as error:
            raise WorkerDiedError from error

    def answers(self) -> Iterator[tuple[SweepPoint, PointResult]]:
        """Wait for answers; yields those that are there.

        Raises:
            WorkerDiedError: A process that had points has ended.
            Exception: As ``evaluate`` raised it.
        """
        for pipe in wait([pipe for pipe, worker in self._workers.items() if worker.given]):
            assert isinstance(pipe, Connection)
            try:
                answer = pipe.recv()
            except (EOFError, OSError) as error:
                raise WorkerDiedError from error
            if isinstance(answer, Exception):
                raise answer
            yield self._workers[pipe].given.popleft(), answer

    def close(self) -> None:
        """End all processes, whatever they are at."""
        for worker in self._workers.values():
            worker.process.terminate()
        for pipe, worker in self._workers.items():
            worker.process.join()
            pipe.close()


def _serve(pipe: Connection, evaluate: Evaluate) -> None:
    """Of a process: answer point after point until nobody asks, or hears."""
    begin_process()
    with suppress(EOFError, OSError):
        while True:
            pipe.send(_answer(evaluate, pipe.recv()))


def _answer(evaluate: Evaluate, point: SweepPoint) -> PointResult | Exception:
    try:
        return evaluate(point)
    except Exception as error:
        error.add_note(format_exc())
        return error


def begin_process() -> None:
    """Of a process: leave Ctrl-C to the one that asks, and end with it, however that ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = parent_process()
    assert parent is not None

    def watch() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
