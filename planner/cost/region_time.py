"""Time of regions that travel one by one between configurations on one mesh, for many pairs at once.

Each device reads what it lacks from every slice of a sum, and of the devices that hold the same from one, as
``planner.layouts.regions`` has it; all regions of a direction start together.
"""

from functools import lru_cache

import numpy as np

from groundwork.array_types import Floats, Ints
from planner.graph.shapes import IntervalMap, Shape
from planner.layouts.configurations import ConfigSpace
from planner.layouts.regions import held_regions, needed_regions, serving
from planner.topology.network_routes import ClusterRoutes


class RegionTimes:
    """Times between all configurations of two layers on one mesh.

    Args:
        network: Routes of the cluster.
        producer: Space of the layer that makes a tensor; all configurations have as many parts.
        consumer: Space of the layer that reads it, likewise.
        interval_maps: For each dimension of the tensor, the interval that the consumer's operation reads.
        source: Shape of the tensor.
        element_bytes: Bytes of one element.
    """

    def __init__(
        self,
        network: ClusterRoutes,
        producer: ConfigSpace,
        consumer: ConfigSpace,
        interval_maps: tuple[IntervalMap, ...],
        source: Shape,
        element_bytes: int,
    ) -> None:
        self._network, self._producer, self._consumer, self._bytes = network, producer, consumer, float(element_bytes)
        held, needed = held_regions(producer), needed_regions(consumer, interval_maps, source)
        shape = (-1, int(producer.parts[0]), len(source.sizes))
        self._held = held.low.reshape(shape), held.high.reshape(shape)
        self._needed = needed.low.reshape(shape), needed.high.reshape(shape)
        self._makers, self._readers = producer.devices.reshape(shape[:2]), consumer.devices.reshape(shape[:2])

    def forward_s(self, u: int, v: Ints) -> Floats:
        """Return the time to bring the tensor from configuration ``u`` to each of ``v``, seconds, shape (K,)."""
        sums, repeats = int(self._producer.sums[u]), int(self._producer.repeats[u])
        behind, makers, readers = int(self._producer.degrees[u, 2:].prod()), self._makers[u], self._readers[v]
        part = np.arange(len(makers)).reshape(-1, sums, behind, repeats)
        held = part[:, 0, :, 0].ravel()  # one part of each region
        holders = np.moveaxis(part, 1, 2).reshape(len(held), sums, repeats)  # all parts of it
        low, high = (each[u][held] for each in self._held)
        needed_low, needed_high = (each[v][:, :, None] for each in self._needed)
        shared = _overlaps(needed_low, needed_high, low, high)
        turn = np.cumsum(shared.reshape(len(v), -1) > 0, axis=1).reshape(shared.shape) - 1
        copy = serving(makers[holders] == readers[:, :, None, None, None], turn[..., None])
        region, place = np.indices(holders.shape[:2])
        sources = makers[holders[region, place, copy]]
        targets = np.broadcast_to(readers[:, :, None, None], sources.shape)
        return self._seconds(sources, targets, np.broadcast_to(shared[..., None], sources.shape))

    def backward_s(self, u: int, v: Ints) -> Floats:
        """Return the time to bring the gradient from each of ``v`` back to configuration ``u``; as ``forward_s``."""
        seconds, repeats_of = np.zeros(len(v)), self._consumer.repeats[v]
        makers, (low, high) = self._makers[u], (each[u][:, None] for each in self._held)
        for repeats in np.unique(repeats_of).tolist():
            rows = np.flatnonzero(repeats_of == repeats)
            readers = self._readers[v[rows]]
            needed_low, needed_high = (each[v[rows]][:, None, ::repeats] for each in self._needed)
            shared = _overlaps(low, high, needed_low, needed_high)
            groups = readers.reshape(len(rows), 1, -1, repeats)  # devices that make the same gradient
            copy = serving(groups == makers[:, None, None], np.arange(len(makers))[:, None])
            chosen = np.arange(shared.shape[2]) * repeats + copy
            sources = np.take_along_axis(readers[:, None], chosen, axis=2)
            targets = np.broadcast_to(makers[:, None], sources.shape)
            seconds[rows] = self._seconds(sources, targets, shared)
        return seconds

    def _seconds(self, sources: Ints, targets: Ints, elements: Ints) -> Floats:
        """Return the time of messages that start together, of shape (K, ...) each, for each of K pairs."""
        pairs, network = len(elements), self._network
        moved = np.flatnonzero((elements > 0) & (sources != targets))
        pair, size = moved // (elements.size // pairs), elements.ravel()[moved].astype(np.float64) * self._bytes
        ends = sources.ravel()[moved], targets.ravel()[moved]
        counts, links = network.routes(*ends)
        at = np.repeat(pair, counts) * len(network.seconds_per_byte) + links
        busy_s = np.repeat(size, counts) * network.seconds_per_byte[links]
        loads = np.bincount(at, busy_s, minlength=pairs * len(network.seconds_per_byte)).reshape(pairs, -1)
        longest_s = np.zeros(pairs)
        np.maximum.at(longest_s, pair, network.latencies_s(*ends, size))
        return np.asarray(loads.max(axis=1) + longest_s)


region_times = lru_cache(maxsize=64)(RegionTimes)
"""Returns the times between two layers, one object for equal arguments."""


def _overlaps(low: Ints, high: Ints, other_low: Ints, other_high: Ints) -> Ints:
    """Return the elements that regions share, whose last axis is that of their dimensions."""
    lengths = np.minimum(high, other_high) - np.maximum(low, other_low)
    return np.asarray(np.maximum(lengths, 0).prod(axis=-1))
