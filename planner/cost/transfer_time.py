"""Time to bring tensors from the layout of their producer to that of a consumer, and gradients back: t_x of Eq. 1.

Source: Jia et al., "Exploring Hidden Dimensions in Parallelizing Convolutional Neural Networks", ICML 2018, Sec. 5.1.
"""

import hashlib
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache, lru_cache
from typing import NamedTuple
from zlib import crc32

import numpy as np

from groundwork.array_types import Bools, Floats, Ints
from planner.cost.layout_time import steps_s
from planner.cost.overlaps import Overlaps, least_received, most_in_node, overlaps_of
from planner.cost.region_time import region_times
from planner.cost.transfer_bounds import bound_pairs, ends_of
from planner.cost.transfer_kernel import TransferPairs, price_pairs
from planner.graph.computation_graph import ComputationGraph, Edge
from planner.graph.shapes import IntervalMap, Shape
from planner.layouts.configurations import ConfigSpace
from planner.layouts.redistribution import Redistribution, gradient_layout, layouts_between, made_in, redistribution_of
from planner.layouts.regions import (
    TransferRegions,
    gradient_regions,
    layout_keys,
    needed_regions,
    transfer_regions,
)
from planner.layouts.shared_regions import (
    equal_gradients,
    shard_rows,
    shared_gradient_regions,
    shared_regions,
)
from planner.topology.network_routes import ClusterRoutes
from planner.topology.route_ends import FAR, route_ends
from planner.topology.route_levels import RouteLevels

_VISITS_PER_JOB = 5_000_000
"""Visits of a pair of devices in one job of a thread: about 50 ms of compiled code, which no signal interrupts."""
_BOUNDS_PER_JOB = 16_384
"""Pairs of configurations bounded in one job of a thread: about 50 ms of compiled code."""
EdgeTable = Callable[[Edge, ConfigSpace, ConfigSpace], Floats]
"""Transfer times of an edge: (edge, producer's space, consumer's space) to seconds, shape (C_u, C_v)."""


class LayoutTable(NamedTuple):
    """Times of transfers in one direction, and the layouts on which they depend beside that of the producer."""

    seconds: Floats
    """Shape (C_u, C_v)."""
    layout: Ints
    """Key of each of the consumer's configurations, shape (C_v,): consumers of one key share transfers."""


