"""Groups of devices that follow the topology: each group lies in as few nodes, then racks, as the cluster allows."""

from collections.abc import Sequence

import numpy as np

from groundwork.array_types import Floats, Ints
from hwprofiles.devices.device_graph import DeviceGraph
from planner.topology.network_routes import ClusterRoutes, routes_of_cluster

_MESSAGE_BYTES = 2.0**20
"""Size of the message whose time is the distance between two devices of a node."""


def grouped_devices(cluster: DeviceGraph, parts: int, group_sizes: Sequence[int]) -> list[int]:
    """Return the devices of nested groups in order: each run of ``group_sizes[k]`` devices is a group.

    Devices come rack by rack and node by node, and near devices of a node follow each other.  If the cluster has more
    devices than needed, some are left out so that no group that fits in a node (or a rack) is spread over two.

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
    # Three choices, from the strictest: whole groups in nodes and racks, in nodes, and all devices as they come.
    # Nodes of 4 devices with groups of 3 leave the last device of every node out in the first two.
    aligned_nodes = {
        rack: np.concatenate([_whole(devices, group_sizes) for devices in members]) for rack, members in racks.items()
    }
    aligned_racks = [_whole(devices, group_sizes) for devices in aligned_nodes.values()]
    rows = [np.concatenate(choice) for choice in (aligned_racks, list(aligned_nodes.values()), by_rack)]
    devices = next(row for row in rows if len(row) >= parts)
    return [int(device) for device in devices[:parts]]


def _whole(devices: Ints, group_sizes: Sequence[int]) -> Ints:
    """Return the first devices, as many as make whole groups of the largest size that fits among them."""
    size = max((size for size in group_sizes if size <= len(devices)), default=1)
    return devices[: len(devices) // size * size]


def _nodes(network: ClusterRoutes) -> list[Ints]:
    """Return the devices of every node, near ones side by side, nodes ordered by rack.

    Nodes with equally many devices are assumed to be wired alike, so that nearness is computed once for them.
    """
    order = np.lexsort((network.node, network.rack))  # by rack, then by node
    starts = np.flatnonzero(np.diff(network.node[order], prepend=-1))
    members = np.split(order, starts[1:])
    orders: dict[int, Ints] = {}
    for devices in members:
        if len(devices) not in orders:
            orders[len(devices)] = _near_first(_distances(network, devices))
    return [devices[orders[len(devices)]] for devices in members]


def _distances(network: ClusterRoutes, devices: Ints) -> Floats:
    """Return the time of a message between every two devices: latency, and bytes over the slowest link; shape (n, n).

    The time is made symmetric by the slower of both directions.
    """
    count = len(devices)
    source, target = np.nonzero(~np.eye(count, dtype=bool))
    seconds = np.zeros((count, count))
    if count == 1:
        return seconds
    counts, links = network.routes(devices[source], devices[target])
    # Routes lie one after another: the maximum over each is that of its slowest link.
    busiest = np.maximum.reduceat(network.seconds_per_byte[links], np.cumsum(counts) - counts)
    size = np.full(len(source), _MESSAGE_BYTES)
    seconds[source, target] = network.latencies_s(devices[source], devices[target], size) + size * busiest
    return np.maximum(seconds, seconds.T)


def _near_first(distance: Floats) -> Ints:
    """Return an order of devices by hierarchical clustering with complete linkage.

    The distance of two clusters is that of their farthest members; the two nearest merge, the smaller ones first among
    equals, until one is left.  Merged clusters stand side by side.  With a pair of near devices 0 and 2, and 1 and 3::

        {0} {1} {2} {3}    {0, 2} {1} {3}    {0, 2} {1, 3}    {0, 2, 1, 3}
    """
    sets, apart = [[index] for index in range(len(distance))], distance.round(15)
    while len(sets) > 1:
        i, j = np.triu_indices(len(sets), 1)
        size = np.array([len(each) for each in sets])
        nearest = np.flatnonzero(apart[i, j] == apart[i, j].min())
        at = nearest[(size[i] + size[j])[nearest].argmin()]
        first, second = int(i[at]), int(j[at])
        sets[first] += sets.pop(second)
        apart[first] = apart[:, first] = np.maximum(apart[first], apart[second])
        apart = np.delete(np.delete(apart, second, axis=0), second, axis=1)
    return np.array(sets[0], dtype=np.int64)
