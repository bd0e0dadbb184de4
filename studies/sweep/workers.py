"""Processes that compute points one after another, and receive them over pipes.

The standard library's pools keep named semaphores.  After the main process is killed, these stay until its resource
tracker removes them, with warnings.  Pipes are closed with the process that holds them.
"""

import os
import signal
import threading
import warnings
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from multiprocessing import get_context, parent_process, resource_tracker
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from traceback import format_exc
from typing import Any, Generic, TypeVar

from groundwork.errors import ConfigError
from studies.sweep.evaluate_point import PointResult, evaluate_point
from studies.sweep.point import SweepPoint

# What is started holds pipes alone, of which nothing is left behind, and a new tracker takes the place of a killed one.
warnings.filterwarnings("ignore", "resource_tracker: process died unexpectedly", UserWarning)
_Item = TypeVar("_Item")
_Result = TypeVar("_Result")
_HELD = (signal.SIGINT, signal.SIGTERM, *((signal.SIGHUP,) if hasattr(signal, "SIGHUP") else ()))


class WorkerDiedError(Exception):
    """A process ended before it had returned its results."""


@dataclass(slots=True, kw_only=True)
class _Worker(Generic[_Item]):
    """A process, and the points whose results it has not returned yet, in order."""

    process: SpawnProcess
    pending: deque[_Item] = field(default_factory=deque)
    began: bool = False
    """Whether it has returned a result."""

    def check_began(self) -> None:
        """Refuse to go on where Python itself ended the process before its first point: the next one would end alike.

        Raises:
            ConfigError: The process ended with an error while it loaded the main module.
        """
        self.process.join()
        if not self.began and self.process.exitcode == 1:
            raise ConfigError(
                "processes must be able to load the main module, and ended with an error while they did; a script that "
                "starts them must do so under: if __name__ == '__main__':"
            )


class Workers(Generic[_Item, _Result]):
    """Processes of this machine that end with this one, however that ends."""

    def __init__(self, count: int, evaluate: Callable[[_Item], _Result]) -> None:
        context = get_context("spawn")
        self._workers: dict[Connection, _Worker[_Item]] = {}
        resource_tracker.ensure_running()  # which would release the held signals
        for _ in range(count):
            ours, theirs = context.Pipe()
            process = context.Process(target=_serve, args=(theirs, evaluate), daemon=True)
            with signals_held():
                process.start()
            self._workers[ours] = _Worker(process=process)
            theirs.close()

    def running(self) -> list[_Item]:
        """Return the points that were sent to processes and have no result yet."""
        return [point for worker in self._workers.values() for point in worker.pending]

    def submit(self, point: _Item) -> None:
        """Send a point to the process with the fewest pending points.

        Raises:
            WorkerDiedError: The process has ended.
            ConfigError: It ended with an error before its first point.
        """
        pipe, worker = min(self._workers.items(), key=lambda item: len(item[1].pending))
        worker.pending.append(point)
        try:
            pipe.send(point)
        except OSError as error:
            worker.check_began()
            raise WorkerDiedError from error

    def results(self) -> Iterator[tuple[_Item, _Result]]:
        """Wait for results, and yield those that have arrived.

        Raises:
            WorkerDiedError: A process with pending points has ended.
            ConfigError: It ended with an error before its first point.
            Exception: The error that ``evaluate`` raised.
        """
        for pipe in wait([pipe for pipe, worker in self._workers.items() if worker.pending]):
            assert isinstance(pipe, Connection)
            try:
                result = pipe.recv()
            except (EOFError, OSError) as error:
                self._workers[pipe].check_began()
                raise WorkerDiedError from error
            if isinstance(result, Exception):
                raise result
            self._workers[pipe].began = True
            yield self._workers[pipe].pending.popleft(), result

    def close(self) -> None:
        """End all processes, also those that compute a point."""
        for worker in self._workers.values():
            worker.process.kill()  # one that still starts holds gentler signals
        for pipe, worker in self._workers.items():
            worker.process.join()
            pipe.close()


@contextmanager
def signals_held() -> Iterator[None]:
    """Hold the signals that end a command: none then parts the start of a process from its record.

    The process begins with them held, so that Ctrl-C does not meet it while it loads modules.
    """
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _HELD)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _serve(pipe: Connection, evaluate: Callable[[Any], Any]) -> None:
    """Compute points in a process until the main process closes the pipe."""
    with suppress(EOFError, OSError):
        try:
            _begin()
        except RuntimeError as error:  # no thread can be started, also in the next process
            pipe.send(error)
            return
        while True:
            pipe.send(_result(evaluate, pipe.recv()))


def _result(evaluate: Callable[[Any], Any], point: Any) -> Any:
    """Return the result of a point, or the error with its traceback as a note."""
    try:
        return evaluate(point)
    except Exception as error:
        error.add_note(format_exc())
        return error


def _begin() -> None:
    """Prepare a process: it ignores Ctrl-C, which the main process handles, and ends when the main process ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _HELD)
    parent = parent_process()
    assert parent is not None

    def watch() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


DIED = "the process that computed it died (out of memory?)"
_AHEAD = 2
"""Points sent to each process in advance, so that it never waits, and a stop loses few of them."""


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
    points: Iterable[_Item], *, processes: int, evaluate: Callable[[_Item], _Result], died: Callable[[_Item], _Result]
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
