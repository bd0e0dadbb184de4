"""The event loop: at each instant all due events run, then resources are handed over and shared, once."""

from simulator.compiled.activities import become_ready, dependencies_met, end_latency, finish_work
from simulator.compiled.fairness import update_rates
from simulator.compiled.heap import is_live, pop
from simulator.compiled.jit import CompiledKernel, compiled, saved
from simulator.compiled.ports import hand_over
from simulator.compiled.state import (
    BEGUN,
    EARLIEST,
    ENDED,
    FINISHED,
    HEAP,
    INSTANT,
    LATENCY,
    OFFERED,
    SOURCES,
    TIMER,
    TOUCHED,
    ReplayState,
    int64,
)
from simulator.graph.sharing import TOLERANCE


@compiled
def _run_due(state: ReplayState, now: float, limit: float) -> None:
    """Run all events that are due by ``limit``, but for those that follow from them."""
    count = state.counts
    ready = int64(-1)
    while count[HEAP] > 0 and state.heap[0].key <= limit:
        live, serial, i = is_live(state, 0), state.heap[0].serial, state.heap[0].item
        pop(state.heap, count[HEAP])
        count[HEAP] -= 1
        while live and i >= 0:
            following = state.task[i].chain if serial < 0 else -1
            if serial == LATENCY:
                end_latency(state, i, now)
            elif serial == EARLIEST:
                state.task[i].chain, ready = ready, i
            else:
                finish_work(state, i, now)
            i = following
    # Last, because they set timers: a latency that ends within the limit belongs to the next instant.
    while ready >= 0:
        i, ready = ready, state.task[ready].chain
        become_ready(state, i, now)


@compiled
def _settle(state: ReplayState, now: float, limit: float) -> None:
    """Follow every end of a task to its last consequence, then hand over exclusive resources and update rates, once."""
    count = state.counts
    at = 0
    while at < count[ENDED]:
        i = state.ended[at]
        at += 1
        for d in range(state.dependent_start[i], state.dependent_start[i + 1]):
            _drop_dependency(state, int64(state.dependent[d]), now, limit)
        if state.task[i].follower >= 0:
            _drop_dependency(state, state.task[i].follower, now, limit)
    hand_over(state, now)
    update_rates(state, now)
    count[FINISHED] += at


@compiled
def _drop_dependency(state: ReplayState, i: int, now: float, limit: float) -> None:
    """Count one task less that task ``i`` waits for."""
    state.task[i].missing -= 1
    if state.task[i].missing == 0:
        dependencies_met(state, i, now, limit)


def replay_of(sources: int) -> CompiledKernel:
    """Return the replay, which is called until it returns False, and writes the times of its state.

    Args:
        sources: Digest of all source files that are compiled.  The replay closes over it, so that numba, which
            compares only the file and the closure of what it saved, compiles again when another of them changes.
    """

    @saved
    def replay(state: ReplayState, most: int) -> bool:
        """Replay until ``most`` more tasks of the graph of ``state`` have ended; return whether events are left."""
        count = state.counts
        if count[INSTANT] == 0:
            count[TIMER], count[SOURCES] = -1, sources
            for i in range(len(state.task)):
                if state.task[i].missing == 0:
                    dependencies_met(state, i, 0.0, 0.0)
            _settle(state, 0.0, 0.0)
        enough = count[FINISHED] + most
        while count[HEAP] > 0 and count[FINISHED] < enough:
            if not is_live(state, 0):  # stale: the rate of its activity has changed since
                pop(state.heap, count[HEAP])
                count[HEAP] -= 1
                continue
            now = state.heap[0].key
            count[INSTANT] += 1
            count[ENDED] = count[BEGUN] = count[TOUCHED] = count[OFFERED] = 0
            count[TIMER] = -1
            limit = now * (1.0 + TOLERANCE)
            _run_due(state, now, limit)
            _settle(state, now, limit)
        return bool(count[HEAP] > 0)

    return replay
