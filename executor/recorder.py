"""What one rank measures of an iteration: when its tasks began and ended, and the bytes that it sent."""

import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from executor.devices import Device, Mark

__all__ = ["Measured", "Recorder"]

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """One rank's view of one iteration, shape (tasks,) each; NaN where the rank has no say.

    A sender knows when a transfer began and its receiver when it ended; every member of a collective has both.
    """

    start_s: Floats
    end_s: Floats
    sent_bytes: Floats


class Recorder:
    """Collects marks while iterations run; a message may arrive before the rank has come to its iteration.

    Args:
        tasks: Tasks of the program.
        device: Whose marks they are.
    """

    def __init__(self, tasks: int, device: Device) -> None:
        self._tasks, self._device = tasks, device
        self._iteration = 0
        self._starts: dict[int, Mark] = {}
        self._ends: dict[tuple[int, int], Mark] = {}
        self._sent = np.full(tasks, np.nan)
        self._joined: list[tuple[list[int], list[float]]] = []

    def start(self, task: int, mark: Mark | None = None) -> None:
        """A task of this iteration begins, now or at ``mark``."""
        self._starts[task] = self._device.mark() if mark is None else mark

    def end(self, task: int, mark: Mark | None = None, *, iteration: int | None = None) -> None:
        """A task ends, now or at ``mark``; of this iteration or of another, counted from 0."""
        when = self._iteration if iteration is None else iteration
        self._ends[when, task] = self._device.mark() if mark is None else mark

    def timed(self, task: int, work: Callable[[], None], *, least_s: float = 0.0) -> None:
        """Run a task of this iteration; wait until at least so many seconds are over."""
        self.start(task)
        begin = time.perf_counter()
        work()
        left = begin + least_s - time.perf_counter()
        if least_s and left > 0:
            time.sleep(left)
        self.end(task)

    def joined(self, tasks: list[int], sizes: list[float]) -> None:
        """Tasks of this iteration were done as one: each gets its share of the time, by size, one after another."""
        if len(tasks) > 1:
            self._joined.append((tasks, sizes))

    def sent(self, task: int, size_bytes: float) -> None:
        """The rank sent so many bytes for a task, in addition to those before."""
        before = self._sent[task]
        self._sent[task] = size_bytes if np.isnan(before) else before + size_bytes

    def finish(self) -> Measured:
        """What was measured of this iteration, and on to the next; the device must be synchronised."""
        ends = {key: mark for key, mark in list(self._ends.items()) if key[0] == self._iteration}
        for key in ends:
            del self._ends[key]
        measured = Measured(
            start_s=self._seconds(self._starts),
            end_s=self._seconds({task: mark for (_, task), mark in ends.items()}),
            sent_bytes=self._sent,
        )
        for tasks, sizes in self._joined:
            bounds = np.concatenate([[0.0], np.cumsum(sizes)]) / sum(sizes)
            begin, taken = measured.start_s[tasks[0]], measured.end_s[tasks[0]] - measured.start_s[tasks[0]]
            measured.start_s[tasks], measured.end_s[tasks] = begin + bounds[:-1] * taken, begin + bounds[1:] * taken
        self._iteration += 1
        self._starts, self._sent, self._joined = {}, np.full(self._tasks, np.nan), []
        return measured

    def _seconds(self, marks: dict[int, Mark]) -> Floats:
        seconds = np.full(self._tasks, np.nan)
        for task, mark in marks.items():
            seconds[task] = self._device.seconds(mark)
        return seconds
