"""Tasks under construction: arrays by column, a layer at a time, their copies by micro-batch, and dependencies."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from groundwork.array_types import Floats, Ints
from groundwork.sparse_rows import row_owners
from planner.lowering.program import KINDS

TaskPairs = tuple[Ints, Ints]
"""A row (a part, a device or a region) and a task that it waits for or that brings it, pair by pair."""
NO_PAIRS: TaskPairs = (np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64))

_COLUMNS = {
    "kind": -1,
    "layer": -1,
    "consumer": -1,
    "slot": -1,
    "micro_batch": 0,
    "backward": False,
    "statistics": False,
    "recomputed": False,
    "device": -1,
    "peer": -1,
    "part": -1,
    "group": -1,
    "size_bytes": 0.0,
    "work_s": 0.0,
    "later_s": 0.0,
    "compressed_bytes": 0.0,
    "decompressed_bytes": 0.0,
    "link_use": 1.0,
}
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
    """Tasks under construction: arrays by column, and pairs of a task and one that it waits for.

    What one micro-batch does, all do: its tasks are made once, and the program has a copy of them for each, where the
    schedule has it.  A task of a forward pass in two micro-batches, b, and one behind the backward passes, d:

        made                     a at 0    b at 1, 3    c at 2, 4    d once, at 4
        program                  a   b   c   b'  c'  d
        b waits for a            b and b' wait for a
        c waits for b            c waits for b, c' for b'
        d waits for c            d waits for c and c'
    """

    def __init__(self) -> None:
        self.size = 0
        """Number of tasks that were made."""
        self.program_size = 0
        """Number of tasks of the program, copies included."""
        self.group = -1
        """Group of the tasks that are made next."""
        self.last_micro_batch = 0
        """Micro-batch whose copies of the tasks that are made next are the last in the program."""
        self._places = np.zeros(1, dtype=np.int64)
        self._behind = 1
        """First place behind all others."""
        self._rows: list[tuple[slice, Ints, dict[str, Ints | Floats | float]]] = []
        self._task: list[Ints] = []
        self._after: list[Ints] = []

    @property
    def copies(self) -> int:
        """Copies of the tasks that are made next."""
        return len(self._places)

    def place(self, places: Ints) -> None:
        """Let tasks that are made next have a copy at each of some places in program order, by micro-batch."""
        self._places, self.last_micro_batch = places, int(places.argmax())
        self._behind = max(self._behind, int(places.max()) + 1)

    def place_behind(self, copies: int = 1) -> None:
        """Let tasks that are made next have so many copies, one behind another, behind all other tasks."""
        self.place(self._behind + np.arange(copies))

    @contextmanager
    def once(self) -> Iterator[None]:
        """Let tasks that are made inside be done once, with the last of the copies of those before them."""
        places, self._places = self._places, self._places.max(keepdims=True)
        yield
        self._places = places

    def add(self, kind: str, layer: int, count: int, **values: Ints | Floats | float) -> Ints:
        """Append tasks to the current group.

        Args:
            kind: One of ``KINDS``.
            layer: Layer of all tasks.
            count: Number of tasks.
            **values: Columns of ``Program``: one value for all tasks, or shape (count,); ``micro_batch`` counts where
                tasks have one copy, and copies behind the first take ``later_s`` longer.

        Returns:
            Their ids, shape (count,).
        """
        rows = slice(self.size, self.size + count)
        values = {"kind": KINDS.index(kind), "layer": layer, "group": self.group, **values}
        self._rows.append((rows, self._places, values))
        self.size = rows.stop
        self.program_size += count * self.copies
        return np.arange(rows.start, rows.stop)

    def wait(self, task: Ints, after: Ints) -> None:
        """Let tasks wait for others, pair by pair."""
        self._task.append(task)
        self._after.append(after)

    def program(self) -> "ProgramTasks":
        """Return the tasks of the program, in its order."""
        columns = {name: np.full(self.size, default) for name, default in _COLUMNS.items()}
        copies = np.empty(self.size, dtype=np.int64)
        places = []
        for rows, at, values in self._rows:  # each value fills its slice, alike for one number and for an array
            for name, value in values.items():
                columns[name][rows] = value
            copies[rows] = len(at)
            count = rows.stop - rows.start
            places.append(at.repeat(count) if len(at) == 1 else np.tile(at, count))
        empty = np.empty(0, dtype=np.int64)
        place = np.concatenate([empty, *places])
        start = np.concatenate([[0], np.cumsum(copies)])
        waits = np.concatenate([empty, *self._task]), np.concatenate([empty, *self._after])
        return ProgramTasks(columns, start, place, waits)


@dataclass(frozen=True, eq=False)
class ProgramTasks:
    """Tasks of a program: copies of those that were made, in program order."""

    _columns: dict[str, NDArray[Any]]
    """Columns of the tasks that were made."""
    _start: Ints
    """First copy of each, and the number of all copies."""
    _place: Ints
    """Place of each copy: of the first task by micro-batch, then of the second ..."""
    _waits: TaskPairs
    """Tasks that were made, and those that they wait for."""

    @cached_property
    def _order(self) -> Ints:
        """Copy that is each task of the program: by place, then as they were made."""
        return np.argsort(self._place * len(self._start) + row_owners(self._start), kind="stable")

    @cached_property
    def _id(self) -> Ints:
        """Task of the program that is each copy."""
        found = np.empty_like(self._order)
        found[self._order] = np.arange(len(found))
        return found

    @cached_property
    def made(self) -> Ints:
        """Task that was made of which each task of the program is a copy."""
        return row_owners(self._start)[self._order]

    def copies(self, task: int) -> list[int]:
        """Return the tasks of the program that are copies of one that was made, by micro-batch."""
        ids: list[int] = self._id[self._start[task] : self._start[task + 1]].tolist()
        return ids

    def first(self, tasks: Ints) -> Ints:
        """Return the copies of tasks in the first micro-batch."""
        return self._id[self._start[tasks]]

    def last(self, tasks: Ints) -> Ints:
        """Return the copies of tasks in the last micro-batch."""
        return self._id[self._start[tasks + 1] - 1]

    def columns(self) -> dict[str, NDArray[Any]]:
        """Return the columns of all tasks of the program, with their micro-batches and groups."""
        columns = {name: column[self.made] for name, column in self._columns.items()}
        micro_batch = self._order - self._start[self.made]
        columns["micro_batch"] = np.where(np.diff(self._start)[self.made] > 1, micro_batch, columns["micro_batch"])
        first = np.repeat(np.minimum.reduceat(self._place, self._start[:-1]), np.diff(self._start))
        columns["work_s"] = columns["work_s"] + columns.pop("later_s") * (self._place > first)[self._order]
        # a group has a copy at each of its places
        begins = (np.diff(columns["group"], prepend=-1) != 0) | (np.diff(self._place[self._order], prepend=-1) != 0)
        columns["group"] = np.cumsum(begins) - 1
        return columns

    def dependencies(self) -> tuple[Ints, Ints]:
        """Return the tasks that each task of the program waits for, each once, in order.

        Returns:
            Offsets, shape (tasks + 1,), and tasks.
        """
        size, copies = len(self._id), np.diff(self._start)
        several = [copies[tasks] > 1 for tasks in self._waits]
        pair = np.repeat(np.arange(len(several[0])), np.maximum(*(copies[tasks] for tasks in self._waits)))
        micro_batch = np.arange(len(pair)) - np.searchsorted(pair, pair)
        task, after = (
            self._id[self._start[tasks[pair]] + micro_batch * more[pair]]
            for tasks, more in zip(self._waits, several, strict=True)
        )
        pairs = np.sort(task * size + after, kind="stable")  # a pair as one number: sorted by task, then by after
        task, after = np.divmod(pairs[np.diff(pairs, prepend=-1) > 0], max(size, 1))
        return np.concatenate([[0], np.cumsum(np.bincount(task, minlength=size))]), after
