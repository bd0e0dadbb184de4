"""The life of an activity: its task becomes ready, its latency passes, it starts, works and finishes.

What changes for others is noted: resources whose users change, exclusive resources that may be handed over.
"""

from simulator.compiled.heap import post
from simulator.compiled.jit import compiled
from simulator.compiled.state import ASKED, BEGUN, EARLIEST, ENDED, INSTANT, LATENCY, TIMER, TOUCHED, ReplayState

__all__ = ["arrive", "begin", "finish", "ready", "start"]


@compiled
def arrive(state: ReplayState, i: int, now: float, limit: float) -> None:
    """Nothing is missing for task ``i`` any more, save perhaps its time."""
    if state.task[i].earliest_s > limit:
        state.task[i].chain = -1
        post(state, state.task[i].earliest_s, i, EARLIEST)
    else:
        ready(state, i, now)


@compiled
def ready(state: ReplayState, i: int, now: float) -> None:
    """Task ``i`` becomes ready; timers set at one instant for one time share an entry of the heap."""
    task, count = state.task[i], state.counts
    ready_s = max(now, task.earliest_s)
    state.ready_s[i] = ready_s
    task.instant = count[INSTANT]
    if task.latency_s == 0.0:
        start(state, i, now)
        return
    over_s = ready_s + task.latency_s
    head = count[TIMER]
    if head >= 0 and state.timer_s[0] == over_s:
        task.chain = state.task[head].chain
        state.task[head].chain = i
    else:
        task.chain = -1
        post(state, over_s, i, LATENCY)
        count[TIMER], state.timer_s[0] = i, over_s


@compiled
def start(state: ReplayState, i: int, now: float) -> None:
    """The latency of task ``i`` is over."""
    task = state.task[i]
    if task.work == 0.0:
        state.start_s[i] = now
        _end(state, i, now)
    elif task.ports == 0:
        begin(state, i, now)
    else:
        for u in range(state.use_start[i], state.use_start[i + 1]):
            r = state.use[u].resource
            if state.resource[r].exclusive:
                slot = state.slot_start[r]
                state.queue[slot + state.resource[r].waiters] = i
                state.resource[r].waiters += 1
                _ask(state, r)


@compiled
def _ask(state: ReplayState, r: int) -> None:
    """Note that an exclusive resource may have to be handed over at this instant."""
    if state.resource[r].asked != state.counts[INSTANT]:
        state.resource[r].asked = state.counts[INSTANT]
        state.asked[state.counts[ASKED]] = r
        state.counts[ASKED] += 1


@compiled
def _touch(state: ReplayState, r: int) -> None:
    """Note that the users of a resource change at this instant, in a way that may matter to others."""
    if state.resource[r].touched != state.counts[INSTANT]:
        state.resource[r].touched = state.counts[INSTANT]
        state.touched[state.counts[TOUCHED]] = r
        state.counts[TOUCHED] += 1


@compiled
def begin(state: ReplayState, i: int, now: float) -> None:
    """Task ``i`` begins to work."""
    state.start_s[i] = now
    task = state.task[i]
    task.rate, task.remaining, task.since_s = 0.0, task.work, now
    for u in range(state.use_start[i], state.use_start[i + 1]):
        r = state.use[u].resource
        users = state.resource[r].users
        state.users[state.slot_start[r] + users] = u
        state.use[u].slot = users
        state.resource[r].users = users + 1
        if users > 0:  # alone it is bound by its own rate, not by others
            _touch(state, r)
    state.begun[state.counts[BEGUN]] = i
    state.counts[BEGUN] += 1


@compiled
def _end(state: ReplayState, i: int, now: float) -> None:
    state.end_s[i] = now
    state.ended[state.counts[ENDED]] = i
    state.counts[ENDED] += 1


@compiled
def finish(state: ReplayState, i: int, now: float) -> None:
    """The work of task ``i`` is done."""
    state.task[i].serial = 0
    for u in range(state.use_start[i], state.use_start[i + 1]):
        r = state.use[u].resource
        users = state.resource[r].users - 1
        state.resource[r].users = users
        last = state.users[state.slot_start[r] + users]
        slot = state.use[u].slot
        state.users[state.slot_start[r] + slot] = last
        state.use[last].slot = slot
        if state.resource[r].binds:
            _touch(state, r)
        if state.resource[r].exclusive:
            _ask(state, r)
    _end(state, i, now)
