"""What all messages to a device, or from it, have in common: the links at their end, and their least latency.

Messages to one device from other nodes arrive over the same links, however many devices send them: none of these is
busy for less time than all their bytes take.  Of two nodes with a card at each device::

    0 --+                      +-- 2       near, to 0     1 -> 0 alone: wire 1-0
        | up, down  down, up   |           far, to 0      2 -> 0, 3 -> 0: down at 0 in common
    1 --+                      +-- 3       far, from 0    0 -> 2, 0 -> 3: up at 0 in common

Where parts of a cluster are alike, a few of them stand for all.
"""

from functools import lru_cache
from typing import NamedTuple

import numpy as np

from groundwork.array_types import Floats, Ints
from planner.topology.network_routes import ClusterRoutes

NEAR, FAR = 0, 1
"""Rows of ``RouteEnds``: messages inside a node, and between nodes."""


class RouteEnds(NamedTuple):
    """Least times of messages by the device at which they end or begin; compiled code reads its fields."""

    in_s_per_byte: Floats
    """Inverse bandwidth of the slowest link that all messages to each device cross, shape (2, n); 0 for none."""
    in_s: Floats
    """Least latency of a message to each device, shape (2, n)."""
    out_s_per_byte: Floats
    """Inverse bandwidth of the slowest link that all messages from each device cross, shape (2, n); 0 for none."""
    out_s: Floats
    """Least latency of a message from each device, shape (2, n)."""
    node_in_s_per_byte: Floats
    """Inverse bandwidth of the slowest link that all messages to its node cross, by device, shape (n,); 0 for none."""
    node_out_s_per_byte: Floats
    """Inverse bandwidth of the slowest link that all messages from it cross, shape (n,); 0 for none."""
    node_start: Ints
    """First device of the node of each device in ``members``, shape (n,)."""
    node_stop: Ints
    """End of the node of each device in ``members``, shape (n,)."""
    members: Ints
    """Devices, node by node, shape (n,)."""


@lru_cache(maxsize=64)
def route_ends(network: ClusterRoutes) -> RouteEnds:
    """Return what the messages at each device have in common.

    Args:
        network: Routes of the cluster.
    """
    count, node = network.device_count, network.node
    part, kind = network.like_parts
    every = np.arange(count)
    if not len(kind):
        others, ends = every, every
    else:
        chosen = [
            members[[0, min(1, len(members) - 1), len(members) // 2, -1 - (len(members) > 1), -1]]
            for members in (np.flatnonzero(kind == each) for each in range(int(kind.max()) + 1))
        ]
        others = np.flatnonzero(np.isin(part, np.concatenate(chosen)))
        # with parts of its kind before it and behind it, one stands for all if there is one kind
        ends = np.flatnonzero(part == chosen[0][2]) if len(chosen) == 1 and len(kind) > 2 else every
    ways = [_ends(network, ends, others, back=back) for back in (False, True)]
    if len(ends) < count:  # devices at one place of their parts are alike
        place = network.place
        # row by row in memory, as without parts: compiled code takes seconds to be compiled for each other order
        ways = [(by_byte.take(place, 1), least_s.take(place, 1), by_node[place]) for by_byte, least_s, by_node in ways]
    start = np.concatenate([[0], np.cumsum(np.bincount(node))])
    return RouteEnds(
        in_s_per_byte=ways[0][0],
        in_s=ways[0][1],
        out_s_per_byte=ways[1][0],
        out_s=ways[1][1],
        node_in_s_per_byte=ways[0][2],
        node_out_s_per_byte=ways[1][2],
        node_start=start[node],
        node_stop=start[node + 1],
        members=np.argsort(node, kind="stable"),
    )


def _ends(network: ClusterRoutes, ends: Ints, others: Ints, *, back: bool) -> tuple[Floats, Floats, Floats]:
    """Return the rows of ``RouteEnds`` of one way.

    Args:
        network: Routes of the cluster.
        ends: Devices at which messages end, or with ``back`` begin, shape (E,); all of their nodes.
        others: Devices at the other end.
        back: Whether messages begin at the ends.

    Returns:
        Inverse bandwidths, shape (2, E); latencies, shape (2, E); inverse bandwidths by node, shape (E,).
    """
    rates, latencies, by_node = np.zeros((2, len(ends))), np.zeros((2, len(ends))), np.zeros(len(ends))
    node, shared = network.node, dict[int, set[int]]()
    for place, end in enumerate(ends.tolist()):
        for row, near in ((NEAR, True), (FAR, False)):
            rest = others[(others != end) & ((node[others] == node[end]) == near)]
            if not len(rest):
                continue
            pairs = (rest, np.full(len(rest), end))
            counts, links = network.routes(*(pairs[::-1] if back else pairs))
            crossed, times = np.unique(links, return_counts=True)
            common = crossed[times == len(counts)]
            rates[row, place] = network.seconds_per_byte[common].max(initial=0.0)
            classes = np.unique(network.latency_classes(*(pairs[::-1] if back else pairs)))
            latencies[row, place] = min(map(network.least_latency_s, classes.tolist()))
            if not near:
                shared[int(node[end])] = shared.get(int(node[end]), set(common.tolist())) & set(common.tolist())
    for place, end in enumerate(ends.tolist()):
        links = np.array(sorted(shared.get(int(node[end]), ())), dtype=np.int64)
        by_node[place] = network.seconds_per_byte[links].max(initial=0.0)
    return rates, latencies, by_node
