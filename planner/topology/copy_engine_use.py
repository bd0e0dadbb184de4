"""Copy engines as resources: which ones messages between devices keep busy, and for how long."""

from functools import lru_cache
from typing import NamedTuple

import numpy as np

from hwprofiles import Floats, Ints
from hwprofiles.devices import DeviceGraph
from planner.topology.network_routes import ClusterRoutes, routes_of_cluster

__all__ = ["CopyEngineUses", "EngineUses", "copy_engines_of"]


class EngineUses(NamedTuple):
    """What M messages use of copy engines, message by message."""

    counts: Ints
    """Shape (M,): number of engines that each message uses."""
    engine: Ints
    """Index into ``CopyEngineUses.names``."""
    busy_s_per_byte: Floats


class CopyEngineUses:
    """The copy engines of a cluster, as resources whose capacity is their number.

    A message keeps an engine busy for as long as it alone would take over the links between the engine's device and
    the other end of the copy: the other device, or the host's memory.  A message over a host's memory is copied by
    its source's engine for device to host and by its target's for host to device, at the same time; a message inside
    a machine by its source's for peers.  What leaves the machine from a device's memory, the network card fetches
    itself: it uses no engine.  Messages that want one engine share it.

    Args:
        network: Routes of the cluster.
        cluster: The device graph, with the numbers of engines.
    """

    def __init__(self, network: ClusterRoutes, cluster: DeviceGraph) -> None:
        self._network = network
        self.kinds: list[str] = []
        """Kind of each resource, a field of ``CopyEngines``."""
        names: list[str] = []
        capacity: list[int] = []
        self._engine = {
            kind: np.full(len(cluster.devices), -1) for kind in ("total", "host_to_device", "device_to_host", "peer")
        }
        for i, device in enumerate(cluster.devices):
            for kind, count in device.copy_engines.declared.items():
                self._engine[kind][i] = len(names)
                names.append(f"{device.name} copies, {kind.replace('_', ' ')}")
                capacity.append(count)
                self.kinds.append(kind)
        self.names = tuple(names)
        self.capacity: Floats = np.array(capacity, dtype=np.float64)
        self._at_host = np.array(
            [
                any(cluster.vertices[end] in cluster.hosts for end in (link.source, link.target))
                for link in cluster.links
            ]
        )

    def of(self, source: Ints, target: Ints) -> EngineUses:
        """What messages between pairs of different devices use, in order."""
        if not self.names or not len(source):
            return EngineUses(np.zeros(len(source), dtype=np.int64), np.empty(0, dtype=np.int64), np.empty(0))
        counts, links = self._network.routes(source, target)
        first = np.cumsum(counts) - counts
        place = np.arange(len(links)) - np.repeat(first, counts)
        at_host, seconds = self._at_host[links], self._network.seconds_per_byte[links]
        # the copy to the host ends with the first link at a host, the copy from it begins with the last
        to_host = np.minimum.reduceat(np.where(at_host, place, len(links)), first)
        from_host = np.maximum.reduceat(np.where(at_host, place, -1), first)
        staged, inside = from_host >= 0, self._network.node[source] == self._network.node[target]
        leaving = np.maximum.reduceat(np.where(place <= np.repeat(to_host, counts), seconds, 0.0), first)
        arriving = np.maximum.reduceat(np.where(place >= np.repeat(from_host, counts), seconds, 0.0), first)
        sends = np.where(inside, self._engine["peer"][source], -1)
        sends = np.where(staged, self._engine["device_to_host"][source], sends)
        columns = (
            (np.where(staged | inside, self._engine["total"][source], -1), leaving),
            (sends, leaving),
            (np.where(staged, self._engine["total"][target], -1), arriving),
            (np.where(staged, self._engine["host_to_device"][target], -1), arriving),
        )
        engine, busy = (np.column_stack(list(part)) for part in zip(*columns, strict=True))
        used = engine >= 0
        return EngineUses(used.sum(axis=1), engine[used], busy[used])


@lru_cache(maxsize=64)
def copy_engines_of(cluster: DeviceGraph) -> CopyEngineUses:
    """The copy engines of a cluster, made once."""
    return CopyEngineUses(routes_of_cluster(cluster), cluster)
