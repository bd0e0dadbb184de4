"""The heap of the compiled engine against Python's own."""

import heapq
from types import SimpleNamespace

import numpy as np
from hypothesis import given, strategies as st

from simulator.compiled.heap import pop, post, push
from simulator.compiled.state import ENTRY, HEAP, as_lists

TIES = st.lists(st.tuples(st.sampled_from([0.0, 1.0, 2.0]), st.integers(0, 60)), unique=True, max_size=40)
"""Entries of few keys: items order most of them."""


@given(TIES, st.lists(st.booleans(), min_size=80, max_size=80))
def test_entries_leave_by_key_then_item(entries, pushes):
    heap, oracle, size = as_lists(np.array([(9.0, 9, 9)] * 41, ENTRY)), [], 0
    for wanted in pushes:
        if wanted and entries:
            entry = entries.pop()
            heapq.heappush(oracle, entry)
            push(heap, size, *entry, 10 * entry[1])
            size += 1
        elif oracle:
            assert (heap[0].key, heap[0].item, heap[0].serial) == (*oracle[0], 10 * oracle[0][1])
            heapq.heappop(oracle)
            pop(heap, size)
            size -= 1


@given(TIES.filter(bool), st.sets(st.integers(0, 60)))
def test_a_full_heap_forgets_what_is_stale_and_no_timer(entries, stale):
    """An activity's events before its last rate are stale; serial numbers below zero are those of timers."""
    timers = {item for _, item in entries if item % 3 == 0}
    tasks = [SimpleNamespace(serial=2 if item in stale else 1) for item in range(62)]
    state = SimpleNamespace(heap=as_lists(np.array([(9.0, 9, 9)] * len(entries), ENTRY)), counts={HEAP: 0}, task=tasks)
    for key, item in entries:
        post(state, key, item, -1 if item in timers else 1)
    live = sorted((key, item) for key, item in entries if item in timers or item not in stale)
    if len(live) == len(entries):
        return

    post(state, 1.5, 61, 1)

    left = []
    while state.counts[HEAP]:
        left.append((state.heap[0].key, state.heap[0].item))
        pop(state.heap, state.counts[HEAP])
        state.counts[HEAP] -= 1
    assert left == sorted([*live, (1.5, 61)])
