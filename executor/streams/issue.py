"""What a host issues, in order: each task with its stream, the events that it waits for, and whether it records one."""

import heapq
from dataclasses import dataclass

import numpy as np

from planner.lowering import Program
from studies.streams import StreamPlan

__all__ = ["Issued", "issue", "stream_priorities"]


@dataclass(frozen=True, slots=True)
class Issued:
    """One task on its way to a device."""

    task: int
    stream: int
    waits: tuple[int, ...]
    """Tasks of other streams whose events it waits for."""
    records: bool
    """Whether tasks of other streams wait for it."""


def issue(program: Program, plan: StreamPlan) -> list[Issued]:
    """The order of issue: as soon as all that a task waits for is issued, higher priorities first, then program order.

    Tasks without a stream go where what they wait for was issued last.  Streams keep the order of issue.  An event is
    waited for only where the stream has not waited for a later one of the same stream already.
    """
    before = _before(program, plan)
    waits, readers = [len(row) for row in before], [list[int]() for _ in before]
    for task, row in enumerate(before):
        for early in row:
            readers[early].append(task)
    ready = [(-int(plan.priority[task]), task) for task, count in enumerate(waits) if count == 0]
    heapq.heapify(ready)
    found: list[tuple[int, int, list[int]]] = []
    place, stream_of = np.full(program.size, -1), np.full(program.size, -1)
    seen: dict[tuple[int, int], int] = {}  # by waiting stream and other stream, the last place waited for
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
        place[task], stream_of[task] = len(found), stream
        found.append((task, stream, needed))
        for reader in readers[task]:
            waits[reader] -= 1
            if waits[reader] == 0:
                heapq.heappush(ready, (-int(plan.priority[reader]), reader))
    recorded = {early for _, _, row in found for early in row}
    return [Issued(task, stream, tuple(row), task in recorded) for task, stream, row in found]


def _before(program: Program, plan: StreamPlan) -> list[list[int]]:
    """What each task waits for: its dependencies, and the plan's order."""
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
    """Hardware priority of each stream; of CUDA the lower number is served first.

    Args:
        plan: A stream has the highest priority of its tasks.
        least, greatest: The device's range, such as 0 and -5.  With fewer levels than the plan has, the highest of the
            plan gets the greatest, the next ones the next, and all that is left the least.
    """
    ranks = [int(plan.priority[plan.shown == stream].max()) for stream in range(plan.streams)]
    levels = sorted(set(ranks), reverse=True)
    return [min(greatest + levels.index(rank), least) if len(levels) > 1 else least for rank in ranks]
