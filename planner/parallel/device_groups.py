"""Groups of devices that follow the topology: a group lies in as few nodes, then racks, as the cluster allows."""

from collections.abc import Sequence

import numpy as np

from hwprofiles import Floats, Ints
from hwprofiles.devices import DeviceGraph
from planner.topology import ClusterRoutes, routes_of_cluster

__all__ = ["grouped_devices"]

_MESSAGE_BYTES = 2.0**20
"""Message by which devices of a node are near to each other or far."""


def grouped_devices(cluster: DeviceGraph, parts: int, group_sizes: Sequence[int]) -> list[int]:
    """Devices of nested groups, in order: each run of ``group_sizes[k]`` of them is a group.

    Devices come rack by rack and node by node, near ones of a node side by side.  Where there are more devices than
    needed, some are left out so that no group that fits in a node (or a rack) is spread over two.

    Args:
        cluster: Device graph.
        parts: Devices needed, at most the cluster's.
        group_sizes: Sizes of nested groups, the innermost first, each a multiple of the one before.
    """
    network = routes_of_cluster(cluster)
    nodes = _nodes(network)
    racks: dict[int, list[Ints]] = {}
    for devices in nodes:
        racks.setdefault(int(network.rack[devices[0]]), []).append(devices)
    by_rack = [np.concatenate(members) for members in racks.values()]
    aligned_nodes = {
        rack: np.concatenate([_whole(devices, group_sizes) for devices in members]) for rack, members in racks.items()
    }
    aligned_racks = [_whole(devices, group_sizes) for devices in aligned_nodes.values()]
    rows = [np.concatenate(choice) for choice in (aligned_racks, list(aligned_nodes.values()), by_rack)]
    devices = next(row for row in rows if len(row) >= parts)
    return [int(device) for device in devices[:parts]]


def _whole(devices: Ints, group_sizes: Sequence[int]) -> Ints:
    """As many devices as make whole groups of the largest size that fits here."""
    size = max((size for size in group_sizes if size <= len(devices)), default=1)
    return devices[: len(devices) // size * size]


def _nodes(network: ClusterRoutes) -> list[Ints]:
    """Devices of every node in order of nearness, nodes by rack; those of one size are taken to be wired alike."""
    order = np.lexsort((network.node, network.rack))
    starts = np.flatnonzero(np.diff(network.node[order], prepend=-1))
    members = np.split(order, starts[1:])
    places: dict[int, Ints] = {}
    for devices in members:
        if len(devices) not in places:
            places[len(devices)] = _near_first(_distances(network, devices))
    return [devices[places[len(devices)]] for devices in members]


def _distances(network: ClusterRoutes, devices: Ints) -> Floats:
    """Time of a message between every two devices, shape (n, n): its latency, and its bytes over the slowest link."""
    count = len(devices)
    source, target = np.nonzero(~np.eye(count, dtype=bool))
    found = np.zeros((count, count))
    if count == 1:
        return found
    counts, links = network.routes(devices[source], devices[target])
    busiest = np.maximum.reduceat(network.seconds_per_byte[links], np.cumsum(counts) - counts)
    size = np.full(len(source), _MESSAGE_BYTES)
    found[source, target] = network.latencies_s(devices[source], devices[target], size) + size * busiest
    return np.maximum(found, found.T)


def _near_first(distance: Floats) -> Ints:
    """Order by complete linkage: the two sets that are nearest in their farthest members join, small ones first."""
    sets = [[place] for place in range(len(distance))]
    while len(sets) > 1:
        rows = (
            (round(float(distance[np.ix_(a, b)].max()), 15), len(a) + len(b), i, j)
            for i, a in enumerate(sets)
            for j, b in enumerate(sets[i + 1 :], i + 1)
        )
        *_, i, j = min(rows)
        sets[i] += sets.pop(j)
    return np.array(sets[0], dtype=np.int64)
