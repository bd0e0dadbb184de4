"""The task graph: activities with the resources that they use, as arrays.

It knows resources, seconds and bytes, and nothing of layers.  All engines read this one form.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from groundwork.array_types import Bools, Floats, Ints
from groundwork.sparse_rows import row_owners
from simulator.graph.sharing import alone_rates


def pack_rows(rows: Iterable[Sequence[int]]) -> tuple[Ints, Ints]:
    """Pack rows of integers into compressed sparse rows.

    Returns:
        ``start`` and ``values``: row ``i`` is ``values[start[i]:start[i + 1]]``.
    """
    listed = list(rows)
    start = np.zeros(len(listed) + 1, dtype=np.int64)
    np.cumsum([len(row) for row in listed], out=start[1:])
    values = np.fromiter((value for row in listed for value in row), dtype=np.int64, count=int(start[-1]))
    return start, values


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskGraph:
    """The tasks 0 .. T-1 of a program and the resources 0 .. R-1 that they use.

    A task is ready when every task in its ``after`` row has ended, ``start_s`` has passed, and every
    earlier task (smaller id) of its stream has ended.  It then waits ``latency_s`` using nothing, and
    then works until ``work`` is done at a rate that max-min sharing gives it.
    """

    resource_names: Sequence[str]
    capacity: Floats
    """Units of work a second, > 0, shape (R,): bytes/s for a link, 1 for the arithmetic of a device."""
    exclusive: Bools
    """Flag that a resource serves one activity at a time, in order of readiness, shape (R,).  An activity begins
    when all its exclusive resources are free; while it waits for one, it does not occupy the others."""

    work: Floats
    """Amount of work, >= 0, shape (T,): bytes for a transfer, seconds for a kernel."""
    latency_s: Floats
    """Time between readiness and work, shape (T,)."""
    start_s: Floats
    """Earliest start, shape (T,)."""
    rate_limit: Floats
    """Largest rate in units of work a second, shape (T,); ``inf`` where only resources limit it.  A task that uses
    no resource and has no limit works at rate 1."""
    priority: Ints
    """Priority, higher is served first, shape (T,)."""
    stream: Ints
    """Stream that runs the task, first in, first out by task id, shape (T,); -1 for none."""

    use_start: Ints
    """Offsets of the rows of the next two fields, shape (T + 1,)."""
    use_resource: Ints
    """Resources that each task uses, shape (uses,)."""
    use_weight: Floats
    """Use of the resource per unit of rate, shape (uses,): 1 for a transfer on each link, its occupancy for a
    kernel."""

    after_start: Ints
    """Offsets of the rows of ``after``, shape (T + 1,)."""
    after: Ints
    """Tasks that must end before each task, shape (dependencies,)."""

    own_weight: Floats | None = None
    """What a task that stands for several like it uses by itself, where ``use_weight`` is what all of them use of one
    resource together, shape (uses,); None where tasks stand for themselves."""

    @property
    def size(self) -> int:
        """Number of tasks."""
        return len(self.work)

    @property
    def use_owners(self) -> Ints:
        """Task of each use of a resource, shape (uses,)."""
        return row_owners(self.use_start)

    @property
    def waiting(self) -> Ints:
        """Task that waits, of each entry of ``after``, shape (dependencies,)."""
        return row_owners(self.after_start)

    @property
    def earliest_s(self) -> float:
        """Earliest time at which a task may start; 0 where none can."""
        if not self.start_s.any():
            return 0.0
        # Only tasks that wait for no other count: all others wait for one of these, whatever their own earliest start.
        waits = np.diff(self.after_start) > 0
        by_stream = np.argsort(self.stream, kind="stable")
        stream = self.stream[by_stream]
        waits[by_stream[1:]] |= (stream[1:] == stream[:-1]) & (stream[1:] >= 0)
        first_s = self.start_s[~waits]
        return float(first_s.min()) if first_s.size else 0.0

    @property
    def alone_rates(self) -> Floats:
        """Rate that each task would have if it ran alone, units of work a second, shape (T,)."""
        return alone_rates(
            capacity=self.capacity,
            flow=self.use_owners,
            resource=self.use_resource,
            weight=self.use_weight,
            rate_limit=self.rate_limit,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """The times of each task of a replayed task graph, seconds after ``origin_s``, all of shape (T,)."""

    ready_s: Floats
    """Time at which all that the task waited for had ended and it was the head of its stream."""
    start_s: Floats
    """Time at which its latency was over and all its exclusive resources were free."""
    end_s: Floats
    """Time at which its work was done."""
    origin_s: float = 0.0
    """Zero of these times on the graph's clock, s.

    It is 0 unless the clock is late.  A trace may count from 1970: a double then has steps of a quarter of a
    microsecond, in which the lengths of short tasks would be lost, so the times count from the earliest start.
    """

    @property
    def makespan_s(self) -> float:
        """End of the last task; 0 for an empty graph."""
        return float(self.end_s.max()) if len(self.end_s) else 0.0
