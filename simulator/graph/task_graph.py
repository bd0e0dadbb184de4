"""The task graph: activities with the resources that they use, as arrays.

It knows resources, seconds and bytes, and nothing of layers.  Every engine reads this one form.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hwprofiles import Floats, Ints, row_owners

__all__ = ["Schedule", "TaskGraph", "pack_rows"]


def pack_rows(rows: Iterable[Sequence[int]]) -> tuple[Ints, Ints]:
    """Pack rows of integers into (start, values): row ``i`` is ``values[start[i]:start[i + 1]]``."""
    listed = list(rows)
    start = np.zeros(len(listed) + 1, dtype=np.int64)
    np.cumsum([len(row) for row in listed], out=start[1:])
    values = np.fromiter((value for row in listed for value in row), dtype=np.int64, count=int(start[-1]))
    return start, values


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskGraph:
    """Tasks 0 .. T-1 and the resources 0 .. R-1 that they use.

    A task is ready when every task in its ``after`` row has ended, ``start_s`` has passed, and every
    earlier task (smaller id) of its stream has ended.  It then waits ``latency_s`` using nothing, and
    then works until ``work`` is done at a rate that max-min sharing gives it.
    """

    resource_names: tuple[str, ...]
    capacity: Floats
    """Shape (R,): units of work a second, > 0.  A link: bytes/s.  A device's arithmetic: 1."""
    exclusive: NDArray[np.bool_]
    """Shape (R,): True where one activity at a time is served, in order of readiness.  An
    activity begins when all its exclusive resources are free; while one is taken it holds up nobody else."""

    work: Floats
    """Shape (T,): amount of work, >= 0 (bytes for a transfer, seconds for a kernel)."""
    latency_s: Floats
    """Shape (T,)."""
    start_s: Floats
    """Shape (T,): earliest start."""
    rate_limit: Floats
    """Shape (T,): most work a second; ``inf`` where only resources limit.  A task that uses no
    resource and has no limit works at rate 1."""
    priority: NDArray[np.int64]
    """Shape (T,): higher is served first."""
    stream: NDArray[np.int64]
    """Shape (T,): stream that runs the task, first in, first out by task id; -1 for none."""

    use_start: Ints
    """Shape (T + 1,): offsets of the rows below."""
    use_resource: Ints
    use_weight: Floats
    """Resource use per unit of rate: a transfer has 1 on each link, a kernel its occupancy."""

    after_start: Ints
    """Shape (T + 1,): offsets of the rows below."""
    after: Ints

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
        """Task that waits, for each task of ``after`` that it waits for, shape (dependencies,)."""
        return row_owners(self.after_start)


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """When each task of a task graph ran.  All shapes (T,), seconds."""

    ready_s: Floats
    """Everything that the task waited for had ended and it was the head of its stream."""
    start_s: Floats
    """Its latency was over and, on exclusive resources, its turn had come."""
    end_s: Floats

    @property
    def makespan_s(self) -> float:
        """End of the last task; 0 for an empty graph."""
        return float(self.end_s.max()) if len(self.end_s) else 0.0
