"""Exclusive resources (ports): the activities that wait for them, served in order of readiness.

A waiting task is in the queue of one of its ports, which is in use.  Only when that one is free again is the task
looked at, in its turn: it begins, or goes on to the queue of another of its ports that is in use.  So a task that waits
is looked at a few times, however many ports are handed over meanwhile::

    b waits for ports 0 and 1     in the queue of port 0, which is in use by a
    a ends                        b is looked at: port 1 is in use, so b goes to its queue
    port 1 is free                b begins

The queues are heaps, ordered by readiness.
"""

from simulator.compiled.activities import begin_work
from simulator.compiled.jit import compiled
from simulator.compiled.queues import dequeue, enqueue
from simulator.compiled.state import OFFERED, ReplayState


@compiled
def _port_in_use(state: ReplayState, i: int) -> int:
    """Return an exclusive resource of task ``i`` that is in use, or -1."""
    for u in range(state.use_start[i], state.use_start[i + 1]):
        r = state.use[u].resource
        if state.resource[r].exclusive and state.resource[r].users > 0:
            return int(r)
    return -1


@compiled
def hand_over(state: ReplayState, now: float) -> None:
    """Begin, in order of readiness, every waiting task whose exclusive resources are all free."""
    offered = state.counts[OFFERED]
    while offered > 0:
        # The task that was ready first among all that wait for a free port.  A port that is in use again, or for
        # which no task waits, is not looked at again: no port becomes free before the next instant.
        best, k = -1, 0
        while k < offered:
            r = state.offered[k]
            if state.resource[r].users > 0 or state.resource[r].waiters == 0:
                offered -= 1
                state.offered[k] = state.offered[offered]
                continue
            if best < 0 or state.queue[state.slot_start[r]] < state.queue[state.slot_start[best]]:
                best = r
            k += 1
        if best < 0:
            return
        i = dequeue(state, best)
        other = _port_in_use(state, i)
        if other < 0:
            begin_work(state, i, now)
        else:
            enqueue(state, other, i)
