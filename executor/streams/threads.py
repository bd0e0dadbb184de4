"""Streams of a plan as threads of one process, each task with a stated share of the cores.

A task is ready when its dependencies have ended and it is the head of its stream, as in the simulation.  Of the ready
tasks for which enough cores are free, the first by priority, then by program order, runs next.
"""

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch

from groundwork.array_types import Floats
from groundwork.errors import ConfigError
from planner.lowering.program import Program
from studies.streams.stream_plan import StreamPlan


@dataclass(frozen=True, slots=True, eq=False)
class StepTimes:
    """Start and end of each task, shape (T,), in seconds from the begin of the step."""

    start_s: Floats
    end_s: Floats

    @property
    def step_s(self) -> float:
        """Time until the last task ended."""
        return float(self.end_s.max())


class ThreadRunner:
    """Threads that run one program under one plan, step after step; a context manager."""

    def __init__(
        self, program: Program, plan: StreamPlan, run: Callable[[int], None], *, cores: Sequence[int], total: int
    ) -> None:
        """Start the threads.

        Args:
            program: Decomposed program of one device.
            plan: Streams, priorities and additional order.
            run: Does a task.
            cores: Cores of each task, shape (T,), 1 to ``total``.
            total: Cores that may be busy at once.

        Raises:
            ConfigError: A task needs no core, or more cores than there are.
        """
        if min(cores) < 1 or max(cores) > total:
            raise ConfigError(f"cores of a task must be from 1 to {total}, got {min(cores)} to {max(cores)}")
        self._run, self._cores, self._total = run, list(cores), total
        self._keys = [(-int(priority), task) for task, priority in enumerate(plan.priority.tolist())]
        self._readers, self._waits = _dependencies(program, plan)
        self._changed = threading.Condition()
        self._closed, self._error = False, None
        self._begin_s, self._left, self._free = 0.0, 0, total
        self._ready: list[tuple[int, int]] = []
        self._waiting: list[int] = []
        self._times = np.zeros((2, program.size))
        size = min(total // min(cores), program.size)
        self._threads = [threading.Thread(target=self._work, name=f"stream {i}", daemon=True) for i in range(size)]
        for thread in self._threads:
            thread.start()

    _error: BaseException | None

    def __enter__(self) -> "ThreadRunner":
        return self

    def __exit__(self, *exception: object) -> None:
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        for thread in self._threads:
            thread.join()

    def step(self) -> StepTimes:
        """Run every task once.

        Raises:
            Exception: A task raised it; the tasks that were running end first.
        """
        with self._changed:
            self._waiting = list(self._waits)
            self._begin_s, self._left, self._free = time.perf_counter(), len(self._waits), self._total
            self._ready = [self._keys[task] for task, count in enumerate(self._waiting) if count == 0]
            self._changed.notify_all()
            while self._left and self._error is None:
                self._changed.wait()
            while self._free < self._total:
                self._changed.wait()
            if self._error is not None:
                error, self._error, self._ready = self._error, None, []
                raise error
        start_s, end_s = self._times - self._begin_s
        return StepTimes(start_s, end_s)

    def _work(self) -> None:
        threads = 0
        while (task := self._next()) is not None:
            cores = self._cores[task]
            if cores != threads:
                torch.set_num_threads(cores)  # of this thread alone
                threads = cores
            self._times[0, task] = time.perf_counter()
            error: BaseException | None = None
            try:
                self._run(task)
            except BaseException as raised:  # raised again in the thread that waits for the step
                error = raised
            self._times[1, task] = time.perf_counter()
            self._ended(task, error)

    def _next(self) -> int | None:
        with self._changed:
            while not self._closed:
                fitting = [key for key in self._ready if self._cores[key[1]] <= self._free]
                if fitting and self._error is None:
                    key = min(fitting)
                    self._ready.remove(key)
                    self._free -= self._cores[key[1]]
                    return key[1]
                self._changed.wait()
        return None

    def _ended(self, task: int, error: BaseException | None) -> None:
        with self._changed:
            self._free += self._cores[task]
            self._left -= 1
            if error is not None:
                self._error = error
            for reader in self._readers[task]:
                self._waiting[reader] -= 1
                if self._waiting[reader] == 0:
                    self._ready.append(self._keys[reader])
            self._changed.notify_all()


def _dependencies(program: Program, plan: StreamPlan) -> tuple[list[list[int]], list[int]]:
    """Return the tasks that wait for each task, and the number of tasks that each waits for."""
    late = program.waiting
    pairs = [np.column_stack([late, program.after]), plan.order]
    for stream in np.unique(plan.stream[plan.stream >= 0]).tolist():
        tasks = np.flatnonzero(plan.stream == stream).tolist()
        pairs.append(np.array([(second, first) for first, second in pairwise(tasks)], dtype=np.int64).reshape(-1, 2))
    unique = np.unique(np.concatenate(pairs), axis=0)
    readers: list[list[int]] = [[] for _ in range(program.size)]
    for task, early in unique.tolist():
        readers[early].append(task)
    return readers, np.bincount(unique[:, 0], minlength=program.size).tolist()