class TransferTimes:
    """Transfer times of a network's edges on a cluster's routes; equal edges share one table.

    Args:
        graph: The network with its batch.
        network: Routes of the cluster.
    """

    def __init__(self, graph: ComputationGraph, network: ClusterRoutes) -> None:
        self.graph, self.network = graph, network
        self.pairs_priced = 0
        """Number of pairs of configurations priced exactly so far."""
        self._tables: dict[tuple[object, ...], Floats] = {}
        self._layout_tables: dict[tuple[object, ...], LayoutTable] = {}
        self._shared_s: dict[tuple[object, ...], float] = {}
        """Times of shared parameters, by what tells apart their distributions over devices."""

    def table(self, edge: Edge, producer: ConfigSpace, consumer: ConfigSpace) -> Floats:
        """Return the transfer times of all pairs of configurations, forward and back.

        Args:
            edge: The edge.
            producer: Space of the layer that makes the tensor, C_u configurations.
            consumer: Space of the layer that reads it, C_v configurations.

        Returns:
            Seconds, shape (C_u, C_v); the same object for equal edges.
        """
        key = self.key(edge, producer, consumer)
        if key not in self._tables:
            # the time depends on the layout only: price one configuration of the consumer for each layout
            layouts = self.layouts(edge, consumer) if consumer.size > 1 else np.zeros(1)
            _, first, layout_of = np.unique(layouts, return_index=True, return_inverse=True)
            u, v = (grid.ravel() for grid in np.meshgrid(np.arange(producer.size), first, indexing="ij"))
            seconds = self.seconds(edge, producer, consumer, u, v).reshape(producer.size, -1)
            self._tables[key] = np.ascontiguousarray(seconds[:, layout_of])
        return self._tables[key]

    def least_s(self, edge: Edge, producer: ConfigSpace, consumer: ConfigSpace) -> Floats:
        """Return lower bounds of ``table`` of layers without copies, by what the links at one device or node carry.

        Args:
            edge: The edge.
            producer: Space of the layer that makes the tensor, C_u configurations.
            consumer: Space of the layer that reads it, C_v configurations.

        Returns:
            Seconds, shape (C_u, C_v).
        """
        if edge in self.graph.shared:
            return np.zeros((producer.size, consumer.size))
        # Configurations that hold equal parts, as many in a node, have one bound; so have those that read equal ones.
        ends, network, needs = route_ends(self.network), self.network, self._needs(edge)
        read = [consumer.output.dims.index(each.dim) for each in needs if each.dim in consumer.output.dims]
        (makers, u), (readers, v) = (
            _alike(space, np.column_stack((space.degrees[:, dims], _beside(network, space))))
            for space, dims in ((producer, slice(None)), (consumer, read))
        )
        least = least_received(makers, readers, needs, self._source(edge), network.node)
        element_bytes, ways = float(self.graph.element_bytes), 2 if self.graph.has_gradient(edge.producer) else 1
        every_s = least.most * (ways * element_bytes / network.widest_bytes_per_s)
        at_node = least.each_far * (most_in_node(readers, network.node) if len(readers.strides) else 1)
        far_s = np.zeros_like(every_s)
        for by_device, by_node, latency_s in (
            (ends.in_s_per_byte, ends.node_in_s_per_byte, ends.in_s),
            (ends.out_s_per_byte, ends.node_out_s_per_byte, ends.out_s),
        )[:ways]:
            busy_s = np.maximum(least.far * by_device[FAR].min(), at_node * by_node.min()) * element_bytes
            far_s += np.where(least.far > 0, busy_s + latency_s[FAR].min(), 0.0)
        return np.maximum(every_s, far_s).take(u, axis=0).take(v, axis=1)

    def bounds(
        self, edge: Edge, producer: ConfigSpace, consumer: ConfigSpace, u: Ints, v: Ints, enough_s: Floats
    ) -> Floats:
        """Return lower bounds of ``seconds`` of equally spaced configurations, by what a few devices send and receive.

        Arguments and result as of ``seconds``, and ``enough_s``, the bounds from which on no better one is of use,
        shape (K,).
        """
        seconds = np.zeros(len(u))
        if edge not in self.graph.shared:
            ends = ends_of(producer, consumer, self._needs(edge), self._source(edge))
            ways = 2 if self.graph.has_gradient(edge.producer) else 1
            routes, size = route_ends(self.network), float(self.graph.element_bytes)
            u, v = np.ascontiguousarray(u), np.ascontiguousarray(v)  # Numba would compile anew for views of arrays
            _in_jobs(
                len(u),
                _BOUNDS_PER_JOB,
                lambda rows: bound_pairs(u[rows], v[rows], ends, routes, size, ways, enough_s[rows], seconds[rows]),
            )
        return seconds

    def layout_table(
        self,
        edge: Edge,
        producer: ConfigSpace,
        consumer: ConfigSpace,
        *,
        backward: bool,
        keep: tuple[Bools, Bools] | None = None,
    ) -> LayoutTable:
        """Return the transfer times of pairs of configurations on one mesh, of a tensor or of its gradient.

        One configuration is priced for each different pair of layouts, as the program has them: by collectives along
        the axes of the mesh, or by regions one by one.

        Args:
            edge: The edge.
            producer: Space of the layer that makes the tensor, C_u configurations.
            consumer: Space of the layer that reads it, C_v configurations.
            backward: Whether the gradient is brought back.
            keep: Masks of the configurations to price, shapes (C_u,) and (C_v,); times of all others are zero.

        Returns:
            The table; the same object for equal edges and masks.
        """
        u, v = (np.flatnonzero(mask) for mask in keep) if keep else (np.arange(s.size) for s in (producer, consumer))
        key = (*self.key(edge, producer, consumer), backward, u.tobytes(), v.tobytes())
        if key not in self._layout_tables:
            layout = self._layout_keys(edge, consumer, backward=backward)
            seconds = np.zeros((producer.size, consumer.size))
            if not backward or self.graph.returns_gradient(edge):
                seconds[np.ix_(u, v)] = self._distinct(edge, producer, consumer, (u, v), layout[v], backward=backward)
            self._layout_tables[key] = LayoutTable(seconds, layout)
        return self._layout_tables[key]

    def _layout_keys(self, edge: Edge, consumer: ConfigSpace, *, backward: bool) -> Ints:
        """Return a key of the layout that each configuration of a consumer reads, or makes a gradient in; (C_v,)."""
        read = self.layouts(edge, consumer)
        if not backward and edge not in self.graph.shared:
            return read
        # a parameter is sent once to layers that need the same of it only if they make the same gradients, too
        kinds = [self._returned(edge, consumer.alone(v)) for v in range(consumer.size)]
        return np.array([_key(row) for row in zip(read.tolist(), kinds, strict=True)])

    def _distinct(
        self,
        edge: Edge,
        producer: ConfigSpace,
        consumer: ConfigSpace,
        pairs: tuple[Ints, Ints],
        layout: Ints,
        *,
        backward: bool,
    ) -> Floats:
        """Return the transfer times in one direction between configurations, one priced for each pair of layouts.

        Args:
            edge: The edge.
            producer: Space of the layer that makes the tensor.
            consumer: Space of the layer that reads it.
            pairs: Configurations of both.
            layout: Layouts of those of the consumer.
            backward: Whether the gradient is brought back.
        """
        made, rows = dict[tuple[object, ...], int](), list[Floats]()
        _, first, layout_of = np.unique(layout, return_index=True, return_inverse=True)
        makers = [producer.alone(u) for u in pairs[0].tolist()]
        keys = [(_made(maker), edge in self.graph.shared and int(maker.completed[0])) for maker in makers]
        for u, key in zip(pairs[0].tolist(), keys, strict=True):
            if made.setdefault(key, len(rows)) == len(rows):
                rows.append(self._from_one_s(edge, producer, consumer, u, pairs[1][first], backward=backward))
                self.pairs_priced += len(first)
        return np.array(rows)[[made[key] for key in keys]][:, layout_of]

    def _from_one_s(
        self, edge: Edge, producer: ConfigSpace, consumer: ConfigSpace, u: int, v: Ints, *, backward: bool
    ) -> Floats:
        """Return the transfer times between configuration ``u`` and each of ``v`` in one direction, shape (K,)."""
        maker, readers = producer.alone(u), [consumer.alone(each) for each in v.tolist()]
        if edge in self.graph.shared:
            return np.array([self._shared_way_s(edge, maker, reader, backward=backward) for reader in readers])
        network, element_bytes = self.network, self.graph.element_bytes
        needs, source, seconds = self._needs(edge), self._source(edge), np.full(len(v), np.nan)
        for k, reader in enumerate(readers):
            layouts = layouts_between(maker, reader, needs, source, backward=backward)
            if layouts is not None:
                seconds[k] = steps_s(network, *layouts, source, element_bytes)
        if (apart := np.isnan(seconds)).any():
            times = region_times(network, producer, consumer, needs, source, element_bytes)
            seconds[apart] = (times.backward_s if backward else times.forward_s)(u, v[apart])
        return seconds

    def _shared_way_s(self, edge: Edge, owner: ConfigSpace, borrower: ConfigSpace, *, backward: bool) -> float:
        """Return the time of a shared parameter in one direction, for a pair of configurations."""
        way = shared_gradient_regions if backward else shared_regions
        regions = way(owner, borrower, self.graph.shared[edge], self.network.device_count)
        regions = regions.take(owner.devices[regions.part] != regions.device)
        size = (regions.high - regions.low).prod(axis=1) * float(self.graph.element_bytes)
        ends = owner.devices[regions.part], regions.device
        return self.messages_s(*(ends[::-1] if backward else ends), size)

    def _returned(self, edge: Edge, consumer: ConfigSpace) -> tuple[object, ...]:
        """Return what tells apart the layouts in which a reader makes gradients of a tensor or a shared parameter."""
        if edge in self.graph.shared:
            equal = equal_gradients(consumer, self.graph.shared[edge].needed)
            return equal.shape, equal.tolist() if equal.shape[1] > 1 else []
        return gradient_layout(consumer, None)

    def seconds(self, edge: Edge, producer: ConfigSpace, consumer: ConfigSpace, u: Ints, v: Ints) -> Floats:
        """Compute the transfer times of pairs of configurations ``u[k]``, ``v[k]``, forward and back.

        Args:
            edge: The edge.
            producer: Space of the layer that makes the tensor.
            consumer: Space of the layer that reads it.
            u: Shape (K,): configurations of the producer.
            v: Shape (K,): configurations of the consumer.

        Returns:
            Seconds, shape (K,).
        """
        network = self.network
        if edge in self.graph.shared:
            return self._shared_seconds(edge, producer, consumer, u, v)
        if not network.has_tables:
            self.pairs_priced += len(u)
            ends = (([producer.alone(c) for c in u.tolist()]), [consumer.alone(c) for c in v.tolist()])
            return np.array([self._by_message_s(edge, *pair) for pair in zip(*ends, strict=True)])
        overlaps = overlaps_of(producer, consumer, self._needs(edge), self._source(edge), network.device_count)
        self.pairs_priced += len(u)

        def one_way_s(routes: RouteLevels) -> Floats:
            sent = _classes(routes.out_classes, producer)
            received = _classes(routes.in_classes, consumer)
            pairs = TransferPairs(
                np.ascontiguousarray(u), np.ascontiguousarray(v), sent, received, float(self.graph.element_bytes)
            )
            return _priced(pairs, overlaps, routes)

        forward_s = one_way_s(network.forward)
        if not self.graph.has_gradient(edge.producer):
            return forward_s
        if network.backward is network.forward:
            return 2 * forward_s
        return forward_s + one_way_s(network.backward)

    def _by_message_s(self, edge: Edge, producer: ConfigSpace, consumer: ConfigSpace) -> float:
        """Return the time between one configuration of producer and consumer each, forward and back, by message."""
        regions = self.regions(edge, producer, consumer)
        regions = regions.take(producer.devices[regions.part] != regions.device)
        ends = producer.devices[regions.part], regions.device
        size = (regions.high - regions.low).prod(axis=1) * float(self.graph.element_bytes)
        ways = (ends, ends[::-1])[: 1 + self.graph.has_gradient(edge.producer)]
        return sum(self.messages_s(*way, size) for way in ways)

    def message_count(self, spaces: Sequence[ConfigSpace], producer: int) -> int:
        """Return the number of messages of the tensor that a layer makes, and of its gradient.

        Args:
            spaces: For every layer the space that holds its one configuration.
            producer: The layer.
        """
        degrees, sizes = spaces[producer].degrees[0], np.array(self.graph.layers[producer].output.sizes)
        by_layout: dict[int, int] = {}
        for edge in self.graph.consumers[producer]:
            needed = needed_regions(spaces[edge.consumer], self._needs(edge), self._source(edge))
            # parts of the producer that a needed region meets, in each dimension
            met = -(-needed.high * degrees // sizes) - needed.low * degrees // sizes
            pairs = int(met.prod(axis=1).sum())
            layout = int(self.layouts(edge, spaces[edge.consumer])[0])
            by_layout[layout] = max(pairs - len(spaces[edge.consumer].devices), 0)  # a device may hold one part itself
        return sum(by_layout.values()) * (1 + self.graph.has_gradient(producer))

    def layouts(self, edge: Edge, consumer: ConfigSpace) -> Ints:
        """Return the layout of the tensor that each configuration of the consumer reads, shape (C_v,), as a key."""
        keys = layout_keys(consumer, self._needs(edge), self._source(edge))
        if edge not in self.graph.shared:
            return keys
        # another tensor of the same layer may have the same regions: its layouts must have other keys
        return keys ^ np.int64(crc32(self.graph.shared[edge].name.encode()) << 16 | 1)

    def regions(
        self, edge: Edge, producer: ConfigSpace, consumer: ConfigSpace, *, in_turn: bool = True
    ) -> TransferRegions:
        """Return the regions that a consumer needs of a tensor or a shared parameter, by the parts that hold them.

        Args:
            edge: The edge, or the way of the parameter.
            producer: Space of the layer that makes the tensor or trains the parameter, with one configuration.
            consumer: Space of the layer that reads it, with one configuration.
            in_turn: As for ``transfer_regions``.
        """
        if edge in self.graph.shared:
            return shared_regions(producer, consumer, self.graph.shared[edge], self.network.device_count)
        ends = producer, consumer, self._needs(edge), self._source(edge)
        return transfer_regions(*ends, self.network.device_count, in_turn=in_turn)

    def gradient_regions(self, edge: Edge, producer: ConfigSpace, consumer: ConfigSpace) -> TransferRegions:
        """Return the regions of a tensor's gradient that travel back; arguments as for ``regions``."""
        return gradient_regions(producer, consumer, self._needs(edge), self._source(edge))

    def redistribution(self, edge: Edge, producer: ConfigSpace, consumer: ConfigSpace) -> Redistribution | None:
        """Return the collectives that bring a tensor; None where regions travel one by one; arguments as before."""
        return redistribution_of(producer, consumer, self._needs(edge), self._source(edge))

    def key(self, edge: Edge, producer: ConfigSpace, consumer: ConfigSpace) -> tuple[object, ...]:
        """Return what the transfer times of an edge depend on: edges with equal keys have equal tables."""
        held = self.graph.shared.get(edge)
        needs, source = self._needs(edge), self._source(edge)
        return (producer, consumer, needs, source, self.graph.returns_gradient(edge), held)

    def messages_s(self, source: Ints, target: Ints, size_bytes: Floats) -> float:
        """Return the time of messages that start together: of the busiest link, and the longest latency.

        Args:
            source: Senders, shape (K,).
            target: Receivers, shape (K,).
            size_bytes: Shape (K,).
        """
        if not len(size_bytes):
            return 0.0
        busy_s = self.network.link_loads(source, target, size_bytes) * self.network.seconds_per_byte
        return float(busy_s.max() + self.network.latencies_s(source, target, size_bytes).max())

    def _shared_seconds(self, edge: Edge, owner: ConfigSpace, borrower: ConfigSpace, u: Ints, v: Ints) -> Floats:
        """Return the times of a shared parameter, message by message; distributions over devices are priced once."""
        shared = self.graph.shared[edge]
        held = {c: shard_rows(owner, c, shared.held, shared) for c in np.unique(u).tolist()}
        needed = {c: shard_rows(borrower, c, shared.needed, shared) for c in np.unique(v).tolist()}
        keys = [{c: rows.key for c, rows in each.items()} for each in (held, needed)]
        seconds = np.empty(len(u))
        for k, (a, b) in enumerate(zip(u.tolist(), v.tolist(), strict=True)):
            key = (shared.shape, shared.frozen, keys[0][a], keys[1][b])
            if key not in self._shared_s:
                ends = edge, owner.alone(a), borrower.alone(b)
                ways = (False,) if shared.frozen else (False, True)
                self._shared_s[key] = sum(self._shared_way_s(*ends, backward=way) for way in ways)
            seconds[k] = self._shared_s[key]
        return seconds

    def _needs(self, edge: Edge) -> tuple[IntervalMap, ...]:
        if edge in self.graph.shared:
            return self.graph.shared[edge].needed
        layer = self.graph.layers[edge.consumer]
        return layer.operation.interval_maps(edge.slot, layer.input_shapes)

    def _source(self, edge: Edge) -> Shape:
        if edge in self.graph.shared:
            return self.graph.shared[edge].shape
        return self.graph.layers[edge.producer].output


@lru_cache(maxsize=1024)
def _beside(network: ClusterRoutes, space: ConfigSpace) -> Ints:
    """Return the most parts of each configuration that lie in one node; see ``most_in_node``."""
    return most_in_node(space, network.node)


def _alike(space: ConfigSpace, rows: Ints) -> tuple[ConfigSpace, Ints]:
    """Return the first configuration of each different row, and which of these each is like."""
    _, first, at = np.unique(rows, axis=0, return_index=True, return_inverse=True)
    return (space, np.arange(space.size)) if len(first) == space.size else (space.only(first), at.ravel())


def _made(space: ConfigSpace) -> tuple[object, ...]:
    """Return what tells apart the layouts in which a layer makes its output; its space has one configuration."""
    counts = (space.degrees.tobytes(), int(space.sums[0]), int(space.repeats[0]))
    return (space.given and made_in(space), *counts, space.devices.tobytes())


def _key(row: object) -> int:
    """Return a key of what tells layouts apart, equal in every run: results must not depend on how it is hashed."""
    digest = hashlib.blake2b(repr(row).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little", signed=True)


def _classes(bits: Ints, space: ConfigSpace) -> Ints:
    """Join the latency classes of the devices of each configuration; bits by device, shape (n,), to shape (C,)."""
    return np.asarray(np.bitwise_or.reduceat(bits[space.devices], space.device_start[:-1]))


def _priced(pairs: TransferPairs, overlaps: Overlaps, routes: RouteLevels) -> Floats:
    """Price pairs of configurations in one direction, on all processor cores where there are many."""
    count = len(pairs.producer)
    seconds = np.empty(count)

    def price(rows: slice) -> None:
        chunk = pairs._replace(producer=pairs.producer[rows], consumer=pairs.consumer[rows])
        price_pairs(chunk, overlaps, routes, seconds[rows])

    _in_jobs(count, max(_VISITS_PER_JOB // len(routes.block) ** 2, 1), price)
    return seconds


def _in_jobs(count: int, size: int, work: Callable[[slice], None]) -> None:
    """Work through rows of arrays, so many at a time, on all processor cores where there are many."""
    jobs = [slice(first, first + size) for first in range(0, count, size)]
    if len(jobs) <= 1:
        work(slice(None))
        return
    pool = _pool()
    try:
        list(pool.map(work, jobs))
    except BaseException:
        # A thread that a signal met while it was started would be waited for at the end of the program, as only the
        # pool knows of it.
        pool.shutdown(wait=False, cancel_futures=True)
        _pool.cache_clear()
        raise


@cache
def _pool() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(os.cpu_count(), thread_name_prefix="transfers")
