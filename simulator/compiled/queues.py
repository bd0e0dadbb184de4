"""Queues of the tasks that wait for exclusive resources: heaps in order of readiness, then of task id."""

from simulator.compiled.jit import compiled
from simulator.compiled.state import ReplayState

_INSTANT = 1 << 31
"""An entry is the instant at which the task became ready, times this, plus the task: the earlier is the smaller."""


@compiled
def enqueue(state: ReplayState, r: int, i: int) -> None:
    """Put task ``i`` into the queue of resource ``r``."""
    first, at, entry = state.slot_start[r], state.resource[r].waiters, state.task[i].instant * _INSTANT + i
    state.resource[r].waiters = at + 1
    while at > 0:
        above = (at - 1) >> 1
        if state.queue[first + above] < entry:
            break
        state.queue[first + at] = state.queue[first + above]
        at = above
    state.queue[first + at] = entry


@compiled
def dequeue(state: ReplayState, r: int) -> int:
    """Take the task that was ready first out of the queue of resource ``r``, and return it."""
    first, size = state.slot_start[r], state.resource[r].waiters - 1
    state.resource[r].waiters = size
    found, entry = state.queue[first], state.queue[first + size]
    at, below = 0, 1
    while below < size:
        if below + 1 < size and state.queue[first + below + 1] < state.queue[first + below]:
            below += 1
        if entry < state.queue[first + below]:
            break
        state.queue[first + at] = state.queue[first + below]
        at, below = below, 2 * below + 1
    state.queue[first + at] = entry
    return int(found % _INSTANT)
