"""Compiled pricing of transfers between configurations, in bulk.

For one tensor: what it costs to move it from any configuration of its producer to the boxes that any
configuration of a consumer needs.  All messages of one direction start together and meet nobody else; the
busiest link and the longest latency decide.

A message is the overlap of a producer's part and a box.  Only messages inside one block of devices are visited;
what crosses between blocks is the rest, device by device (``planner.route_levels``), which is exact because
elements are whole numbers.  For its latency a few messages suffice: the search stops at the longest possible.
"""

from typing import Any

import numpy as np
from numba import njit

__all__ = ["price_pairs"]


@njit(cache=True, nogil=True)
def _latency(size: float, c: int, routes: Any) -> float:
    """Latency class ``c`` at a size: piecewise linear, constant outside its points."""
    first, last = routes.class_start[c], routes.class_start[c + 1]
    sizes, seconds = routes.class_size_bytes, routes.class_latency_s
    if last - first == 1 or size <= sizes[first]:
        return seconds[first]
    for i in range(first + 1, last):
        if size <= sizes[i]:
            share = (size - sizes[i - 1]) / (sizes[i] - sizes[i - 1])
            return seconds[i - 1] + share * (seconds[i] - seconds[i - 1])
    return seconds[last - 1]


@njit(cache=True, nogil=True)
def _ceiling(u: int, v: int, cross: Any, classes: int, element_bytes: float, routes: Any) -> float:
    """No message between blocks waits longer: the largest overlap, on any latency class that both ends have."""
    if not routes.rising:
        return np.inf
    size, most = element_bytes, 0.0
    for d in range(cross.degrees.shape[1]):
        size *= cross.most[cross.most_rows[u, d] + cross.most_columns[v, d]]
    for c in range(len(routes.class_start) - 1):
        if classes >> (c % 63) & 1:
            most = max(most, _latency(size, c, routes))
    return most


@njit(cache=True, nogil=True)
def _crossing_wait(
    u: int, v: int, wait: float, ceiling: float, cross: Any, element_bytes: float, routes: Any, largest: Any
) -> float:
    """Longest latency of the messages between blocks, or ``wait``; stops where it reaches ``ceiling``."""
    dims, count = cross.degrees.shape[1], len(routes.block)
    first, last, index = np.empty(dims, np.int64), np.empty(dims, np.int64), np.empty(dims, np.int64)
    for q in range(cross.box_start[v + 1] - 1, cross.box_start[v] - 1, -1):
        if cross.volume[q] == 0:
            continue
        here = cross.box_devices[q]
        for d in range(dims):
            # the largest i with i * size // degree <= x, at both ends of the box
            first[d] = ((cross.low[q, d] + 1) * cross.degrees[u, d] - 1) // cross.sizes[d]
            last[d] = (cross.high[q, d] * cross.degrees[u, d] - 1) // cross.sizes[d]
            index[d] = first[d]
        while True:
            part, size = 0, element_bytes
            for d in range(dims):
                part = part * cross.degrees[u, d] + index[d]
            p = cross.start[u] + part
            there = cross.devices[p]
            if routes.block[there] != routes.block[here]:
                for d in range(dims):
                    size *= cross.table[cross.rows[p, d] + cross.columns[q, d]]
                c = routes.latency_class[there * count + here]
                if size > largest[c] or (size > 0 and not routes.rising):
                    largest[c] = size
                    wait = max(wait, _latency(size, c, routes))
                    if wait >= ceiling:
                        return wait
            d = dims - 1
            while d >= 0 and index[d] == last[d]:
                index[d] = first[d]
                d -= 1
            if d < 0:
                break
            index[d] += 1
    return wait


@njit(cache=True, nogil=True)
def _add(load: Any, touched: Any, used: int, links: Any, first: int, last: int, size: float) -> int:
    """Add a size to some links; return how many links are in use."""
    for i in range(first, last):
        link = links[i]
        if load[link] == 0.0:
            touched[used] = link
            used += 1
        load[link] += size
    return used


