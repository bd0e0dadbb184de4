"""A cluster's routes as the arrays that pricing and lowering read: one source for both.

Routes are found when they are first asked for: a ring over thousands of devices needs as many routes, not their square.
"""

from collections.abc import Sequence
from functools import cached_property, lru_cache

import numpy as np

from hwprofiles import Floats, Ints
from hwprofiles.devices import DeviceGraph, Latency
from planner.topology.route_levels import RouteLevels, levels_of

__all__ = ["ClusterRoutes", "routes_of_cluster"]


_TABLE_DEVICES = 512
"""Up to so many devices the routes between all of them are found at once."""


class ClusterRoutes:
    """Routes between the n devices of a cluster; pair (a, b) is row ``a * n + b``.

    Routes with the same links' latencies form one latency class: a piecewise-linear function of the
    message size, constant beyond its first and last point.
    """

    def __init__(self, cluster: DeviceGraph) -> None:
        self.device_count = len(cluster.devices)
        self.seconds_per_byte: Floats = 1.0 / cluster.bandwidth
        """Shape (L,): inverse bandwidth of every link."""
        self.node: Ints = np.array([device.node for device in cluster.devices], dtype=np.int64)
        """Shape (n,): node of every device."""
        self._cluster = cluster
        kinds: dict[Latency, int] = {}
        self._link_kind = np.array(
            [kinds.setdefault(link.latency, len(kinds)) for link in cluster.links], dtype=np.int64
        )
        self._kinds = list(kinds)
        self._class_of: dict[bytes, int] = {}
        self._functions: list[tuple[Floats, Floats]] = []
        self._forget()

    @property
    def has_tables(self) -> bool:
        """Whether the cluster is small enough for the routes between all devices: ``forward`` and ``backward``."""
        return self.device_count <= _TABLE_DEVICES

    def _forget(self) -> None:
        none = np.empty(0, dtype=np.int64)
        self._rows, self._start, self._links, self._classes = none, np.zeros(1, dtype=np.int64), none, none

    @cached_property
    def rack(self) -> Ints:
        """Shape (n,): rack of every device, as the names of nodes tell: ``rack0/node3``; 0 where they tell none."""
        paths = [device.name.split("/") for device in self._cluster.devices]
        shared: dict[int, list[str]] = {}
        for node, path in zip(self.node.tolist(), paths, strict=True):
            known = shared.setdefault(node, path[:-1])
            same = next((i for i, pair in enumerate(zip(known, path, strict=False)) if pair[0] != pair[1]), len(known))
            shared[node] = known[:same]
        numbers: dict[tuple[str, ...], int] = {}
        rack = {node: numbers.setdefault(tuple(path[:-1]), len(numbers)) for node, path in shared.items()}
        return np.array([rack[node] for node in self.node.tolist()], dtype=np.int64)

    @cached_property
    def rank(self) -> Ints:
        """Shape (n,): place of every device among the replicas of an exchange.

        Node by node, and in each node the devices with the best ways out first and last: a ring enters and leaves a
        node there, and a server or a tree's root is the first.  Nodes of one size are taken to be wired alike.
        """
        members = np.split(np.argsort(self.node, kind="stable"), np.cumsum(np.bincount(self.node))[:-1])
        places: dict[int, Ints] = {}
        for devices in members:
            if len(devices) not in places:
                places[len(devices)] = self._places(devices)
        order = np.concatenate([devices[places[len(devices)]] for devices in members])
        rank = np.empty_like(order)
        rank[order] = np.arange(len(order))
        return rank

    def _places(self, devices: Ints) -> Ints:
        """Order of the devices of a node: best ways to another node first and last."""
        others = np.flatnonzero(self.node != self.node[devices[0]])
        if len(others) == 0 or len(devices) < 3:
            return np.arange(len(devices))
        away = np.full(len(devices), others[0])
        cost = np.zeros(len(devices))
        for ends in ((devices, away), (away, devices)):
            counts, links = self.routes(*ends)
            cost += np.bincount(np.repeat(np.arange(len(devices)), counts), self.seconds_per_byte[links])
        near = np.argsort(cost.round(15), kind="stable")
        alike = near[np.isclose(cost[near], cost[near[0]], rtol=1e-9, atol=0.0)]
        first, last = near[0], alike[-1] if len(alike) > 1 else near[1]
        middle = [place for place in range(len(devices)) if place not in (first, last)]
        return np.array([first, *middle, last])

    def route(self, source: int, target: int) -> Ints:
        """Links of the route, in order."""
        return self.routes(np.array([source]), np.array([target]))[1]

    def routes(self, source: Ints, target: Ints) -> tuple[Ints, Ints]:
        """Links of many routes, one route after the other: their counts, and all links in order."""
        at = self._find(source, target)
        counts = self._start[at + 1] - self._start[at]
        first = np.repeat(self._start[at] - (np.cumsum(counts) - counts), counts)
        return counts, self._links[first + np.arange(len(first))]

    def latency_classes(self, source: Ints, target: Ints) -> Ints:
        """Latency class of the route between each pair of devices."""
        at = self._find(source, target)  # may find routes, and classes, anew
        return self._classes[at]

    def latencies_s(self, source: Ints, target: Ints, size_bytes: Floats) -> Floats:
        """Latency of one message between each pair of devices, arrays of one shape."""
        return self.class_latencies(self.latency_classes(source, target), size_bytes)

    def class_latencies(self, classes: Ints, size_bytes: Floats) -> Floats:
        """Latency of one message on routes of each latency class, arrays of one shape."""
        latencies = np.zeros(len(classes))
        for index in np.flatnonzero(np.bincount(classes)).tolist():
            mine = classes == index
            latencies[mine] = np.interp(size_bytes[mine], *self._functions[index])
        return latencies

    def link_loads(self, source: Ints, target: Ints, size_bytes: Floats) -> Floats:
        """Bytes that messages between pairs of devices put on every link, shape (L,)."""
        counts, links = self.routes(source, target)
        loads = np.bincount(links, weights=np.repeat(size_bytes, counts), minlength=len(self.seconds_per_byte))
        return loads.astype(np.float64, copy=False)

    @cached_property
    def forward(self) -> RouteLevels:
        """All routes as the pricing of transfers reads them."""
        self._add_all()
        return levels_of(self._start, self._links, self.seconds_per_byte, self._classes, self._packed())

    @cached_property
    def backward(self) -> RouteLevels:
        """The same with sources and targets swapped; the object ``forward`` where routes and their links mirror."""
        forward, start, links = self.forward, self._start, self._links
        if _mirrors(start, links, self.seconds_per_byte, self._classes):
            return forward
        return levels_of(*_swapped(start, links), self.seconds_per_byte, _transposed(self._classes), self._packed())

    def _packed(self) -> tuple[Ints, Floats, Floats]:
        """Offsets, sizes in bytes and seconds of the latency classes."""
        return (
            np.cumsum([0] + [len(sizes) for sizes, _ in self._functions]).astype(np.int64),
            np.concatenate([sizes for sizes, _ in self._functions]),
            np.concatenate([seconds for _, seconds in self._functions]),
        )

    def _find(self, source: Ints, target: Ints) -> Ints:
        """Where each pair's route is kept."""
        if self.has_tables:
            self._add_all()
        rows = source * self.device_count + target
        if len(self._rows) == self.device_count**2:
            return rows
        missing = np.setdiff1d(rows, self._rows)
        if len(missing):
            pairs = zip(*(part.tolist() for part in np.divmod(missing, self.device_count)), strict=True)
            found = [self._cluster.route(a, b) for a, b in pairs]
            lengths = np.array([len(route) for route in found], dtype=np.int64)
            self._add(missing, lengths, np.array([link for route in found for link in route], dtype=np.int64))
        return np.searchsorted(self._rows, rows)

    def _add_all(self) -> None:
        if len(self._rows) < self.device_count**2:
            table = self._cluster.route_table()
            self._forget()
            self._add(np.arange(self.device_count**2), np.diff(table.start), table.links.astype(np.int64))

    def _add(self, rows: Ints, lengths: Ints, links: Ints) -> None:
        """Keep more routes, in order of their rows."""
        everyone = np.concatenate([self._rows, rows])
        counts = np.concatenate([np.diff(self._start), lengths])
        packed = np.concatenate([self._links, links])
        classes = np.concatenate([self._classes, self._classified(lengths, links)])
        order = np.argsort(everyone, kind="stable")
        first = np.cumsum(counts) - counts
        start = np.concatenate(([0], np.cumsum(counts[order])))
        shift = np.repeat(first[order] - start[:-1], counts[order])
        self._rows, self._start, self._classes = everyone[order], start, classes[order]
        self._links = packed[shift + np.arange(len(packed))]

    def _classified(self, lengths: Ints, links: Ints) -> Ints:
        """Latency classes of routes, by how many links of each kind they cross."""
        count, kinds = len(lengths), len(self._kinds)
        cell = np.repeat(np.arange(count), lengths) * kinds + self._link_kind[links]
        crossed = np.bincount(cell, minlength=count * kinds).reshape(count, kinds)
        code, radix = np.zeros(count, dtype=np.int64), int(lengths.max(initial=0)) + 1
        for kind in range(kinds):  # renumbered on the way, so that codes stay small
            code = np.unique(code * radix + crossed[:, kind], return_inverse=True)[1]
        _, example = np.unique(code, return_index=True)
        return np.array([self._class(crossed[row]) for row in example.tolist()], dtype=np.int64)[code]

    def _class(self, crossed: Ints) -> int:
        key = crossed.tobytes()
        if key not in self._class_of:
            self._class_of[key] = len(self._functions)
            self._functions.append(_sum_of(self._kinds, np.repeat(np.arange(len(crossed)), crossed).tolist()))
        return self._class_of[key]


