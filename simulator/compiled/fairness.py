"""Incremental fair sharing: the rates that a change affects, and their update.

A resource *binds* when its users, each at the rate that it would have alone, need more than its capacity.  Only
binding resources couple activities; every other activity runs at its rate alone.
"""

import numpy as np

from simulator.compiled.filling import solve_rates
from simulator.compiled.heap import post
from simulator.compiled.jit import compiled
from simulator.compiled.state import BEGUN, FLOWS, INSTANT, LINKS, MIXED, SERIAL, TOUCHED, ReplayState, int64
from simulator.graph.sharing import TOLERANCE

_ROUNDS = 6
"""Solutions of a growing set of activities before everything that is coupled to a change is solved."""


@compiled
def _update_binding(state: ReplayState) -> None:
    """Update which of the touched resources bind; include the activities whose rate one of them limited."""
    for k in range(state.counts[TOUCHED]):
        r = state.touched[k]
        wanted, bound = 0.0, state.resource[r].binds
        first = state.slot_start[r]
        last = first + state.resource[r].users
        for slot in range(first, last):
            use = state.use[state.users[slot]]
            wanted += use.weight * state.task[use.task].alone
            if bound and state.task[use.task].bottleneck == r:
                _include(state, int64(use.task))
        state.resource[r].binds = wanted > state.resource[r].capacity * (1.0 + TOLERANCE)


@compiled
def _include(state: ReplayState, i: int) -> None:
    """Include task ``i`` among those whose rates are solved at this instant, once."""
    if state.task[i].solved != state.counts[INSTANT]:
        state.task[i].solved = state.counts[INSTANT]
        state.flows[state.counts[FLOWS]] = i
        state.counts[FLOWS] += 1


@compiled
def _include_joined(state: ReplayState) -> None:
    """Include all activities that are coupled to the included ones through binding resources."""
    at = 0
    while at < state.counts[FLOWS]:
        i = state.flows[at]
        at += 1
        for u in range(state.use_start[i], state.use_start[i + 1]):
            r = state.use[u].resource
            if state.resource[r].binds:
                first = state.slot_start[r]
                for slot in range(first, first + state.resource[r].users):
                    _include(state, int64(state.use[state.users[slot]].task))


@compiled
def update_rates(state: ReplayState, now: float) -> None:
    """Solve the rates that the changes of this instant affect.

    The rates of the included activities are max-min fair in what the others leave.  Where that makes one of the
    others' rates unfair, or theirs one of the included's, those others are included too, and so on:
    in the end every activity has a bottleneck, which proves the rates max-min fair for all.

    Source:
        Bertsekas and Gallager, "Data Networks", 2nd ed., Sec. 6.5.2: rates are max-min fair if and only if every
        flow has a bottleneck.
    """
    count = state.counts
    count[FLOWS] = 0
    _update_binding(state)
    for k in range(count[BEGUN]):
        _include(state, state.begun[k])
    solved, rounds = 0, 0
    while count[FLOWS] > solved:
        if rounds == _ROUNDS or count[MIXED]:
            _include_joined(state)
        solved = count[FLOWS]
        rounds += 1
        solve_rates(state)
        if rounds <= _ROUNDS and not count[MIXED]:
            for k in range(count[LINKS]):
                _include_unfair(state, state.links[k])
    _apply_rates(state, now)


@compiled
def _include_unfair(state: ReplayState, r: int) -> None:
    """Include those users of a resource whose rate is unfair beside the newly solved ones, in either direction."""
    resource, first = state.resource[r], state.slot_start[r]
    last = first + resource.users
    highest, held = 0.0, np.inf
    for slot in range(first, last):
        task = state.task[state.use[state.users[slot]].task]
        if task.solved == state.counts[INSTANT]:
            highest = max(highest, task.share)
            if task.bottleneck == r:
                held = task.share
    full = resource.free <= TOLERANCE * resource.capacity
    for slot in range(first, last):
        i = int64(state.use[state.users[slot]].task)
        task = state.task[i]
        if task.solved != state.counts[INSTANT]:
            # Too slow: its bottleneck has room, or gives others more.  Too fast: it exceeds those that r limits.
            could_rise = task.bottleneck == r and (not full or task.rate * (1.0 + TOLERANCE) < highest)
            if could_rise or task.rate > held * (1.0 + TOLERANCE):
                _include(state, i)


@compiled
def _apply_rates(state: ReplayState, now: float) -> None:
    """Give the included activities their new rates; one that keeps its rate keeps its event."""
    count = state.counts
    for i in state.flows[: count[FLOWS]]:
        task = state.task[i]
        if task.share == task.rate:
            continue
        task.remaining -= task.rate * (now - task.since_s)
        task.since_s, task.rate = now, task.share
        count[SERIAL] += 1
        task.serial = count[SERIAL]  # any earlier event is stale
        if task.remaining <= 0.0:
            post(state, now, i, task.serial)
        elif task.rate > 0.0:
            post(state, now + task.remaining / task.rate, i, task.serial)
