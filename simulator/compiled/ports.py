"""Exclusive resources: who waits for them, and who gets them, in order of readiness."""

from simulator.compiled.activities import begin
from simulator.compiled.jit import compiled
from simulator.compiled.state import ASKED, ReplayState

__all__ = ["hand_over"]

_SERVED = -1  # in place of the number of ports: the wait for them is over


@compiled
def _may_begin(state: ReplayState, i: int) -> bool:
    """Whether all exclusive resources of task ``i`` are free."""
    for u in range(state.use_start[i], state.use_start[i + 1]):
        r = state.use[u].resource
        if state.resource[r].exclusive and state.resource[r].users > 0:
            return False
    return True


@compiled
def _earlier(state: ReplayState, i: int, j: int) -> bool:
    """Whether task ``i`` became ready before ``j``; at one instant the smaller id is the earlier."""
    first, second = state.task[i].instant, state.task[j].instant
    return first < second or (first == second and i < j)


@compiled
def _find_next(state: ReplayState, r: int) -> None:
    """Note the earliest that waits for a free resource and may begin; drop who has begun elsewhere."""
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
    """Let begin, in order of readiness, whoever finds all its exclusive resources free."""
    for k in range(state.counts[ASKED]):
        _find_next(state, state.asked[k])
    while True:
        best = -1
        for k in range(state.counts[ASKED]):
            i = state.resource[state.asked[k]].next
            if i >= 0 and (best < 0 or _earlier(state, i, best)):
                best = i
        if best < 0:
            return
        state.task[best].ports = _SERVED
        begin(state, best, now)
        for k in range(state.counts[ASKED]):
            r = state.asked[k]
            i = state.resource[r].next
            if i >= 0 and not _may_begin(state, i):
                _find_next(state, r)
