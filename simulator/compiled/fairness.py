"""Which rates a change reaches, and the new ones taking effect.

A resource *binds* when its users, each at the rate that it would have alone, ask for more than its capacity.  Only
binding resources couple activities; everything else runs at its rate alone.
"""

import numpy as np

from simulator.compiled.filling import solve
from simulator.compiled.heap import post
from simulator.compiled.jit import compiled
from simulator.compiled.state import BEGUN, FLOWS, INSTANT, LINKS, MIXED, SERIAL, TOUCHED, ReplayState
from simulator.graph import TOLERANCE

__all__ = ["share"]

_ROUNDS = 6  # after which everything joined to a change is solved


@compiled
def _bind(state: ReplayState) -> None:
    """Find out which of the touched resources bind now; who was held by one of them is to be solved."""
    for k in range(state.counts[TOUCHED]):
        r = state.touched[k]
        wanted, bound = 0.0, state.resource[r].binds
        first = state.slot_start[r]
        last = first + state.resource[r].users
        for slot in range(first, last):
            use = state.use[state.users[slot]]
            wanted += use.weight * state.task[use.task].alone
            if bound and state.task[use.task].bottleneck == r:
                _include(state, use.task)
        state.resource[r].binds = wanted > state.resource[r].capacity * (1.0 + TOLERANCE)


@compiled
def _include(state: ReplayState, i: int) -> None:
    """Take a task among those to be solved at this instant."""
    if state.task[i].solved != state.counts[INSTANT]:
        state.task[i].solved = state.counts[INSTANT]
        state.flows[state.counts[FLOWS]] = i
        state.counts[FLOWS] += 1


@compiled
def _include_joined(state: ReplayState) -> None:
    """Include whoever is joined to the included through binding resources."""
    at = 0
    while at < state.counts[FLOWS]:
        i = state.flows[at]
        at += 1
        for u in range(state.use_start[i], state.use_start[i + 1]):
            r = state.use[u].resource
            if state.resource[r].binds:
                first = state.slot_start[r]
                for slot in range(first, first + state.resource[r].users):
                    _include(state, state.use[state.users[slot]].task)


@compiled
def share(state: ReplayState, now: float) -> None:
    """Solve whatever changed at this instant.

    The rates of the included are max-min fair in what the others leave.  Where that makes one of the
    others' rates unfair, or theirs one of the included's, those others are included too, and so on:
    in the end every activity has a bottleneck, which proves the rates max-min fair for all.
    """
    count = state.counts
    count[FLOWS] = 0
    _bind(state)
    for k in range(count[BEGUN]):
        _include(state, state.begun[k])
    solved, rounds = 0, 0
    while count[FLOWS] > solved:
        if rounds == _ROUNDS or count[MIXED]:
            _include_joined(state)
        solved = count[FLOWS]
        rounds += 1
        solve(state)
        if rounds <= _ROUNDS and not count[MIXED]:
            for k in range(count[LINKS]):
                _include_unfair(state, state.links[k])
    _schedule(state, now)


@compiled
def _include_unfair(state: ReplayState, r: int) -> None:
    """Include the users of a resource that its new rates are unfair to, or that are unfair to them."""
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
        i = state.use[state.users[slot]].task
        task = state.task[i]
        if task.solved != state.counts[INSTANT]:
            could_rise = task.bottleneck == r and (not full or task.rate * (1.0 + TOLERANCE) < highest)
            if could_rise or task.rate > held * (1.0 + TOLERANCE):
                _include(state, i)


@compiled
def _schedule(state: ReplayState, now: float) -> None:
    """Give the included their new rates; who keeps its rate keeps its end."""
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
