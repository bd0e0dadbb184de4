"""Launch order of tasks on a host: each with its stream, the events that it waits for, and whether it records one."""

import heapq
from dataclasses import dataclass

import numpy as np

from planner.lowering.program import Program
from studies.streams.stream_plan import StreamPlan


@dataclass(frozen=True, slots=True)
class IssuedTask:
    """Task with its stream and the events around it."""

    task: int
    stream: int
    waits: tuple[int, ...]
    """Tasks of other streams whose events it waits for."""
    records: bool
    """True where tasks of other streams wait for it."""


def issued_tasks(program: Program, plan: StreamPlan) -> list[IssuedTask]:
    """Return the tasks in the order of issue: those whose dependencies are issued, by priority, then in program order.

    Tasks without a stream take the stream of the dependency that was issued last.  Streams keep the order of issue.
    An event is waited for only where the stream has not yet waited for a later one of the same stream::

        stream 0:  a b c          d waits for b, then e for a: the wait for a is left out,
        stream 1:  d(b) e(a)      because a comes before b on stream 0

    Args:
        program: Decomposed program of one device.
        plan: Streams, priorities and additional order.
    """
    before = _before(program, plan)
    waits, readers = [len(row) for row in before], [list[int]() for _ in before]
    for task, row in enumerate(before):
        for early in row:
            readers[early].append(task)
    ready = [(-int(plan.priority[task]), task) for task, count in enumerate(waits) if count == 0]
    heapq.heapify(ready)
    issued: list[tuple[int, int, list[int]]] = []
    place, stream_of = np.full(program.size, -1), np.full(program.size, -1)
    seen: dict[tuple[int, int], int] = {}  # last place waited for, by waiting stream and other stream
    while ready:
        _, task = heapq.heappop(ready)
        row = sorted(before[task], key=lambda early: -place[early])
        stream = int(plan.shown[task]) if plan.shown[task] >= 0 else (int(stream_of[row[0]]) if row else 0)
        needed = []
        for early in row:
            key = stream, int(stream_of[early])
            if key[0] != key[1] and place[early] > seen.get(key, -1):
                seen[key] = int(place[early])
                needed.append(early)
        place[task], stream_of[task] = len(issued), stream
        issued.append((task, stream, needed))
        for reader in readers[task]:
            waits[reader] -= 1
            if waits[reader] == 0:
                heapq.heappush(ready, (-int(plan.priority[reader]), reader))
    recorded = {early for _, _, row in issued for early in row}
    return [IssuedTask(task, stream, tuple(row), task in recorded) for task, stream, row in issued]


def _before(program: Program, plan: StreamPlan) -> list[list[int]]:
    """Return the tasks that each task waits for: its dependencies, and those before it by the plan's order."""
    late = program.waiting
    pairs = np.unique(np.concatenate([np.column_stack([late, program.after]), plan.order]), axis=0)
    rows: list[list[int]] = [[] for _ in range(program.size)]
    for task, early in pairs.tolist():
        rows[task].append(early)
    last: dict[int, int] = {}
    for task, stream in enumerate(plan.stream.tolist()):  # streams run in program order
        if stream >= 0:
            if stream in last and last[stream] not in rows[task]:
                rows[task].append(last[stream])
            last[stream] = task
    return rows


def stream_priorities(plan: StreamPlan, *, least: int, greatest: int) -> list[int]:
    """Return the hardware priority of each stream; CUDA serves the lower number first.

    With fewer levels than the plan has, the highest priority of the plan gets the greatest, the next ones the next,
    and all others the least.

    Args:
        plan: Plan, in which a stream has the highest priority of its tasks.
        least: Least priority of the device, such as 0.
        greatest: Greatest priority of the device, such as -5.
    """
    ranks = [int(plan.priority[plan.shown == stream].max()) for stream in range(plan.streams)]
    levels = sorted(set(ranks), reverse=True)
    return [min(greatest + levels.index(rank), least) if len(levels) > 1 else least for rank in ranks]
