"""Lower bounds of transfer times between equally spaced configurations, from what a few devices send and receive.

All bytes that a device lacks arrive over the same links at its end (``planner.topology.route_ends``), and those of a
node over links of its own where its devices share them.  The first region, the middle one and the last stand for all,
and the same parts of the producer: where all devices do the same, the bound is the time of the busiest link.
"""

from functools import lru_cache
from itertools import chain
from typing import Any, NamedTuple

import numpy as np

from groundwork.array_types import Floats, Ints
from planner.graph.shapes import IntervalMap, Shape
from planner.layouts.configurations import ConfigSpace, part_bounds
from simulator.compiled.jit import inner, kernel

_SAMPLES = 3
"""Regions, and parts, of which the bytes are counted."""


class Ends(NamedTuple):
    """What the producer of a tensor holds, and what a consumer needs, by degrees; compiled code reads the fields.

    The tensor has D dimensions, the consumer's output E; there are C_u and C_v configurations.
    """

    sizes: Ints
    """Shape (D,)."""
    held_degrees: Ints
    """Shape (C_u, D)."""
    held_strides: Ints
    """Shape (C_u,)."""
    read_degrees: Ints
    """Shape (C_v, E)."""
    read_strides: Ints
    """Shape (C_v,)."""
    reads: Ints
    """Dimension of the consumer that splits each of the tensor, shape (D,); -1 where it reads all of it."""
    first: Ints
    """Place of the intervals of each configuration of the consumer in ``low`` and ``high``, shape (C_v, D)."""
    low: Ints
    """First elements of intervals."""
    high: Ints
    """Ends of intervals."""
    grain: Ints
    """Elements of each dimension of the tensor that all bounds of parts and intervals are multiples of, shape (D,)."""
    read: Floats
    """Elements of the tensor's dimension before each grain that are read, once for each interval that has them."""
    read_first: Ints
    """Place of the rows of each configuration of the consumer in ``read``, shape (C_v, D)."""
    copies: Floats
    """Number of equal regions of each configuration of the consumer, shape (C_v,)."""


