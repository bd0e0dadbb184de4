"""Everything that a replay reads and writes, as arrays: records of tasks, resources and uses, lists and counters."""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hwprofiles import Floats, Ints

__all__ = [
    "ASKED",
    "BEGUN",
    "COUNTERS",
    "EARLIEST",
    "ENDED",
    "ENTRY",
    "FINISHED",
    "FLOWS",
    "HEAP",
    "INSTANT",
    "LATENCY",
    "LINKS",
    "MIXED",
    "RESOURCE",
    "SERIAL",
    "SOLUTION",
    "SOURCES",
    "TASK",
    "TIMER",
    "TOUCHED",
    "USE",
    "Indices",
    "Records",
    "ReplayState",
]

Records = Any  # structured arrays, whose fields the compiler reads as attributes
Indices = NDArray[np.int32]

TASK = np.dtype(
    [
        ("work", "f8"),
        ("latency_s", "f8"),
        ("earliest_s", "f8"),
        ("alone", "f8"),  # rate when nobody else uses its resources
        ("rate", "f8"),
        ("remaining", "f8"),  # work that remained at since_s
        ("since_s", "f8"),
        ("share", "f8"),  # rate being solved, or a mark of ``filling``
        ("serial", "i8"),  # of its rate
        ("priority", "i8"),
        ("missing", "i4"),  # tasks that it still waits for
        ("chain", "i4"),  # next timer of the same heap entry, or -1
        ("follower", "i4"),  # next task of its stream, or -1
        ("instant", "i4"),  # at which it became ready
        ("solved", "i4"),  # instant of its last solution
        ("bottleneck", "i4"),  # binding resource that holds its rate, or -1
        ("ports", "i4"),  # number of its exclusive resources
    ],
    align=True,
)
RESOURCE = np.dtype(
    [
        ("capacity", "f8"),
        ("free", "f8"),  # what the solved so far leave
        ("weight", "f8"),  # of those whose rates rise
        ("class_weight", "f8"),  # the same when it was last added up
        ("rising", "i4"),
        ("users", "i4"),
        ("waiters", "i4"),
        ("next", "i4"),  # of them, to begin at this instant, or -1
        ("touched", "i4"),  # instants
        ("asked", "i4"),
        ("exclusive", "i4"),
        ("binds", "i4"),
        ("solution", "i8"),
    ],
    align=True,
)
USE = np.dtype([("weight", "f8"), ("resource", "i4"), ("task", "i4"), ("slot", "i4")], align=True)
ENTRY = np.dtype([("key", "f8"), ("serial", "i8"), ("item", "i4")], align=True)  # of a heap

EARLIEST, LATENCY = -1, -2  # serials of timers

# Counters, and where they stand in ``counts``
HEAP, ENDED, BEGUN, TOUCHED, ASKED, FLOWS, LINKS, SOLUTION, SERIAL, INSTANT, TIMER, FINISHED = range(12)
MIXED = 12  # whether there is more than one priority
SOURCES = 13  # by which sources the replay was compiled
COUNTERS = 14


class ReplayState(NamedTuple):
    """Everything that a replay reads and writes."""

    task: Records
    use: Records
    use_start: Ints
    """Uses of each task."""
    resource: Records
    slot_start: Ints
    """First slot of each resource in ``users`` and ``queue``."""
    users: Indices
    """Uses by the activities that work, in the first slots of each resource."""
    queue: Indices
    """Tasks that wait for each exclusive resource, in any order, in its first slots."""
    dependent_start: Ints
    dependent: Indices
    heap: Records
    """Events by time."""
    levels: Records
    """Heap, by the rate at which they fill, of the resources being solved."""
    ended: Indices
    begun: Indices
    touched: Indices
    asked: Indices
    flows: Indices
    links: Indices
    counts: Ints
    timer_s: Floats
    """Shape (1,): time of the last timer of this instant."""
    ready_s: Floats
    start_s: Floats
    end_s: Floats
