"""The places of devices in a cluster: their racks, and the order in which rings and trees number them."""

from collections.abc import Callable, Iterator

import numpy as np

from groundwork.array_types import Bools, Floats, Ints
from hwprofiles.devices.device_graph import DeviceGraph

_MOST_SEARCHED = 8
"""Devices of a node up to which a cycle over direct links is looked for."""


def racks_of(cluster: DeviceGraph) -> Ints:
    """Return the rack of every device, shape (n,), which the names of nodes show: ``rack0/node3/gpu1``.

    A node is named by what the paths of its devices have in common, and its rack by that path without its last
    part; 0 for all devices where paths have no racks.
    """
    shared: dict[int, list[str]] = {}
    for name, node in zip(cluster.devices.names, cluster.devices.node.tolist(), strict=True):
        path = name.split("/")
        # Devices of a node share the beginning of their paths: each device shortens it to what it has in common.
        known = shared.setdefault(node, path[:-1])
        same = next((i for i, pair in enumerate(zip(known, path, strict=False)) if pair[0] != pair[1]), len(known))
        shared[node] = known[:same]
    numbers: dict[tuple[str, ...], int] = {}
    rack = {node: numbers.setdefault(tuple(path[:-1]), len(numbers)) for node, path in shared.items()}
    return np.array([rack[node] for node in cluster.devices.node.tolist()], dtype=np.int64)


def ring_ranks(node: Ints, seconds_per_byte: Floats, routes: Callable[[Ints, Ints], tuple[Ints, Ints]]) -> Ints:
    """Return the position of every device among the replicas of a gradient synchronisation, shape (n,).

    Positions go node by node, and in each node the devices with the fastest routes to other nodes are first and
    last: there a ring enters and leaves the node, and a server or the root of a tree is the first device.  Nodes of
    one size are taken to be wired alike.  Where direct links join the devices of a node in a cycle, as NVLinks do, and
    this order leaves them, positions follow such a cycle.

    Args:
        node: Node of every device, shape (n,).
        seconds_per_byte: Inverse bandwidth of every link, shape (L,).
        routes: Returns the numbers of links, and the links, of the routes between pairs of devices.
    """
    # Nodes [0, 1, 0, 1] of four devices give the members [0, 2] and [1, 3].
    members = np.split(np.argsort(node, kind="stable"), np.cumsum(np.bincount(node))[:-1])
    orders: dict[int, Ints] = {}
    for devices in members:
        if len(devices) not in orders:
            others = np.flatnonzero(node != node[devices[0]])
            order = _order_in_node(devices, others, seconds_per_byte, routes)
            orders[len(devices)] = order[_along_links(devices[order], routes)]
    order = np.concatenate([devices[orders[len(devices)]] for devices in members])
    rank = np.empty_like(order)  # the inverse of the order
    rank[order] = np.arange(len(order))
    return rank


def _order_in_node(
    devices: Ints, others: Ints, seconds_per_byte: Floats, routes: Callable[[Ints, Ints], tuple[Ints, Ints]]
) -> Ints:
    """Return the order of the devices of a node: those with the fastest routes to other nodes first and last."""
    if len(others) == 0 or len(devices) < 3:
        return np.arange(len(devices))
    # The first device of another node stands for all: routes there leave the node by the same links.
    away = np.full(len(devices), others[0])
    cost = np.zeros(len(devices))
    for ends in ((devices, away), (away, devices)):
        counts, links = routes(*ends)
        cost += np.bincount(np.repeat(np.arange(len(devices)), counts), seconds_per_byte[links])
    nearest = np.argsort(cost.round(15), kind="stable")  # rounded: sums in another order must not decide
    alike = nearest[np.isclose(cost[nearest], cost[nearest[0]], rtol=1e-9, atol=0.0)]
    # Of equally fast devices the first and the last, which lie apart, so that they share little inside the node.
    first, last = nearest[0], alike[-1] if len(alike) > 1 else nearest[1]
    middle = [place for place in range(len(devices)) if place not in (first, last)]
    return np.array([first, *middle, last])


def _along_links(devices: Ints, routes: Callable[[Ints, Ints], tuple[Ints, Ints]]) -> Ints:
    """Return the positions of devices along a cycle over direct links, from the first; as they are without one."""
    size = len(devices)
    as_is = np.arange(size)
    if not 3 < size <= _MOST_SEARCHED:
        return as_is  # of three, joined in a cycle, every order is one
    source, target = (each.ravel() for each in np.meshgrid(as_is, as_is, indexing="ij"))
    apart = source != target
    joined = np.zeros((size, size), dtype=bool)
    joined[source[apart], target[apart]] = routes(devices[source[apart]], devices[target[apart]])[0] == 1
    joined &= joined.T
    if joined[as_is, np.roll(as_is, -1)].all() or not (joined.sum(axis=1) > 1).all():
        return as_is
    return np.array(next(cycles(joined), as_is.tolist()))


def cycles(joined: Bools) -> Iterator[list[int]]:
    """Yield each cycle over all devices once, from device 0, its second device below its last.

    Args:
        joined: Whether links join each two devices, shape (size, size).
    """
    size = len(joined)
    paths = [[0]]
    while paths:
        path = paths.pop()
        if len(path) == size:
            if joined[path[-1], 0] and path[1] < path[-1]:
                yield path
            continue
        paths += [[*path, each] for each in range(size - 1, 0, -1) if each not in path and joined[path[-1], each]]