@lru_cache(maxsize=64)
def routes_of_cluster(cluster: DeviceGraph) -> ClusterRoutes:
    """The network of a cluster, made once."""
    return ClusterRoutes(cluster)


def _transposed(values: Ints) -> Ints:
    """Values of rows ``a * n + b`` in the order of rows ``b * n + a``."""
    count = round(len(values) ** 0.5)
    return np.ascontiguousarray(values.reshape(count, count).T).ravel()


def _swapped(start: Ints, links: Ints) -> tuple[Ints, Ints]:
    """Routes by target, then source."""
    lengths = _transposed(np.diff(start))
    swapped = np.concatenate(([0], np.cumsum(lengths)))
    first = np.repeat(_transposed(start[:-1]) - swapped[:-1], lengths)
    return swapped, links[first + np.arange(len(links))]


def _mirrors(start: Ints, links: Ints, seconds_per_byte: Floats, latency_class: Ints) -> bool:
    """Whether every route goes back over the opposite links, equally fast: gradients then cost what values do."""
    back_start, back = _swapped(start, links)
    if not (np.array_equal(start, back_start) and np.array_equal(latency_class, _transposed(latency_class))):
        return False
    place = np.arange(len(links)) - np.repeat(start[:-1], np.diff(start))
    last = np.repeat(start[1:] - 1, np.diff(start))
    opposite = np.arange(len(seconds_per_byte))
    opposite[links] = back[last - place]
    return np.array_equal(opposite[links], back[last - place]) and np.array_equal(
        seconds_per_byte[opposite], seconds_per_byte
    )


def _sum_of(latencies: Sequence[Latency], members: Sequence[int]) -> tuple[Floats, Floats]:
    """The sum of piecewise-linear functions: on the union of their points it is exact."""
    sizes = np.unique(np.concatenate([[0.0], *(latencies[i].sizes_bytes for i in members)]))
    seconds = np.zeros_like(sizes)
    for i in members:
        seconds += np.interp(sizes, latencies[i].sizes_bytes, latencies[i].seconds)
    return sizes, seconds
