"""The state of a replay as arrays: records of tasks, resources and uses, lists and counters."""

from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from groundwork.array_types import Floats, Ints

Records = Any
"""Structured arrays, whose fields numba reads as attributes."""
Indices = NDArray[np.int32]
"""Indices of tasks or uses."""

int64 = cast(Callable[[int], int], np.int64)
"""Widens an index or a literal: numba compiles a function anew for every type of argument, and for every literal."""

TASK = np.dtype(
    [
        ("work", "f8"),
        ("latency_s", "f8"),
        ("earliest_s", "f8"),
        ("alone", "f8"),  # rate when no other task uses its resources
        ("rate", "f8"),
        ("remaining", "f8"),  # work that remained at since_s
        ("since_s", "f8"),
        ("share", "f8"),  # rate being solved, or a mark of ``filling``
        ("serial", "i8"),  # of its rate
        ("priority", "i8"),
        ("chain", "i8"),  # next timer of the same heap entry, or -1
        ("follower", "i8"),  # next task of its stream, or -1
        ("missing", "i4"),  # tasks that it still waits for
        ("instant", "i4"),  # at which it became ready
        ("solved", "i4"),  # instant of its last solution
        ("bottleneck", "i4"),  # binding resource that limits its rate, or -1
        ("ports", "i4"),  # number of its exclusive resources
    ],
    align=True,
)
RESOURCE = np.dtype(
    [
        ("capacity", "f8"),
        ("free", "f8"),  # capacity that the activities solved so far leave
        ("weight", "f8"),  # of the users whose rates still rise
        ("class_weight", "f8"),  # the same when it was last added up
        ("rising", "i4"),  # number of users whose rates still rise
        ("users", "i4"),  # number of activities that work on it
        ("waiters", "i4"),  # number of tasks in its queue
        ("touched", "i4"),  # instant at which its users last changed
        ("offered", "i4"),  # instant at which it was last offered to its queue
        ("exclusive", "i4"),
        ("binds", "i4"),  # whether its users, each at its rate alone, need more than its capacity
        ("solution", "i8"),  # last solution that it took part in
    ],
    align=True,
)
USE = np.dtype([("weight", "f8"), ("resource", "i4"), ("task", "i4"), ("slot", "i4")], align=True)
ENTRY = np.dtype([("key", "f8"), ("serial", "i8"), ("item", "i8")], align=True)  # of a heap


class _Rows(list[Any]):
    """Records of plain Python: putting one into another's place copies its fields, as in a structured array."""

    def __setitem__(self, at: Any, row: Any) -> None:
        own = self[at]
        for name in own.__slots__:
            setattr(own, name, getattr(row, name))


@cache
def _row_type(names: tuple[str, ...]) -> type[Any]:
    """Return a class of records with these fields."""

    def fill(self: Any, values: tuple[Any, ...]) -> None:
        for name, value in zip(names, values, strict=True):
            setattr(self, name, value)

    return type("Row", (), {"__slots__": names, "__init__": fill})


def as_lists(array: Records) -> Any:
    """Return an array as the lists of plain Python, which reads and writes them several times as fast."""
    names = array.dtype.names
    return _Rows(map(_row_type(names), array.tolist())) if names else array.tolist()


EARLIEST, LATENCY = int64(-1), int64(-2)
"""Serial numbers of timers: the earliest start of a task, and the end of its latency."""

# Counters, as indices into ``counts``: lengths of the lists below, then numbers of solutions, rates and instants.
HEAP, ENDED, BEGUN, TOUCHED, OFFERED, FLOWS, LINKS, SOLUTION, SERIAL, INSTANT, TIMER, FINISHED = range(12)
MIXED = 12  # 1 where there is more than one priority
SOURCES = 13  # digest of the sources that the replay was compiled from
COUNTERS = 14


class ReplayState(NamedTuple):
    """The arrays that a replay of T tasks on R resources with U uses reads and writes."""

    task: Records
    """Records ``TASK``, shape (T,)."""
    use: Records
    """Records ``USE``, shape (U,), task after task."""
    use_start: Ints
    """First use of each task, shape (T + 1,)."""
    resource: Records
    """Records ``RESOURCE``, shape (R,)."""
    slot_start: Ints
    """First slot of each resource in ``users`` and ``queue``, shape (R + 1,)."""
    users: Indices
    """Uses by the activities that work, in the first slots of each resource."""
    queue: Ints
    """Heap of the tasks that wait for each exclusive resource, in its first slots: instants of readiness and tasks."""
    dependent_start: Ints
    """First entry of each task in ``dependent``, shape (T + 1,)."""
    dependent: Indices
    """Tasks that wait for each task."""
    heap: Records
    """Heap of events by time, records ``ENTRY``."""
    levels: Records
    """Heap of the resources being solved by the rate at which they are full, records ``ENTRY``."""
    ended: Ints
    """Tasks that ended at this instant."""
    begun: Ints
    """Tasks that began to work at this instant."""
    touched: Ints
    """Resources whose users changed at this instant."""
    offered: Ints
    """Exclusive resources that may have to be handed over at this instant."""
    flows: Ints
    """Activities whose rates are solved at this instant."""
    links: Ints
    """Binding resources of these activities."""
    counts: Ints
    """Counters ``HEAP`` ... ``SOURCES``, shape (COUNTERS,)."""
    timer_s: Floats
    """Time of the last timer of this instant, shape (1,)."""
    ready_s: Floats
    """Result, seconds, shape (T,), as the next two: when each task was ready."""
    start_s: Floats
    """Start of the work of each task."""
    end_s: Floats
    """End of each task."""
