"""Overlaps of the parts that layers hold and the regions that their consumers need, for all pairs of configurations.

An overlap is the product of the overlaps along the dimensions, and those depend on the degrees of one dimension only.
So a few small tables hold the overlaps of all parts of all configurations of a producer with all regions of all
configurations of a consumer.  Along a dimension of 8 elements, that a producer splits by 1 or 2, and a consumer with a
halo of one element by 1 or 2, the table has a row for each interval held and a column for each interval needed:

                 0-7   0-4   3-7
    degree 1 0-7   8     5     5
    degree 2 0-3   4     4     1
             4-7   4     1     4
"""

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from groundwork.array_types import Floats, Ints
from planner.graph.shapes import IntervalMap, Shape
from planner.layouts.configurations import ConfigSpace, part_bounds
from planner.layouts.regions import needed_regions


class Overlaps(NamedTuple):
    """Overlaps of a tensor's parts with the regions that a consumer needs.

    The producer (u) has C_u configurations with P_u parts in all, the consumer (v) C_v configurations with P_v regions;
    the tensor has D dimensions, the cluster n devices.  The overlap of part p and region q is the product over d of
    ``table[rows[p, d] + columns[q, d]]``.  A named tuple, because compiled code reads its fields.
    """

    sizes: Ints
    """Shape (D,): elements along each dimension of the tensor."""
    degrees: Ints
    """Shape (C_u, D)."""
    part_start: Ints
    """Shape (C_u + 1,): first part of each configuration."""
    part_devices: Ints
    """Shape (P_u,)."""
    part_on: Ints
    """Shape (C_u, n): part of each configuration on each device, -1 for none."""
    region_start: Ints
    """Shape (C_v + 1,): first region of each configuration."""
    region_devices: Ints
    """Shape (P_v,)."""
    region_on: Ints
    """Shape (C_v, n): region of each configuration on each device, -1 for none."""
    low: Ints
    """Shape (P_v, D): first element of each region."""
    high: Ints
    """Shape (P_v, D): end of each region, exclusive."""
    volume: Floats
    """Shape (P_v,): elements in each region."""
    table: Floats
    """Elements of one dimension that a part and a region share."""
    rows: Ints
    """Shape (P_u, D)."""
    columns: Ints
    """Shape (P_v, D)."""
    sent: Floats
    """The same overlaps, summed over all regions of a configuration of the consumer."""
    sent_rows: Ints
    """Shape (P_u, D)."""
    sent_columns: Ints
    """Shape (C_v, D)."""
    copies: Floats
    """Shape (C_v,): number of equal regions, which differ only in dimensions that the tensor does not have."""
    most: Floats
    """The largest overlap of any part and any region of two configurations."""
    most_rows: Ints
    """Shape (C_u, D)."""
    most_columns: Ints
    """Shape (C_v, D)."""


@lru_cache(maxsize=1024)
def overlaps_of(
    producer: ConfigSpace,
    consumer: ConfigSpace,
    interval_maps: tuple[IntervalMap, ...],
    source: Shape,
    device_count: int,
) -> Overlaps:
    """Compute the overlaps of a tensor's parts, under every configuration, with the regions that a consumer needs.

    Args:
        producer: Configurations of the layer that makes the tensor.
        consumer: Configurations of the layer that reads it.
        interval_maps: For each dimension of the tensor, the interval of it that a part of the consumer reads.
        source: Shape of the tensor.
        device_count: Number of devices of the cluster.
    """
    # for each dimension of the tensor the consumer's dimension that splits it; -1: every part reads all of it
    reads = [
        consumer.output.dims.index(interval_map.dim) if interval_map.dim in consumer.output.dims else -1
        for interval_map in interval_maps
    ]
    tables, offsets = _tables(producer, consumer, interval_maps, source, reads)
    rows, columns, sent_rows, by_degree, most_rows = (
        np.column_stack(list(each)) for each in zip(*offsets, strict=True)
    )
    shared, sent, most = (np.concatenate([table.ravel() for table in each]) for each in zip(*tables, strict=True))
    unread = [c for c in range(len(consumer.output.dims)) if c not in reads]
    regions = needed_regions(consumer, interval_maps, source)
    return Overlaps(
        sizes=np.array(source.sizes),
        degrees=producer.degrees,
        part_start=producer.device_start,
        part_devices=producer.devices,
        part_on=_parts_on(producer, device_count),
        region_start=consumer.device_start,
        region_devices=consumer.devices,
        region_on=_parts_on(consumer, device_count),
        low=regions.low,
        high=regions.high,
        volume=regions.volume.astype(np.float64),
        table=shared,
        rows=rows,
        columns=columns,
        sent=sent,
        sent_rows=sent_rows,
        sent_columns=by_degree,
        copies=consumer.degrees[:, unread].prod(axis=1).astype(np.float64),
        most=most,
        most_rows=most_rows,
        most_columns=by_degree,
    )


