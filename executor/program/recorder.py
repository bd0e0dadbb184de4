"""Measurements of one rank in an iteration: start and end of its tasks, and the bytes that it sent."""

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

import numpy as np

from executor.runtime.devices import ComputeDevice, Mark
from groundwork.array_types import Floats


@dataclass(frozen=True, slots=True, kw_only=True)
class RankMeasurement:
    """One rank's measurements of one iteration, shape (tasks,) each; NaN where the rank measures nothing.

    The sender of a transfer measures its start and the receiver its end; every member of a collective measures both.
    """

    start_s: Floats
    end_s: Floats
    sent_bytes: Floats


class Recorder:
    """Marks of tasks, collected while iterations run.

    A message may arrive before the rank begins its iteration.  A reduction may end when the rank is in the next
    iteration: on a processor its end is then written into the ``RankMeasurement`` that ``finish`` has returned.

    Args:
        tasks: Number of tasks of the program.
        device: The device that makes the marks.
    """

    def __init__(self, tasks: int, device: ComputeDevice) -> None:
        self._tasks, self._device = tasks, device
        self._iteration = 0
        self._thread, self._lock = threading.local(), threading.Lock()
        self._last: RankMeasurement | None = None
        self._unread: Callable[[], None] | None = None
        self._starts: dict[int, Mark] = {}
        self._ends: dict[tuple[int, int], Mark] = {}
        self._sent = np.full(tasks, np.nan)
        self._joined: list[tuple[list[int], list[float]]] = []

    @property
    def iteration(self) -> int:
        """Iteration whose tasks this thread runs, counted from 0."""
        return int(getattr(self._thread, "iteration", self._iteration))

    @contextmanager
    def of(self, iteration: int) -> Iterator[None]:
        """Count what this thread runs in the context to an iteration: the present one, or the one before."""
        self._thread.iteration = iteration
        try:
            yield
        finally:
            del self._thread.iteration

    def _late(self) -> RankMeasurement | None:
        """Return the finished measurements of the iteration that this thread runs; None while it is the present one."""
        return self._last if self.iteration < self._iteration else None

    def start(self, task: int) -> None:
        """Record the start of a task of this iteration."""
        mark = self._device.mark()
        with self._lock:
            if late := self._late():
                late.start_s[task] = self._device.seconds(mark)
            else:
                self._starts[task] = mark

    def end(self, task: int, *, iteration: int | None = None) -> None:
        """Record the end of a task, of this iteration or of another one, counted from 0."""
        mark = self._device.mark()
        with self._lock:
            if iteration is None and (late := self._late()):
                late.end_s[task] = self._device.seconds(mark)
            else:
                self._ends[self.iteration if iteration is None else iteration, task] = mark

    def timed(self, task: int, work: Callable[[], None], *, least_s: float = 0.0) -> None:
        """Run a task of this iteration and record it; wait until at least ``least_s`` seconds have passed."""
        self._starts[task] = self._device.mark()  # without the lock: no other thread records this task
        begin = (
            time.perf_counter()
        )  # read second: if the rank is preempted between the two, the task looks longer, not shorter
        work()
        if least_s and (left := begin + least_s - time.perf_counter()) > 0:
            time.sleep(left)
        self._ends[self._iteration, task] = self._device.mark()

    def joined(self, tasks: list[int], sizes: list[float]) -> None:
        """Record that tasks of this iteration ran as one: each gets a share of the time by its size, in order."""
        if len(tasks) > 1:
            self._joined.append((tasks, sizes))

    def sent(self, task: int, size_bytes: float) -> None:
        """Add bytes that the rank sent for a task."""
        with self._lock:
            late = self._late()
            sent = late.sent_bytes if late else self._sent
            sent[task] = size_bytes if np.isnan(sent[task]) else sent[task] + size_bytes

    def finish(self) -> RankMeasurement:
        """Return the measurements of this iteration and begin the next; the device must be synchronised.

        On a GPU the times are NaN until ``read``: reading thousands of events takes the host milliseconds, in which the
        GPU has nothing to do unless the next iteration has been submitted.
        """
        self.read()
        with self._lock:
            measured = self._finished()
        if not self._device.runs_ahead:
            self.read()
        return measured

    def read(self) -> None:
        """Write the times of the iteration that ``finish`` ended last into its measurements."""
        if self._unread:
            self._unread()
            self._unread = None

    def _finished(self) -> RankMeasurement:
        ends = {task: mark for (iteration, task), mark in list(self._ends.items()) if iteration == self._iteration}
        for task in ends:
            del self._ends[self._iteration, task]
        start_s, end_s = np.full((2, self._tasks), np.nan)
        measured = RankMeasurement(start_s=start_s, end_s=end_s, sent_bytes=self._sent)
        self._unread = partial(self._read, measured, self._starts, ends, self._joined)
        self._last = measured
        self._iteration += 1
        self._starts, self._sent, self._joined = {}, np.full(self._tasks, np.nan), []
        return measured

    def _read(
        self,
        measured: RankMeasurement,
        starts: Mapping[int, Mark],
        ends: Mapping[int, Mark],
        joined: Sequence[tuple[list[int], list[float]]],
    ) -> None:
        for marks, seconds in ((starts, measured.start_s), (ends, measured.end_s)):
            for task, mark in marks.items():
                seconds[task] = self._device.seconds(mark)
        for tasks, sizes in joined:
            # all tasks of a bucket have the same start and end: the first is divided in proportion to the sizes
            bounds = np.concatenate([[0.0], np.cumsum(sizes)]) / sum(sizes)
            begin, taken = measured.start_s[tasks[0]], measured.end_s[tasks[0]] - measured.start_s[tasks[0]]
            measured.start_s[tasks], measured.end_s[tasks] = begin + bounds[:-1] * taken, begin + bounds[1:] * taken
