"""The routes of a cluster as arrays, from which both the cost model and lowering read."""

from copy import copy
from functools import cached_property, lru_cache

import numpy as np

from groundwork.array_types import Floats, Ints
from groundwork.sparse_rows import row_entries
from hwprofiles.devices.collective_library import CollectiveLibrary
from hwprofiles.devices.device_graph import DeviceGraph
from planner.topology.device_order import racks_of, ring_ranks
from planner.topology.latency_classes import LatencyClasses
from planner.topology.route_levels import RouteLevels, levels_of
from planner.topology.route_store import RouteStore, mirrors, swapped_routes, transposed

_RECENT = 8
"""Sets of routes that are kept as they were asked for: the rounds of a collective are looked at several times."""
_TABLE_DEVICES = 128
"""Largest number of devices whose routes between all pairs are searched at once."""


class ClusterRoutes:
    """The routes between the n devices of a cluster, with the loads and latencies of messages over them.

    Routes with the same links' latencies form one latency class: a piecewise-linear function of the
    message size, constant beyond its first and last point.
    """

    def __init__(self, cluster: DeviceGraph) -> None:
        self.device_count = len(cluster.devices)
        """Number n of devices."""
        self.seconds_per_byte: Floats = 1.0 / cluster.bandwidth
        """Inverse bandwidth of every link, shape (L,)."""
        self.node: Ints = cluster.devices.node
        """Node of every device, shape (n,)."""
        self.node_size = int(np.count_nonzero(self.node == self.node[0]))
        """Devices of the first node."""
        self.has_tables = self.device_count <= _TABLE_DEVICES
        """Flag that the cluster is small enough for the routes between all devices: ``forward`` and ``backward``."""
        self.library = cluster.library
        """Library of collectives; None where it is not known."""
        self.wiring: ClusterRoutes = self
        """One object for all routes that differ in the library alone: it stands for them where nothing else counts."""
        self._cluster = cluster
        self._classes = LatencyClasses(cluster.links)
        self._recent: list[tuple[tuple[Ints, Ints], tuple[Ints, Ints]]] = []
        self._store = RouteStore(cluster, self._classes, all_at_once=self.has_tables)

    def with_library(self, library: CollectiveLibrary) -> "ClusterRoutes":
        """Return the same routes with another library."""
        other = copy(self)
        other.library = library
        return other

    @cached_property
    def like_parts(self) -> tuple[Ints, Ints]:
        """Part of each device, shape (n,), and kind of each part; no kinds where none stands for others."""
        return self._cluster.like_parts

    @cached_property
    def place(self) -> Ints:
        """Place of each device among those of its part, shape (n,)."""
        part, _ = self.like_parts
        order = np.argsort(part, kind="stable")
        place = np.empty(self.device_count, dtype=np.int64)
        place[order] = np.arange(self.device_count) - np.searchsorted(part[order], part[order])
        return place

    @cached_property
    def rack(self) -> Ints:
        """Rack of every device, shape (n,); see ``racks_of``."""
        return racks_of(self._cluster)

    @cached_property
    def rank(self) -> Ints:
        """Position of every device among the replicas of a gradient synchronisation, shape (n,); see ``ring_ranks``."""
        return ring_ranks(self.node, self.seconds_per_byte, self.routes)

    @cached_property
    def widest_bytes_per_s(self) -> float:
        """Bandwidth of all links to a device, or from it, together: the most of any device."""
        links, bandwidth = self._cluster.links, self._cluster.bandwidth
        ends = [end[end < self.device_count] for end in (links.source, links.target)]
        rates = [bandwidth[end < self.device_count] for end in (links.source, links.target)]
        return max(float(np.bincount(end, rate).max(initial=0.0)) for end, rate in zip(ends, rates, strict=True))

    def route(self, source: int, target: int) -> Ints:
        """Return the links of one route, in order."""
        return self.routes(np.array([source]), np.array([target]))[1]

    def routes(self, source: Ints, target: Ints) -> tuple[Ints, Ints]:
        """Return the number of links of the route of each pair, and all their links, one route after the other."""
        for ends, found in self._recent:
            if ends[0] is source and ends[1] is target:
                return found
        at = self._store.find(source, target)
        first = self._store.start[at]
        counts = self._store.start[at + 1] - first
        found = counts, self._store.links[row_entries(first, counts)]
        self._recent = [((source, target), found), *self._recent[: _RECENT - 1]]
        return found

    def passing_routes(self, source: Ints, target: Ints) -> tuple[Ints, Ints, Ints]:
        """Return ``routes`` of very many pairs, which are not kept, and the latency class of each."""
        if not len(source):  # nothing is sent
            return source, source, source
        counts, links = self._cluster.routes(source, target)
        return counts, links, self._classes.classify(counts, links)

    def latency_classes(self, source: Ints, target: Ints) -> Ints:
        """Return the latency class of the route between each pair of devices."""
        at = self._store.find(source, target)  # before the classes are read, for it may add routes
        return self._store.latency_class[at]

    def latencies_s(self, source: Ints, target: Ints, size_bytes: Floats) -> Floats:
        """Return the latency of one message between each pair of devices, arrays of one shape."""
        return self.class_latencies(self.latency_classes(source, target), size_bytes)

    def class_latencies(self, classes: Ints, size_bytes: Floats) -> Floats:
        """Return the latency of one message on a route of each latency class, arrays of one shape."""
        return self._classes.latencies_s(classes, size_bytes)

    def least_latency_s(self, latency_class: int) -> float:
        """Return the least latency of a message of any size on a route of a class."""
        return self._classes.least_s(latency_class)

    def link_loads(self, source: Ints, target: Ints, size_bytes: Floats) -> Floats:
        """Return the bytes that messages between pairs of devices put on every link, shape (L,)."""
        counts, links = self.routes(source, target)
        loads = np.bincount(links, weights=np.repeat(size_bytes, counts), minlength=len(self.seconds_per_byte))
        return loads.astype(np.float64, copy=False)

    @cached_property
    def forward(self) -> RouteLevels:
        """All routes as the transfer kernel reads them."""
        self._store.add_all()
        start, links, classes = self._store.start, self._store.links, self._store.latency_class
        return levels_of(start, links, self.seconds_per_byte, classes, self._classes.functions())

    @cached_property
    def backward(self) -> RouteLevels:
        """All routes with sources and targets swapped; the object ``forward`` where routes and their links mirror."""
        forward = self.forward
        start, links, classes = self._store.start, self._store.links, self._store.latency_class
        if mirrors(start, links, self.seconds_per_byte, classes):
            return forward
        back = swapped_routes(start, links)
        return levels_of(*back, self.seconds_per_byte, transposed(classes), self._classes.functions())


