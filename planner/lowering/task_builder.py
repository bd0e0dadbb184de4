"""Tasks under construction: columns as arrays, a layer at a time, and their dependencies."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hwprofiles import Floats, Ints
from planner.lowering.program import KINDS

__all__ = ["TaskPairs", "TaskRows", "Tasks"]

TaskPairs = tuple[Ints, Ints]
"""A row (a part, a device or a region) and a task that it waits for or that brings it, pair by pair."""

_COLUMNS = {
    "kind": -1, "layer": -1, "consumer": -1, "slot": -1, "micro_batch": 0, "backward": False, "statistics": False,
    "recomputed": False,
    "device": -1, "peer": -1, "part": -1, "group": -1, "size_bytes": 0.0, "work_s": 0.0,
    "compressed_bytes": 0.0, "decompressed_bytes": 0.0, "link_use": 1.0,
}  # fmt: skip
"""Columns of tasks with their defaults."""


@dataclass(frozen=True, slots=True)
class TaskRows:
    """Tasks after which something of a part is there, for every part of a layer or every device that holds one.

    Pairs (0, t5), (1, t6), (0, t9) become ``start`` 0 2 3 and ``task`` t5 t9 t6.
    """

    start: Ints
    task: Ints
    single: bool
    """True if no row has more than one task."""

    @classmethod
    def of(cls, row: Ints, task: Ints, count: int) -> "TaskRows":
        """Sort pairs (row, task) by row.

        Args:
            row: Shape (K,).
            task: Shape (K,).
            count: Number of rows.
        """
        counts = np.bincount(row, minlength=count)
        start = np.concatenate([[0], np.cumsum(counts)])
        return cls(start, task[np.argsort(row, kind="stable")], bool(counts.max() == 1))

    def take(self, rows: Ints) -> TaskPairs:
        """Return pairs (index into ``rows``, task) of some rows, each of which must have tasks.

        Rows [1, 0] of the example above give the indices 0 1 1 and the tasks t6 t5 t9.
        """
        if self.single:
            return np.arange(len(rows)), self.task[self.start[rows]]
        counts = np.diff(self.start)[rows]
        place = np.repeat(np.arange(len(rows)), counts)
        # What turns a position in the result into one in ``task``: first of the row there, less first of it here.
        shift = self.start[rows] - np.cumsum(counts) + counts
        return place, self.task[np.arange(len(place)) + shift[place]]


class Tasks:
    """Tasks under construction: arrays by column, and pairs of a task and one that it waits for."""

    def __init__(self) -> None:
        self.size = 0
        """Number of tasks so far."""
        self.group = -1
        """Group of the tasks that are added next."""
        self._rows: list[tuple[slice, dict[str, Ints | Floats | float]]] = []
        self._task: list[Ints] = []
        self._after: list[Ints] = []

    def add(self, kind: str, layer: int, count: int, **values: Ints | Floats | float) -> Ints:
        """Append tasks to the current group.

        Args:
            kind: One of ``KINDS``.
            layer: Layer of all tasks.
            count: Number of tasks.
            **values: Columns of ``Program``: one value for all tasks, or shape (count,).

        Returns:
            Their ids, shape (count,).
        """
        rows = slice(self.size, self.size + count)
        self._rows.append((rows, {"kind": KINDS.index(kind), "layer": layer, "group": self.group, **values}))
        self.size = rows.stop
        return np.arange(rows.start, rows.stop)

    def columns(self) -> dict[str, NDArray[Any]]:
        """Return the columns of all tasks, shape (size,) each."""
        columns = {name: np.full(self.size, default) for name, default in _COLUMNS.items()}
        for rows, values in self._rows:  # each value fills its slice, alike for one number and for an array
            for name, value in values.items():
                columns[name][rows] = value
        return columns

    def wait(self, task: Ints, after: Ints) -> None:
        """Let tasks wait for others, pair by pair."""
        self._task.append(task)
        self._after.append(after)

    def dependencies(self) -> tuple[Ints, Ints]:
        """Return the tasks that each task waits for, each once, in order.

        Returns:
            Offsets, shape (size + 1,), and tasks.
        """
        empty = np.empty(0, dtype=np.int64)
        task, after = np.concatenate([empty, *self._task]), np.concatenate([empty, *self._after])
        pairs = np.sort(task * self.size + after, kind="stable")  # a pair as one number: sorted by task, then by after
        task, after = np.divmod(pairs[np.diff(pairs, prepend=-1) > 0], max(self.size, 1))
        return np.concatenate([[0], np.cumsum(np.bincount(task, minlength=self.size))]), after
