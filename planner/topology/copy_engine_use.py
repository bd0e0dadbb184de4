"""Copy engines as resources: the engines that messages between devices keep busy, and for how long."""

from functools import lru_cache
from typing import NamedTuple

import numpy as np

from groundwork.array_types import Bools, Floats, Ints
from hwprofiles.devices.device_graph import DeviceGraph
from planner.topology.network_routes import ClusterRoutes, routes_of_cluster


class EngineUses(NamedTuple):
    """The uses of copy engines by M messages, message by message."""

    counts: Ints
    """Number of engines that each message uses, shape (M,)."""
    engine: Ints
    """Engine of each use, an index into ``CopyEngineUses.names``, shape (uses,)."""
    busy_s_per_byte: Floats
    """Time for which the engine is busy for each byte of the message, shape (uses,)."""


class CopyEngineUses:
    """The copy engines of a cluster, as resources whose capacity is their number.

    A message keeps an engine busy for as long as it alone would take over the links between the engine's device and
    the other end of the copy: the other device, or the host's memory.  A message over a host's memory is copied by
    its source's device-to-host engine and by its target's host-to-device engine, at the same time; a message inside
    a machine by its source's peer engine.  A message that leaves the machine from a device's memory is fetched by
    the network card and uses no engine.  Messages on one engine share it::

        route                                  engines
        gpu0 -> switch -> gpu1                 gpu0 peer
        gpu0 -> host -> gpu1                   gpu0 device_to_host, gpu1 host_to_device
        gpu0 -> nic0 -> nic1 -> gpu2           none
    """

    def __init__(self, network: ClusterRoutes, cluster: DeviceGraph) -> None:
        self._network = network
        self.kinds: list[str] = []
        """Kind of each engine, a field of ``CopyEngines``."""
        names: list[str] = []
        capacity: list[int] = []
        self.by_kind: dict[str, Ints] = {
            kind: np.full(len(cluster.devices), -1) for kind in ("total", "host_to_device", "device_to_host", "peer")
        }
        """Engine of each device, shape (devices,), by kind; -1 where it has none."""
        devices = cluster.devices
        declared = [device.copy_engines.declared for device in devices.kinds]
        for i in np.flatnonzero(devices.of_each(lambda device: bool(device.copy_engines.declared))).tolist():
            for kind, count in declared[devices.kind[i]].items():
                self.by_kind[kind][i] = len(names)
                names.append(f"{devices.names[i]} copies, {kind.replace('_', ' ')}")
                capacity.append(count)
                self.kinds.append(kind)
        self.names = tuple(names)
        """Name of each engine."""
        self.capacity: Floats = np.array(capacity, dtype=np.float64)
        """Number of equal engines behind each name."""
        hosts = np.array([vertex in cluster.hosts for vertex in cluster.vertices], dtype=np.bool_)
        self._at_host: Bools = hosts[cluster.links.source] | hosts[cluster.links.target]

    def of(self, source: Ints, target: Ints) -> EngineUses:
        """Return the engines that messages between pairs of different devices use.

        Args:
            source: Sending device of each message, shape (M,).
            target: Receiving device of each message, shape (M,).
        """
        if not self.names or not len(source):
            return EngineUses(np.zeros(len(source), dtype=np.int64), np.empty(0, dtype=np.int64), np.empty(0))
        counts, links = self._network.routes(source, target)
        first = np.cumsum(counts) - counts
        position = np.arange(len(links)) - np.repeat(first, counts)  # place of each link in its route
        at_host, seconds = self._at_host[links], self._network.seconds_per_byte[links]
        # The copy to the host ends with the first link at a host; the copy from the host begins with the last one.
        to_host = np.minimum.reduceat(np.where(at_host, position, len(links)), first)
        from_host = np.maximum.reduceat(np.where(at_host, position, -1), first)
        staged, inside = from_host >= 0, self._network.node[source] == self._network.node[target]
        leaving = np.maximum.reduceat(np.where(position <= np.repeat(to_host, counts), seconds, 0.0), first)
        arriving = np.maximum.reduceat(np.where(position >= np.repeat(from_host, counts), seconds, 0.0), first)
        sends = np.where(inside, self.by_kind["peer"][source], -1)
        sends = np.where(staged, self.by_kind["device_to_host"][source], sends)
        # Up to four engines for each message: two at each end; -1 where the message uses none or there is none.
        columns = (
            (np.where(staged | inside, self.by_kind["total"][source], -1), leaving),
            (sends, leaving),
            (np.where(staged, self.by_kind["total"][target], -1), arriving),
            (np.where(staged, self.by_kind["host_to_device"][target], -1), arriving),
        )
        engine, busy = (np.column_stack(list(part)) for part in zip(*columns, strict=True))
        used = engine >= 0
        return EngineUses(used.sum(axis=1), engine[used], busy[used])


@lru_cache(maxsize=64)
def copy_engines_of(cluster: DeviceGraph) -> CopyEngineUses:
    """Return the copy engines of a cluster, one object for each cluster."""
    return CopyEngineUses(routes_of_cluster(cluster), cluster)