def first_alike(network: ClusterRoutes, groups: Ints) -> tuple[int, ...]:
    """Return, for each group of devices, the first group that changing places of like parts turns it into.

    Routes between the members of one are then those of the other, but for which part they are in.

    Args:
        network: Routes of the cluster.
        groups: Shape (groups, p): devices.
    """
    if len(groups) == 1 or not len(network.like_parts[1]):
        return tuple(range(len(groups)))
    return _first_alike(network, groups.shape, groups.tobytes())


@lru_cache(maxsize=512)
def _first_alike(network: ClusterRoutes, shape: tuple[int, ...], devices: bytes) -> tuple[int, ...]:
    """Return ``first_alike`` of groups whose devices are given as bytes, as all algorithms of a library ask for it."""
    part, kind = network.like_parts
    groups, firsts = np.frombuffer(devices, dtype=np.int64).reshape(shape), dict[bytes, int]()
    parts = part[groups]
    columns = (_in_order(parts), kind[parts], _in_order(network.node[groups]), network.place[groups])
    return tuple(firsts.setdefault(row.tobytes(), g) for g, row in enumerate(np.concatenate(columns, axis=1)))


def _in_order(rows: Ints) -> Ints:
    """Return the rank of each value among the different ones of its row."""
    order = np.argsort(rows, axis=1, kind="stable")
    ordered = np.take_along_axis(rows, order, axis=1)
    ranks = np.empty_like(rows)
    np.put_along_axis(ranks, order, np.cumsum(np.diff(ordered, axis=1, prepend=ordered[:, :1]) != 0, axis=1), axis=1)
    return ranks


@lru_cache(maxsize=64)
def routes_of_cluster(cluster: DeviceGraph) -> ClusterRoutes:
    """Return the routes of a cluster, one object for each cluster."""
    return ClusterRoutes(cluster)