@lru_cache(maxsize=1024)
def ends_of(
    producer: ConfigSpace, consumer: ConfigSpace, interval_maps: tuple[IntervalMap, ...], source: Shape
) -> Ends:
    """Return what the parts of a producer hold, and those of a consumer need.

    Args:
        producer: Configurations of the layer that makes the tensor.
        consumer: Configurations of the layer that reads it.
        interval_maps: For each dimension of the tensor, the interval of it that a part of the consumer reads.
        source: Shape of the tensor.
    """
    dims = consumer.output.dims
    reads = [dims.index(each.dim) if each.dim in dims else -1 for each in interval_maps]
    lows, highs, covers, grains = list[Ints](), list[Ints](), list[Floats](), list[int]()
    first, read_first = (np.empty((consumer.size, len(reads)), dtype=np.int64) for _ in range(2))
    at = 0
    for d, (size, each, split) in enumerate(zip(source.sizes, interval_maps, reads, strict=True)):
        degrees = consumer.degrees[:, split] if split >= 0 else np.ones(consumer.size, dtype=np.int64)
        whole = consumer.output.sizes[split] if split >= 0 else 1
        each_degree = np.unique(degrees).tolist()
        bounds = [part_bounds(whole, degree) for degree in each_degree]
        intervals = [each.interval(ends[:-1], ends[1:], size) for ends in bounds]
        held = [part_bounds(size, degree) for degree in np.unique(producer.degrees[:, d]).tolist()]
        grain = int(np.gcd.reduce(np.concatenate([*held, *chain.from_iterable(intervals)])))
        grains.append(grain)
        for degree, (low, high) in zip(each_degree, intervals, strict=True):
            same = degrees == degree
            first[same, d], read_first[same, d] = sum(map(len, lows)), at
            covered = np.zeros(size // grain + 1)
            np.add.at(covered, low // grain, grain)
            np.add.at(covered, high // grain, -grain)
            covers.append(np.concatenate([[0.0], np.cumsum(np.cumsum(covered)[:-1])]))
            lows.append(low)
            highs.append(high)
            at += len(covered)
    unread = [e for e in range(len(dims)) if e not in reads]
    return Ends(
        sizes=np.array(source.sizes),
        held_degrees=producer.degrees,
        held_strides=producer.strides,
        read_degrees=consumer.degrees,
        read_strides=consumer.strides,
        reads=np.array(reads),
        first=first,
        low=np.concatenate(lows),
        high=np.concatenate(highs),
        grain=np.array(grains),
        read=np.concatenate(covers),
        read_first=read_first,
        copies=consumer.degrees[:, unread].prod(axis=1).astype(np.float64),
    )


@kernel(lambda producer, *_: 3e-4 * len(producer))
def bound_pairs(
    producer: Any, consumer: Any, ends: Any, routes: Any, element_bytes: float, ways: int, enough_s: Any, cost_s: Any
) -> None:
    """Fill ``cost_s`` with lower bounds of the transfer times of pairs of configurations.

    Args:
        producer: Configuration of the producer, shape (K,).
        consumer: Configuration of the consumer, shape (K,).
        ends: An ``Ends``.
        routes: A ``RouteEnds``.
        element_bytes: Bytes of one element.
        ways: 1 for the tensor alone, 2 with its gradient.
        enough_s: Bound of each pair from which on no better one is of use, shape (K,).
        cost_s: Shape (K,), seconds; written.
    """
    dims = len(ends.sizes)
    # first elements and ends of a region or a part, and of those that it is compared with
    box, other = np.empty((2, dims), np.int64), np.empty((2, dims), np.int64)
    index = np.empty(ends.read_degrees.shape[1], np.int64)
    for k in range(len(producer)):
        u, v = producer[k], consumer[k]
        parts, regions = 1, 1
        for d in range(dims):
            parts *= ends.held_degrees[u, d]
        for e in range(len(index)):
            regions *= ends.read_degrees[v, e]
        forward, backward = 0.0, 0.0
        for sample in range(_SAMPLES):
            if forward + (backward if ways > 1 else 0.0) > enough_s[k]:
                break
            # a region in the middle of every dimension has neighbours on both sides
            q = _place(ends.read_degrees[v], sample)
            here = q * ends.read_strides[v]
            _region(ends, v, q, index, box)
            near, far = _received(ends, routes, u, parts, here, box, other)
            shared = 0.0
            if far > 0.0 and routes.node_in_s_per_byte[here] > 0.0:
                for m in range(routes.node_start[here], routes.node_stop[here]):
                    beside = routes.members[m]
                    if beside % ends.read_strides[v] == 0 and beside // ends.read_strides[v] < regions:
                        _region(ends, v, beside // ends.read_strides[v], index, box)
                        shared += _received(ends, routes, u, parts, beside, box, other)[1]
            forward = max(forward, _in_s(near, far, shared, element_bytes, routes, here))
            backward = max(backward, _out_s(near, far, shared, element_bytes, routes, here))
            p = _place(ends.held_degrees[u], sample)
            here = p * ends.held_strides[u]
            _part(ends, u, p, box)
            near, far = _sent(ends, routes, v, regions, here, box, other, index)
            shared = 0.0
            if far > 0.0 and routes.node_out_s_per_byte[here] > 0.0:
                for m in range(routes.node_start[here], routes.node_stop[here]):
                    beside = routes.members[m]
                    if beside % ends.held_strides[u] == 0 and beside // ends.held_strides[u] < parts:
                        _part(ends, u, beside // ends.held_strides[u], box)
                        shared += _sent(ends, routes, v, regions, beside, box, other, index)[1]
            forward = max(forward, _out_s(near, far, shared, element_bytes, routes, here))
            backward = max(backward, _in_s(near, far, shared, element_bytes, routes, here))
        cost_s[k] = forward + (backward if ways > 1 else 0.0)


@inner
def _place(degrees: Any, sample: int) -> Any:
    """Return the number of a part in the middle of each dimension (sample 0), of the last part, or of the first."""
    place = 0
    for d in range(len(degrees)):
        place = place * degrees[d] + (degrees[d] // 2 if sample == 0 else degrees[d] - 1 if sample == 1 else 0)
    return place


@inner
def _part(ends: Any, u: int, p: int, box: Any) -> None:
    """Write the bounds of a part of the producer."""
    for d in range(len(ends.sizes) - 1, -1, -1):
        degree, size = ends.held_degrees[u, d], ends.sizes[d]
        i = p % degree
        p //= degree
        box[0, d], box[1, d] = i * size // degree, (i + 1) * size // degree


@inner
def _region(ends: Any, v: int, q: int, index: Any, box: Any) -> None:
    """Write the bounds of the region that a part of the consumer needs."""
    for e in range(len(index) - 1, -1, -1):
        index[e] = q % ends.read_degrees[v, e]
        q //= ends.read_degrees[v, e]
    for d in range(len(ends.sizes)):
        at = ends.first[v, d] + (index[ends.reads[d]] if ends.reads[d] >= 0 else 0)
        box[0, d], box[1, d] = ends.low[at], ends.high[at]


@inner
def _shared(box: Any, other: Any) -> Any:
    """Return the elements that two boxes have in common."""
    shared = 1.0
    for d in range(box.shape[1]):
        shared *= max(min(box[1, d], other[1, d]) - max(box[0, d], other[0, d]), 0)
    return shared


@inner
def _received(ends: Any, routes: Any, u: int, parts: int, here: int, box: Any, other: Any) -> Any:
    """Return the elements of a region that its device gets from others of its node, and from other nodes."""
    rest, near, stride = 1.0, 0.0, ends.held_strides[u]
    for d in range(box.shape[1]):
        rest *= box[1, d] - box[0, d]
    for m in range(routes.node_start[here], routes.node_stop[here]):
        there = routes.members[m]
        if there % stride == 0 and there // stride < parts:
            _part(ends, u, there // stride, other)
            shared = _shared(box, other)
            rest -= shared
            near += shared if there != here else 0.0
    return near, rest


@inner
def _sent(ends: Any, routes: Any, v: int, regions: int, here: int, box: Any, other: Any, index: Any) -> Any:
    """Return the elements of a part that others of its node read, and other nodes."""
    rest, near, stride = ends.copies[v], 0.0, ends.read_strides[v]
    for d in range(box.shape[1]):
        first, grain = ends.read_first[v, d], ends.grain[d]
        rest *= ends.read[first + box[1, d] // grain] - ends.read[first + box[0, d] // grain]
    for m in range(routes.node_start[here], routes.node_stop[here]):
        there = routes.members[m]
        if there % stride == 0 and there // stride < regions:
            _region(ends, v, there // stride, index, other)
            shared = _shared(box, other)
            rest -= shared
            near += shared if there != here else 0.0
    return near, rest


@inner
def _in_s(near: float, far: float, shared: float, element_bytes: float, routes: Any, here: int) -> Any:
    """Return the least time of what a device gets, and its node from others."""
    busy = latency = 0.0
    if near > 0.0:
        busy, latency = near * routes.in_s_per_byte[0, here], routes.in_s[0, here]
    if far > 0.0:
        busy = max(busy, far * routes.in_s_per_byte[1, here], shared * routes.node_in_s_per_byte[here])
        latency = max(latency, routes.in_s[1, here])
    return busy * element_bytes + latency


@inner
def _out_s(near: float, far: float, shared: float, element_bytes: float, routes: Any, here: int) -> Any:
    """Return the least time of what a device sends, and its node to others."""
    busy = latency = 0.0
    if near > 0.0:
        busy, latency = near * routes.out_s_per_byte[0, here], routes.out_s[0, here]
    if far > 0.0:
        busy = max(busy, far * routes.out_s_per_byte[1, here], shared * routes.node_out_s_per_byte[here])
        latency = max(latency, routes.out_s[1, here])
    return busy * element_bytes + latency