class LeastReceived(NamedTuple):
    """Lower bounds of the elements that devices lack of their regions of a tensor, shapes (C_u, C_v)."""

    most: Floats
    """Elements that some device lacks."""
    far: Floats
    """Elements that it gets from other nodes."""
    each_far: Floats
    """Elements that every device with a region gets from other nodes."""


def least_received(
    producer: ConfigSpace,
    consumer: ConfigSpace,
    interval_maps: Sequence[IntervalMap],
    source: Shape,
    node: Ints,
) -> LeastReceived:
    """Return lower bounds of what devices lack of their regions of a tensor, for all pairs of configurations.

    A device holds one part, of which no more lies in its region than the smaller of both in every dimension.

    Args:
        producer: Configurations of the layer that makes the tensor, without copies.
        consumer: Configurations of the layer that reads it.
        interval_maps: For each dimension of the tensor, the interval of it that a part of the consumer reads.
        source: Shape of the tensor.
        node: Node of every device.
    """
    shared, region, least = np.ones((producer.size, consumer.size)), np.ones(consumer.size), np.ones(consumer.size)
    for d, (size, interval_map) in enumerate(zip(source.sizes, interval_maps, strict=True)):
        held = -(-size // producer.degrees[:, d])
        split = consumer.output.dims.index(interval_map.dim) if interval_map.dim in consumer.output.dims else None
        degrees, at = (
            (np.ones(1, dtype=np.int64), np.zeros(consumer.size, dtype=np.int64))
            if split is None
            else np.unique(consumer.degrees[:, split], return_inverse=True)
        )
        bounds = [part_bounds(1 if split is None else consumer.output.sizes[split], n) for n in degrees.tolist()]
        rows = [interval_map.interval(each[:-1], each[1:], size) for each in bounds]
        needed = np.array([float((high - low).max()) for low, high in rows])[at]
        shared *= np.minimum(held[:, None], needed)
        region *= needed
        least *= np.array([float((high - low).min()) for low, high in rows])[at]
    beside = shared * most_in_node(producer, node)[:, None]
    lacked = (region - shared, region - beside, least - beside)
    return LeastReceived(*(np.maximum(each, 0.0) for each in lacked))


def most_in_node(space: ConfigSpace, node: Ints) -> Ints:
    """Return the most parts of each configuration that lie in one node, or a bound of it, shape (C,).

    Args:
        space: The configurations.
        node: Node of every device.
    """
    if not len(space.strides):
        return np.asarray(np.minimum(space.parts, np.bincount(node).max()))
    placed, at = np.unique(np.column_stack((space.parts, space.strides)), axis=0, return_inverse=True)
    most = [np.bincount(node[: parts * stride : stride]).max() for parts, stride in placed.tolist()]
    return np.array(most)[at.ravel()]


def _tables(
    producer: ConfigSpace,
    consumer: ConfigSpace,
    interval_maps: tuple[IntervalMap, ...],
    source: Shape,
    reads: Sequence[int],
) -> tuple[list[tuple[Floats, Floats, Floats]], list[tuple[Ints, Ints, Ints, Ints, Ints]]]:
    """Compute the tables of each dimension of the tensor, and where in them the parts and regions stand.

    Args:
        producer: Configurations of the layer that makes the tensor.
        consumer: Configurations of the layer that reads it.
        interval_maps: For each dimension of the tensor, the interval of it that a part of the consumer reads.
        source: Shape of the tensor.
        reads: For each dimension of the tensor the consumer's dimension that splits it, or -1.

    Returns:
        By dimension, what ``_along`` returns; and ``rows``, ``columns``, ``sent_rows``, ``sent_columns`` and
        ``most_rows`` of ``Overlaps``.
    """
    part_index, region_index = _indices(producer), _indices(consumer)
    part_owner, region_owner = producer.part_owners, consumer.part_owners
    tables, offsets, begin = [], [], [0, 0, 0]
    for d in range(len(source.sizes)):
        split = reads[d] >= 0
        # Configurations share degrees: the table of this dimension has each different degree once.
        held_degrees, held_at = np.unique(producer.degrees[:, d], return_inverse=True)
        degrees = consumer.degrees[:, reads[d]] if split else np.ones(consumer.size, dtype=np.int64)
        read_degrees, read_at = np.unique(degrees, return_inverse=True)
        size = consumer.output.sizes[reads[d]] if split else 1
        made = _along(
            source.sizes[d], tuple(held_degrees.tolist()), interval_maps[d], size, tuple(read_degrees.tolist())
        )
        # a degree's intervals follow those of the smaller degrees, in rows as in columns
        row = (np.cumsum(held_degrees) - held_degrees)[held_at][part_owner] + part_index[:, d]
        column = (np.cumsum(read_degrees) - read_degrees)[read_at][region_owner]
        column = column + (region_index[:, reads[d]] if split else 0)
        # Rows are offsets into the flattened tables, columns are added to them: table[rows + columns].
        offsets.append(
            (
                begin[0] + row * int(read_degrees.sum()),
                column,
                begin[1] + row * len(read_degrees),
                read_at,
                begin[2] + held_at * len(read_degrees),
            )
        )
        tables.append(made)
        begin = [before + table.size for before, table in zip(begin, made, strict=True)]
    return tables, offsets


@lru_cache(maxsize=1024)
def _along(
    size: int,
    degrees: tuple[int, ...],
    interval_map: IntervalMap,
    consumer_size: int,
    consumer_degrees: tuple[int, ...],
) -> tuple[Floats, Floats, Floats]:
    """Compute the overlaps along one dimension, as drawn at the top of this module.

    Args:
        size: Elements of the tensor along the dimension.
        degrees: Different degrees of the producer.
        interval_map: Interval of the tensor that an interval of the consumer's output reads.
        consumer_size: Elements of the consumer's output along the dimension that reads this one.
        consumer_degrees: Different degrees of the consumer.

    Returns:
        The overlaps (rows are the intervals of each degree of the producer in turn, columns those of the consumer),
        their sums over each degree of the consumer, and the largest for each pair of degrees.
    """
    held = [part_bounds(size, degree) for degree in degrees]
    parts = [part_bounds(consumer_size, degree) for degree in consumer_degrees]
    low, high = interval_map.interval(
        np.concatenate([row[:-1] for row in parts]), np.concatenate([row[1:] for row in parts]), size
    )
    # Intervals held stand in a column and intervals needed in a row, so that broadcasting compares every pair.
    begin, end = (np.concatenate([row[ends] for row in held])[:, None] for ends in (slice(-1), slice(1, None)))
    shared = np.maximum(np.minimum(end, high) - np.maximum(begin, low), 0).astype(np.float64)
    # The first column of each degree of the consumer; with degrees 1 and 2: 0, 1.
    across = np.cumsum((0, *consumer_degrees[:-1]))
    most = np.maximum.reduceat(np.maximum.reduceat(shared, across, axis=1), np.cumsum((0, *degrees[:-1])), axis=0)
    return shared, np.add.reduceat(shared, across, axis=1), most


@lru_cache(maxsize=1024)
def _indices(space: ConfigSpace) -> Ints:
    """Return the index of each part along each dimension, shape (parts in all, D); parts are in row-major order.

    Two configurations of samples and channels, with degrees (2, 1) and (2, 2), have the rows::

        [0, 0]  [1, 0]      [0, 0]  [0, 1]  [1, 0]  [1, 1]
    """
    parts = space.parts
    # The number of each part within its configuration, from which the last dimension is divided out first.
    rest = np.arange(len(space.devices)) - np.repeat(space.device_start[:-1], parts)
    degrees = np.repeat(space.degrees, parts, axis=0)
    index = np.empty_like(degrees)
    for d in range(degrees.shape[1] - 1, -1, -1):
        rest, index[:, d] = np.divmod(rest, degrees[:, d])
    return index


@lru_cache(maxsize=1024)
def _parts_on(space: ConfigSpace, device_count: int) -> Ints:
    """Return the part of each configuration on each device, shape (C, n); -1 for none."""
    part_on = np.full((space.size, device_count), -1)
    part_on[space.part_owners, space.devices] = np.arange(len(space.devices))
    return part_on
