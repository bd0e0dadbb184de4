"""The event loop: instant after instant, all that is due happens, then resources are handed over and shared, once."""

from collections.abc import Callable

from simulator.compiled.activities import arrive, finish, ready, start
from simulator.compiled.fairness import share
from simulator.compiled.heap import is_live, pop
from simulator.compiled.jit import compiled, saved
from simulator.compiled.ports import hand_over
from simulator.compiled.state import (
    ASKED,
    BEGUN,
    EARLIEST,
    ENDED,
    FINISHED,
    HEAP,
    INSTANT,
    LATENCY,
    SOURCES,
    TIMER,
    TOUCHED,
    ReplayState,
)
from simulator.graph import TOLERANCE

__all__ = ["replay_of"]


@compiled
def _wake(state: ReplayState, now: float, limit: float) -> None:
    """Let happen whatever is due by ``limit``."""
    count = state.counts
    while count[HEAP] > 0 and state.heap[0].key <= limit:
        live, serial, i = is_live(state, 0), state.heap[0].serial, state.heap[0].item
        pop(state.heap, count[HEAP])
        count[HEAP] -= 1
        while live and i >= 0:
            following = state.task[i].chain if serial < 0 else -1
            if serial == LATENCY:
                start(state, i, now)
            elif serial == EARLIEST:
                ready(state, i, now)
            else:
                finish(state, i, now)
            i = following


@compiled
def _settle(state: ReplayState, now: float, limit: float) -> None:
    """Follow every end to its last consequence, then hand over and share, once."""
    count = state.counts
    at = 0
    while at < count[ENDED]:
        i = state.ended[at]
        at += 1
        for d in range(state.dependent_start[i], state.dependent_start[i + 1]):
            _miss_one_less(state, state.dependent[d], now, limit)
        if state.task[i].follower >= 0:
            _miss_one_less(state, state.task[i].follower, now, limit)
    hand_over(state, now)
    share(state, now)
    count[FINISHED] += at


@compiled
def _miss_one_less(state: ReplayState, i: int, now: float, limit: float) -> None:
    state.task[i].missing -= 1
    if state.task[i].missing == 0:
        arrive(state, i, now, limit)


def replay_of(sources: int) -> Callable[[ReplayState], None]:
    """The compiled replay: instant after instant until nothing is left to happen; it writes the times of its state.

    Args:
        sources: A digest of all that compiled code is made of.  The replay closes over it, so that numba, which looks
            only at the file and at the closure of what it saved, compiles again when another file of them changes.
    """

    @saved
    def replay(state: ReplayState) -> None:
        count = state.counts
        count[TIMER], count[SOURCES] = -1, sources
        for i in range(len(state.task)):
            if state.task[i].missing == 0:
                arrive(state, i, 0.0, 0.0)
        _settle(state, 0.0, 0.0)
        while count[HEAP] > 0:
            if not is_live(state, 0):
                pop(state.heap, count[HEAP])
                count[HEAP] -= 1
                continue
            now = state.heap[0].key
            count[INSTANT] += 1
            count[ENDED] = count[BEGUN] = count[TOUCHED] = count[ASKED] = 0
            count[TIMER] = -1
            limit = now * (1.0 + TOLERANCE)
            _wake(state, now, limit)
            _settle(state, now, limit)

    return replay
