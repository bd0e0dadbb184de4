"""A cluster's routes as the arrays that pricing and lowering read: one source for both."""

from collections.abc import Sequence
from dataclasses import dataclass
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from hwprofiles.device_graph import DeviceGraph, Latency
from planner.route_levels import RouteLevels, levels_of

__all__ = ["Network", "network_of"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Network:
    """Routes between every pair of devices; pair (a, b) of n devices is row ``a * n + b``.

    Routes with the same links' latencies form one latency class: a piecewise-linear function of the
    message size, constant beyond its first and last point.
    """

    device_count: int
    route_start: Ints
    route_links: Ints
    seconds_per_byte: Floats
    """Shape (L,): inverse bandwidth of every link."""
    latency_class: Ints
    """Shape (n * n,)."""
    class_start: Ints
    class_size_bytes: Floats
    class_latency_s: Floats
    node: Ints
    """Shape (n,): node of every device."""
    forward: RouteLevels
    """The same routes as the pricing of transfers reads them."""
    backward: RouteLevels
    """The same with sources and targets swapped; the object ``forward`` where routes and their links mirror."""

    def route(self, source: int, target: int) -> Ints:
        """Links of the route, in order."""
        row = source * self.device_count + target
        return self.route_links[self.route_start[row] : self.route_start[row + 1]]

    def routes(self, source: Ints, target: Ints) -> tuple[Ints, Ints]:
        """Links of many routes, one route after the other: their counts, and all links in order."""
        rows = source * self.device_count + target
        counts = self.route_start[rows + 1] - self.route_start[rows]
        first = np.repeat(self.route_start[rows] - (np.cumsum(counts) - counts), counts)
        return counts, self.route_links[first + np.arange(len(first))]

    def latencies_s(self, source: Ints, target: Ints, size_bytes: Floats) -> Floats:
        """Latency of one message between each pair of devices, arrays of one shape."""
        classes = self.latency_class[source * self.device_count + target]
        latencies = np.zeros(len(classes))
        for index in np.unique(classes).tolist():
            latencies[classes == index] = self.class_latency(index, size_bytes[classes == index])
        return latencies

    def class_latency(self, index: int, size_bytes: Floats | float) -> Floats:
        """Latency of one message on routes of a latency class; shape of ``size_bytes``."""
        row = slice(self.class_start[index], self.class_start[index + 1])
        return np.asarray(np.interp(size_bytes, self.class_size_bytes[row], self.class_latency_s[row]))

    def link_loads(self, source: Ints, target: Ints, size_bytes: Floats) -> Floats:
        """Bytes that messages between pairs of devices put on every link, shape (L,)."""
        counts, links = self.routes(source, target)
        loads = np.bincount(links, weights=np.repeat(size_bytes, counts), minlength=len(self.seconds_per_byte))
        return loads.astype(np.float64, copy=False)


_KNOWN: WeakKeyDictionary[DeviceGraph, Network] = WeakKeyDictionary()


def network_of(cluster: DeviceGraph) -> Network:
    """The network of a cluster, made once and kept as long as the cluster."""
    if cluster not in _KNOWN:
        _KNOWN[cluster] = _build(cluster)
    return _KNOWN[cluster]


def _build(cluster: DeviceGraph) -> Network:
    table, count = cluster.route_table(), len(cluster.devices)
    start, links = table.start.astype(np.int64), table.links.astype(np.int64)
    kinds: dict[Latency, int] = {}
    link_kind = np.array([kinds.setdefault(link.latency, len(kinds)) for link in cluster.links], dtype=np.int64)
    classes: dict[bytes, int] = {}
    members: list[list[int]] = []
    latency_class = np.zeros(count * count, dtype=np.int64)
    for row in range(count * count):
        signature = np.sort(link_kind[links[start[row] : start[row + 1]]])
        key = signature.tobytes()
        if key not in classes:
            classes[key] = len(classes)
            members.append(signature.tolist())
        latency_class[row] = classes[key]
    functions = [_sum_of(list(kinds), row) for row in members]
    packed = (
        np.cumsum([0] + [len(sizes) for sizes, _ in functions]).astype(np.int64),
        np.concatenate([sizes for sizes, _ in functions]),
        np.concatenate([seconds for _, seconds in functions]),
    )
    seconds_per_byte = 1.0 / cluster.bandwidth
    forward = levels_of(start, links, seconds_per_byte, latency_class, packed)
    backward = forward
    if not _mirrors(start, links, seconds_per_byte, latency_class):
        backward = levels_of(*_swapped(start, links), seconds_per_byte, _transposed(latency_class), packed)
    return Network(
        device_count=count,
        route_start=start,
        route_links=links,
        seconds_per_byte=seconds_per_byte,
        latency_class=latency_class,
        class_start=packed[0],
        class_size_bytes=packed[1],
        class_latency_s=packed[2],
        node=np.array([device.node for device in cluster.devices], dtype=np.int64),
        forward=forward,
        backward=backward,
    )


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
