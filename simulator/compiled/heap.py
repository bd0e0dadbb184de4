"""Binary heaps of records ordered by key, then by item: events by time, and resources by the level that fills them.

An event that no longer holds stays in the heap; its serial number shows that it is stale.
"""

from simulator.compiled.jit import compiled
from simulator.compiled.state import HEAP, Records, ReplayState, int64


@compiled
def push(heap: Records, size: int, key: float, item: int, serial: int) -> None:
    """Put an entry on a heap of ``size`` entries, ordered by key, then item."""
    at = size
    while at > 0:
        above = (at - 1) >> 1
        if heap[above].key < key or (heap[above].key == key and heap[above].item <= item):
            break
        heap[at] = heap[above]
        at = above
    heap[at].key = key
    heap[at].item = item
    heap[at].serial = serial


@compiled
def pop(heap: Records, size: int) -> None:
    """Drop the first of the ``size`` entries of a heap."""
    last = size - 1
    key, item = heap[last].key, heap[last].item
    at = 0
    while True:
        below = 2 * at + 1
        if below >= last:
            break
        right = below + 1
        if right < last and (
            heap[right].key < heap[below].key
            or (heap[right].key == heap[below].key and heap[right].item < heap[below].item)
        ):
            below = right
        if heap[below].key > key or (heap[below].key == key and heap[below].item >= item):
            break
        heap[at] = heap[below]
        at = below
    heap[at] = heap[last]


@compiled
def is_live(state: ReplayState, at: int) -> bool:
    """Return whether an event holds: it is a timer, or belongs to the last rate of its activity."""
    serial = state.heap[at].serial
    return bool(serial < 0 or state.task[state.heap[at].item].serial == serial)


@compiled
def post(state: ReplayState, time_s: float, task: int, serial: int) -> None:
    """Put an event on the heap; where the heap is full, most events are stale and are removed first."""
    count = state.counts
    if count[HEAP] == len(state.heap):
        kept = int64(0)
        for at in range(count[HEAP]):
            if is_live(state, at):
                key, item, old = state.heap[at].key, state.heap[at].item, state.heap[at].serial
                push(state.heap, kept, key, item, old)
                kept += 1
        count[HEAP] = kept
    push(state.heap, count[HEAP], time_s, task, serial)
    count[HEAP] += 1
