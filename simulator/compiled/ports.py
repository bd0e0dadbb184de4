"""Exclusive resources (ports): the activities that wait for them, served in order of readiness."""

from simulator.compiled.activities import begin_work
from simulator.compiled.jit import compiled
from simulator.compiled.state import OFFERED, ReplayState

__all__ = ["hand_over"]

_SERVED = -1
"""Mark in place of the number of ports of a task that no longer waits for them."""


@compiled
def _may_begin(state: ReplayState, i: int) -> bool:
    """Return whether all exclusive resources of task ``i`` are free."""
    for u in range(state.use_start[i], state.use_start[i + 1]):
        r = state.use[u].resource
        if state.resource[r].exclusive and state.resource[r].users > 0:
            return False
    return True


@compiled
def _earlier(state: ReplayState, i: int, j: int) -> bool:
    """Return whether task ``i`` became ready before ``j``; at one instant the smaller id is the earlier."""
    first, second = state.task[i].instant, state.task[j].instant
    return first < second or (first == second and i < j)


@compiled
def _find_next(state: ReplayState, r: int) -> None:
    """Note the earliest task that waits for a free resource and may begin; drop tasks that no longer wait."""
    resource, first = state.resource[r], state.slot_start[r]
    resource.next, k = -1, 0
    while k < resource.waiters and resource.users == 0:
        i = state.queue[first + k]
        if state.task[i].ports == _SERVED:
            resource.waiters -= 1
            state.queue[first + k] = state.queue[first + resource.waiters]
            continue
        if (resource.next < 0 or _earlier(state, i, resource.next)) and _may_begin(state, i):
            resource.next = i
        k += 1


@compiled
def hand_over(state: ReplayState, now: float) -> None:
    """Begin, in order of readiness, every waiting task whose exclusive resources are all free."""
    for k in range(state.counts[OFFERED]):
        _find_next(state, state.offered[k])
    while True:
        best = -1
        for k in range(state.counts[OFFERED]):
            i = state.resource[state.offered[k]].next
            if i >= 0 and (best < 0 or _earlier(state, i, best)):
                best = i
        if best < 0:
            return
        state.task[best].ports = _SERVED
        begin_work(state, best, now)
        for k in range(state.counts[OFFERED]):
            r = state.offered[k]
            i = state.resource[r].next
            if i >= 0 and not _may_begin(state, i):
                _find_next(state, r)
