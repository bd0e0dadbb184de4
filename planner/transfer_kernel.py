"""Compiled pricing of transfers between configurations, in bulk.

For one tensor: what it costs to move it from any configuration of its producer to the boxes that any
configuration of a consumer needs, forward, and its gradient back.  All messages of one direction start
together and meet nobody else; the busiest link and the longest latency decide.
"""

from typing import Any

import numpy as np
from numba import njit

__all__ = ["bound_pairs", "price_pairs"]


@njit(cache=True, nogil=True)
def _latency(size: float, first: int, last: int, sizes: Any, seconds: Any) -> float:
    """Piecewise-linear in size over points first .. last - 1, constant outside."""
    if size <= sizes[first] or last - first == 1:
        return seconds[first]
    for i in range(first + 1, last):
        if size <= sizes[i]:
            share = (size - sizes[i - 1]) / (sizes[i] - sizes[i - 1])
            return seconds[i - 1] + share * (seconds[i] - seconds[i - 1])
    return seconds[last - 1]


@njit(cache=True, nogil=True)
def price_pairs(
    producer: Any,
    consumer: Any,
    degrees: Any,
    producer_start: Any,
    producer_devices: Any,
    sizes: Any,
    low: Any,
    high: Any,
    consumer_start: Any,
    consumer_devices: Any,
    route_start: Any,
    route_links: Any,
    seconds_per_byte: Any,
    latency_class: Any,
    class_start: Any,
    class_size: Any,
    class_latency: Any,
    device_count: int,
    element_bytes: float,
    with_gradient: bool,
    cost_s: Any,
) -> None:
    """Fill ``cost_s`` (K,) with the time of pair k: configurations ``producer[k]`` and ``consumer[k]``.

    ``degrees`` is (C, D) for the producer, ``low``/``high`` (parts in all, D) the boxes that parts of the
    consumer need; the rest are the fields of ``ConfigSpace`` and ``Network``.
    ``with_gradient`` says whether the gradient flows back.
    """
    links, dims = len(seconds_per_byte), len(sizes)
    forward, backward = np.zeros(links), np.zeros(links)
    touched = np.empty(2 * links, dtype=np.int64)
    first, last, index = np.empty(dims, np.int64), np.empty(dims, np.int64), np.empty(dims, np.int64)
    for k in range(len(producer)):
        u, v, used = producer[k], consumer[k], 0
        wait_forward, wait_backward = 0.0, 0.0
        for q in range(consumer_start[v], consumer_start[v + 1]):
            if high[q, 0] <= low[q, 0]:
                continue
            for d in range(dims):
                # the largest i with i * size // degree <= x, at both ends of the box
                first[d] = ((low[q, d] + 1) * degrees[u, d] - 1) // sizes[d]
                last[d] = (high[q, d] * degrees[u, d] - 1) // sizes[d]
                index[d] = first[d]
            here = consumer_devices[q]
            while True:
                part, volume = 0, 1
                for d in range(dims):
                    part = part * degrees[u, d] + index[d]
                    begin = index[d] * sizes[d] // degrees[u, d]
                    end = (index[d] + 1) * sizes[d] // degrees[u, d]
                    volume *= min(end, high[q, d]) - max(begin, low[q, d])
                there = producer_devices[producer_start[u] + part]
                if there != here and volume > 0:
                    size = volume * element_bytes
                    row = there * device_count + here
                    for r in range(route_start[row], route_start[row + 1]):
                        link = route_links[r]
                        if forward[link] == 0.0 and backward[link] == 0.0:
                            touched[used] = link
                            used += 1
                        forward[link] += size
                    c = latency_class[row]
                    wait = _latency(size, class_start[c], class_start[c + 1], class_size, class_latency)
                    wait_forward = max(wait_forward, wait)
                    row = here * device_count + there
                    for r in range(route_start[row], route_start[row + 1]):
                        link = route_links[r]
                        if forward[link] == 0.0 and backward[link] == 0.0:
                            touched[used] = link
                            used += 1
                        backward[link] += size
                    c = latency_class[row]
                    wait = _latency(size, class_start[c], class_start[c + 1], class_size, class_latency)
                    wait_backward = max(wait_backward, wait)
                d = dims - 1
                while d >= 0 and index[d] == last[d]:
                    index[d] = first[d]
                    d -= 1
                if d < 0:
                    break
                index[d] += 1
        busy_forward, busy_backward = 0.0, 0.0
        for i in range(used):
            link = touched[i]
            busy_forward = max(busy_forward, forward[link] * seconds_per_byte[link])
            busy_backward = max(busy_backward, backward[link] * seconds_per_byte[link])
            forward[link] = 0.0
            backward[link] = 0.0
        cost_s[k] = wait_forward + busy_forward
        if with_gradient:
            cost_s[k] += wait_backward + busy_backward


@njit(cache=True, nogil=True)
def bound_pairs(
    part: Any,
    parts: Any,
    most_on_node: Any,
    nodes_used: Any,
    box: Any,
    least_volume: Any,
    box_parts: Any,
    box_most_on_node: Any,
    device_entry: float,
    node_entry: float,
    element_bytes: float,
    with_gradient: bool,
    bound_s: Any,
) -> None:
    """Fill ``bound_s`` (C_u, C_v) with times that no transfer between the configurations beats.

    A part finds at most prod(min(part, box)) of its box in one part of the producer, its own device's; the
    rest enters the device, and what no device of its node holds enters the node.  Backward the same bytes
    flow into the producer's devices, at best evenly.

    Args:
        part: (C_u, D) largest part of the producer; ``parts`` (C_u,), ``most_on_node`` (C_u,) and
            ``nodes_used`` (C_u,) count them.
        box: (C_v, D) largest box a consumer's part needs; ``least_volume`` (C_v,) the smallest volume.
        box_parts: (C_v,) parts of the consumer; ``box_most_on_node`` (C_v,) the most on one node.
        device_entry, node_entry: ``Network``'s least seconds per byte.
    """
    for u in range(len(part)):
        for v in range(len(box)):
            common = 1.0
            for d in range(part.shape[1]):
                common *= min(part[u, d], box[v, d])
            remote = max(least_volume[v] - common, 0.0)
            forward = remote * device_entry
            backward = remote * box_parts[v] / parts[u] * device_entry
            if node_entry > 0.0:
                remote = max(least_volume[v] - common * most_on_node[u], 0.0)
                forward = max(forward, remote * box_most_on_node[v] * node_entry)
                backward = max(backward, remote * box_parts[v] / nodes_used[u] * node_entry)
            bound_s[u, v] = (forward + backward if with_gradient else forward) * element_bytes
