"""Tasks under construction: columns as arrays, a layer at a time, and what waits for what."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hwprofiles import Floats, Ints
from planner.lowering.program import KINDS

__all__ = ["Pairs", "TaskRows", "Tasks"]

Pairs = tuple[Ints, Ints]
"""A row (a part, a device, a region) and a task after which it has something, pair by pair."""

_COLUMNS = {
    "kind": -1, "layer": -1, "consumer": -1, "slot": -1, "micro_batch": 0, "backward": False, "statistics": False,
    "recomputed": False,
    "device": -1, "peer": -1, "part": -1, "group": -1, "size_bytes": 0.0, "work_s": 0.0,
    "compressed_bytes": 0.0, "decompressed_bytes": 0.0,
}  # fmt: skip
"""What tasks are made of, with what holds where nothing else is said."""


@dataclass(frozen=True, slots=True)
class TaskRows:
    """For every part of a layer, or every device that holds one, the tasks after which it has something."""

    start: Ints
    task: Ints
    single: bool
    """Whether none has more than one."""

    @classmethod
    def of(cls, row: Ints, task: Ints, count: int) -> "TaskRows":
        """Pairs (row, task) by row, of which there are ``count``."""
        counts = np.bincount(row, minlength=count)
        start = np.concatenate([[0], np.cumsum(counts)])
        return cls(start, task[np.argsort(row, kind="stable")], bool(counts.max() == 1))

    def take(self, rows: Ints) -> Pairs:
        """Pairs (place in ``rows``, task); the rows asked for have some."""
        if self.single:
            return np.arange(len(rows)), self.task[self.start[rows]]
        counts = np.diff(self.start)[rows]
        place = np.repeat(np.arange(len(rows)), counts)
        shift = self.start[rows] - np.cumsum(counts) + counts
        return place, self.task[np.arange(len(place)) + shift[place]]


class Tasks:
    """Tasks under construction: arrays by column, and pairs (task, what it waits for)."""

    def __init__(self) -> None:
        self.size, self.group = 0, -1
        self.rows: list[tuple[slice, dict[str, Ints | Floats | float]]] = []
        self.task: list[Ints] = []
        self.after: list[Ints] = []

    def add(self, kind: str, layer: int, count: int, **values: Ints | Floats | float) -> Ints:
        """Append tasks of the current group; returns their ids, shape (count,)."""
        rows = slice(self.size, self.size + count)
        self.rows.append((rows, {"kind": KINDS.index(kind), "layer": layer, "group": self.group, **values}))
        self.size = rows.stop
        return np.arange(rows.start, rows.stop)

    def columns(self) -> dict[str, NDArray[Any]]:
        """What was given to ``add``, as arrays of shape (size,)."""
        columns = {name: np.full(self.size, default) for name, default in _COLUMNS.items()}
        for rows, values in self.rows:
            for name, value in values.items():
                columns[name][rows] = value
        return columns

    def wait(self, task: Ints, after: Ints) -> None:
        """Let tasks wait for others, pair by pair."""
        self.task.append(task)
        self.after.append(after)

    def dependencies(self) -> tuple[Ints, Ints]:
        """TaskRows of what each task waits for, each once, in order."""
        empty = np.empty(0, dtype=np.int64)
        task, after = np.concatenate([empty, *self.task]), np.concatenate([empty, *self.after])
        pairs = np.sort(task * self.size + after, kind="stable")
        task, after = np.divmod(pairs[np.diff(pairs, prepend=-1) > 0], max(self.size, 1))
        return np.concatenate([[0], np.cumsum(np.bincount(task, minlength=self.size))]), after
