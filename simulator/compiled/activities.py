"""The states of an activity: its task becomes ready, its latency passes, it starts, works and finishes.

Each transition notes what it changes for others, in lists that the end of the instant works off: resources whose
users change (``touched``), and exclusive resources that may be handed over (``offered``).
"""

from simulator.compiled.heap import post
from simulator.compiled.jit import compiled
from simulator.compiled.queues import enqueue
from simulator.compiled.state import (
    BEGUN,
    EARLIEST,
    ENDED,
    INSTANT,
    LATENCY,
    OFFERED,
    TIMER,
    TOUCHED,
    ReplayState,
    int64,
)


@compiled
def dependencies_met(state: ReplayState, i: int, now: float, limit: float) -> None:
    """Make task ``i``, whose dependencies have all ended, ready now or at its earliest start."""
    if state.task[i].earliest_s > limit:
        state.task[i].chain = -1
        post(state, state.task[i].earliest_s, i, EARLIEST)
    else:
        become_ready(state, i, now)


@compiled
def become_ready(state: ReplayState, i: int, now: float) -> None:
    """Make task ``i`` ready and start its latency.

    Timers set at one instant for one time share an entry of the heap: their tasks form a chain.
    """
    task, count = state.task[i], state.counts
    ready_s = max(now, task.earliest_s)
    state.ready_s[i] = ready_s
    task.instant = count[INSTANT]
    if task.latency_s == 0.0:
        end_latency(state, i, now)
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
def end_latency(state: ReplayState, i: int, now: float) -> None:
    """End the latency of task ``i``: it begins to work, or queues for its exclusive resources."""
    task = state.task[i]
    if task.work == 0.0:
        state.start_s[i] = now
        _end_task(state, i, now)
    elif task.ports == 0:
        begin_work(state, i, now)
    else:
        _wait_for_ports(state, i)


@compiled
def _wait_for_ports(state: ReplayState, i: int) -> None:
    """Put task ``i`` into the queue of one of its exclusive resources: one that is in use, if there is any."""
    port = int64(-1)
    for u in range(state.use_start[i], state.use_start[i + 1]):
        r = int64(state.use[u].resource)
        if state.resource[r].exclusive and (port < 0 or state.resource[r].users > 0):
            port = r
    enqueue(state, port, i)
    if state.resource[port].users == 0:
        _offer(state, port)


@compiled
def _offer(state: ReplayState, r: int) -> None:
    """Note that an exclusive resource may have to be handed over at this instant, once an instant."""
    if state.resource[r].offered != state.counts[INSTANT]:
        state.resource[r].offered = state.counts[INSTANT]
        state.offered[state.counts[OFFERED]] = r
        state.counts[OFFERED] += 1


@compiled
def _touch(state: ReplayState, r: int) -> None:
    """Note that the users of a resource change at this instant, so that the rates of others may change."""
    if state.resource[r].touched != state.counts[INSTANT]:
        state.resource[r].touched = state.counts[INSTANT]
        state.touched[state.counts[TOUCHED]] = r
        state.counts[TOUCHED] += 1


@compiled
def begin_work(state: ReplayState, i: int, now: float) -> None:
    """Begin the work of task ``i``: enter it among the users of its resources."""
    state.start_s[i] = now
    task = state.task[i]
    task.rate, task.remaining, task.since_s = 0.0, task.work, now
    for u in range(state.use_start[i], state.use_start[i + 1]):
        r = int64(state.use[u].resource)
        users = state.resource[r].users
        state.users[state.slot_start[r] + users] = u
        state.use[u].slot = users
        state.resource[r].users = users + 1
        if users > 0:  # a single user is limited by its own rate, not by others
            _touch(state, r)
    state.begun[state.counts[BEGUN]] = i
    state.counts[BEGUN] += 1


@compiled
def _end_task(state: ReplayState, i: int, now: float) -> None:
    """Note the end of task ``i``, whose dependents the event loop then looks at."""
    state.end_s[i] = now
    state.ended[state.counts[ENDED]] = i
    state.counts[ENDED] += 1


@compiled
def finish_work(state: ReplayState, i: int, now: float) -> None:
    """Finish the work of task ``i``: remove it from the users of its resources and end it."""
    state.task[i].serial = 0
    for u in range(state.use_start[i], state.use_start[i + 1]):
        r = int64(state.use[u].resource)
        users = state.resource[r].users - 1
        state.resource[r].users = users
        # The last user of the resource moves into the slot that becomes free, so that slots stay contiguous.
        last = state.users[state.slot_start[r] + users]
        slot = state.use[u].slot
        state.users[state.slot_start[r] + slot] = last
        state.use[last].slot = slot
        if state.resource[r].binds:
            _touch(state, r)
        if state.resource[r].exclusive and state.resource[r].waiters > 0:
            _offer(state, r)
    _end_task(state, i, now)