@njit(cache=True, nogil=True)
def price_pairs(producer: Any, consumer: Any, cross: Any, routes: Any, element_bytes: float, cost_s: Any) -> None:
    """Add to ``cost_s`` (K,) the time of pair k: configurations ``producer[k]`` and ``consumer[k]``.

    Args:
        producer, consumer: Indices of configurations, shape (K,).
        cross: ``Overlaps`` of the tensor.
        routes: ``RouteLevels`` of the direction in which the bytes flow between the two layers.
        element_bytes: Bytes an element.
        cost_s: Seconds, shape (K,).
    """
    dims, count, top = cross.degrees.shape[1], len(routes.block), routes.top
    load = np.zeros(len(routes.seconds_per_byte))
    touched = np.empty(len(load), dtype=np.int64)
    largest = np.zeros(len(routes.class_start))
    leaving, entering = np.zeros((top + 1, count)), np.zeros((top + 1, count))
    kept = np.zeros(count)
    active, base = np.empty(dims, dtype=np.int64), 1.0
    for k in range(len(producer)):
        u, v, used, wait, crossing = producer[k], consumer[k], 0, 0.0, 0.0
        p_first, p_last, q_first, q_last = cross.start[u], cross.start[u + 1], cross.box_start[v], cross.box_start[v + 1]
        largest[:] = 0.0
        for q in range(q_first, q_last):
            rest = cross.volume[q]
            if rest == 0.0:
                continue
            here = cross.box_devices[q]
            block = routes.block[here]
            for m in range(routes.member_start[block], routes.member_start[block + 1]):
                there = routes.members[m]
                p = cross.part_on[u, there]
                if p < 0:
                    continue
                shared = 1.0
                for d in range(dims):
                    shared *= cross.table[cross.rows[p, d] + cross.columns[q, d]]
                if shared == 0.0:
                    continue
                rest -= shared
                kept[there] += shared
                if there == here:
                    continue
                row = there * count + here
                level = routes.level[row]
                if level == 1:
                    used = _add(
                        load, touched, used, routes.route_links, routes.route_start[row], routes.route_start[row + 1],
                        shared,
                    )  # fmt: skip
                else:
                    leaving[level, there] += shared
                    entering[level, here] += shared
                c, size = routes.latency_class[row], shared * element_bytes
                if size > largest[c] or not routes.rising:
                    largest[c] = size
                    wait = max(wait, _latency(size, c, routes))
            entering[top, here] += rest
            crossing += rest
        if crossing > 0.0:
            out_classes, in_classes = 0, 0
            for p in range(p_first, p_last):
                sent = cross.copies[v]
                for d in range(dims):
                    sent *= cross.sent[cross.sent_rows[p, d] + cross.sent_columns[v, d]]
                there = cross.devices[p]
                leaving[top, there] = sent - kept[there]
                out_classes |= routes.out_classes[there]
            for q in range(q_first, q_last):
                in_classes |= routes.in_classes[cross.box_devices[q]]
            ceiling = _ceiling(u, v, cross, out_classes & in_classes, element_bytes, routes)
            if wait < ceiling:
                wait = _crossing_wait(u, v, wait, ceiling, cross, element_bytes, routes, largest)
        for level in range(2, top + 1):
            for p in range(p_first, p_last):
                at, row = cross.devices[p], level * count + cross.devices[p]
                if leaving[level, at] > 0.0:
                    used = _add(
                        load, touched, used, routes.out_links, routes.out_start[row], routes.out_start[row + 1],
                        leaving[level, at],
                    )  # fmt: skip
                    leaving[level, at] = 0.0
            for q in range(q_first, q_last):
                at, row = cross.box_devices[q], level * count + cross.box_devices[q]
                if entering[level, at] > 0.0:
                    used = _add(
                        load, touched, used, routes.in_links, routes.in_start[row], routes.in_start[row + 1],
                        entering[level, at],
                    )  # fmt: skip
                    entering[level, at] = 0.0
        busy = 0.0
        for i in range(used):
            busy = max(busy, load[touched[i]] * element_bytes * routes.seconds_per_byte[touched[i]])
            load[touched[i]] = 0.0
        for p in range(p_first, p_last):
            kept[cross.devices[p]] = 0.0
        cost_s[k] += wait + busy
