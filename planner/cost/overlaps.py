"""Overlaps of what parts hold and what others need, dimension by dimension, for all pairs of configurations."""

from functools import lru_cache
from typing import NamedTuple

import numpy as np

from hwprofiles import Floats, Ints
from planner.graph import Need, Shape
from planner.parallel import ConfigSpace, needed_regions, part_bounds

__all__ = ["Overlaps", "overlaps_of"]


class Overlaps(NamedTuple):
    """How a tensor's parts (u: C_u configurations, P_u parts in all) meet the boxes of a consumer (v).

    Sums over boxes and overlaps of a part and a box are products over the D dimensions of one entry of a table
    each: ``table[rows[p, d] + columns[q, d]]``.  A named tuple, because compiled code reads those.
    """

    sizes: Ints
    """Shape (D,): the tensor."""
    degrees: Ints
    """Shape (C_u, D)."""
    start: Ints
    """Shape (C_u + 1,): offsets of the parts."""
    devices: Ints
    part_on: Ints
    """Shape (C_u, n): part of each configuration on each device, -1 for none."""
    box_start: Ints
    box_devices: Ints
    box_on: Ints
    """Shape (C_v, n): box of each configuration on each device, -1 for none."""
    low: Ints
    high: Ints
    """Shape (P_v, D)."""
    volume: Floats
    """Shape (P_v,): elements in each box."""
    table: Floats
    rows: Ints
    columns: Ints
    """Elements of a dimension that a part and a box share: shapes (P_u, D) and (P_v, D)."""
    sent: Floats
    sent_rows: Ints
    sent_columns: Ints
    """The same summed over all boxes of a configuration: shapes (P_u, D) and (C_v, D)."""
    copies: Floats
    """Shape (C_v,): boxes that are alike because they differ in dimensions that the tensor does not have."""
    most: Floats
    most_rows: Ints
    most_columns: Ints
    """The largest entry over all parts and boxes of two configurations: shapes (C_u, D) and (C_v, D)."""


@lru_cache(maxsize=1024)
def _along(
    size: int, degrees: tuple[int, ...], need: Need, consumer_size: int, consumer_degrees: tuple[int, ...]
) -> tuple[Floats, Floats, Floats]:
    """Overlaps of one dimension: rows are the intervals of each degree in turn, columns the intervals needed.

    Returns:
        Overlaps, their sums over each consumer's degree, and the largest for each pair of degrees.
    """
    held = [part_bounds(size, degree) for degree in degrees]
    parts = [part_bounds(consumer_size, degree) for degree in consumer_degrees]
    low, high = need.interval(
        np.concatenate([row[:-1] for row in parts]), np.concatenate([row[1:] for row in parts]), size
    )
    begin, end = (np.concatenate([row[cut] for row in held])[:, None] for cut in (slice(-1), slice(1, None)))
    shared = np.maximum(np.minimum(end, high) - np.maximum(begin, low), 0).astype(np.float64)
    across = np.cumsum((0, *consumer_degrees[:-1]))
    most = np.maximum.reduceat(np.maximum.reduceat(shared, across, axis=1), np.cumsum((0, *degrees[:-1])), axis=0)
    return shared, np.add.reduceat(shared, across, axis=1), most


@lru_cache(maxsize=1024)
def _indices(space: ConfigSpace) -> Ints:
    """Index of each part along each dimension, shape (parts in all, D); row-major."""
    parts = space.parts
    rest = np.arange(len(space.devices)) - np.repeat(space.device_start[:-1], parts)
    degrees = np.repeat(space.degrees, parts, axis=0)
    index = np.empty_like(degrees)
    for d in range(degrees.shape[1] - 1, -1, -1):
        rest, index[:, d] = np.divmod(rest, degrees[:, d])
    return index


@lru_cache(maxsize=1024)
def _parts_on(space: ConfigSpace, device_count: int) -> Ints:
    """Part of each configuration on each device, shape (C, n); -1 for none."""
    found = np.full((space.size, device_count), -1)
    parts = np.arange(len(space.devices))
    found[space.part_owners, space.devices] = parts
    return found


@lru_cache(maxsize=1024)
def overlaps_of(
    producer: ConfigSpace, consumer: ConfigSpace, needs: tuple[Need, ...], source: Shape, device_count: int
) -> Overlaps:
    """Overlaps of a tensor's parts under every configuration with the boxes that every consumer's needs.

    Args:
        producer, consumer: Configurations of the layer that makes the tensor and of the one that reads it.
        needs: What the consumer's operation needs of each dimension of the tensor.
        source: Shape of the tensor.
        device_count: Devices of the cluster.
    """
    boxes, dims = needed_regions(consumer, needs, source), range(len(source.sizes))
    column = [consumer.output.dims.index(need.dim) if need.dim is not None else -1 for need in needs]
    tables, offsets = [], []
    at, from_ = _indices(producer), _indices(consumer)
    owner, box_owner = (space.part_owners for space in (producer, consumer))
    total = [0, 0, 0]
    for d in dims:
        own, cut = np.unique(producer.degrees[:, d], return_inverse=True)
        theirs = consumer.degrees[:, column[d]] if column[d] >= 0 else np.ones(consumer.size, dtype=np.int64)
        other, box_cut = np.unique(theirs, return_inverse=True)
        size = consumer.output.sizes[column[d]] if column[d] >= 0 else 1
        made = _along(source.sizes[d], tuple(own.tolist()), needs[d], size, tuple(other.tolist()))
        row = (np.cumsum(own) - own)[cut][owner] + at[:, d]
        index = from_[:, column[d]] if column[d] >= 0 else 0
        offsets.append(
            (
                total[0] + row * int(other.sum()),
                (np.cumsum(other) - other)[box_cut][box_owner] + index,
                total[1] + row * len(other),
                box_cut,
                total[2] + cut * len(other),
            )
        )
        tables.append(made)
        total = [before + table.size for before, table in zip(total, made, strict=True)]
    rows, columns, sent_rows, cuts, most_rows = (np.column_stack(list(each)) for each in zip(*offsets, strict=True))
    shared, sent, most = (np.concatenate([table.ravel() for table in each]) for each in zip(*tables, strict=True))
    split = [c for c in range(len(consumer.output.dims)) if c not in column]
    return Overlaps(
        np.array(source.sizes), producer.degrees, producer.device_start, producer.devices,
        _parts_on(producer, device_count), consumer.device_start, consumer.devices,
        _parts_on(consumer, device_count), boxes.low, boxes.high,
        boxes.volume.astype(np.float64), shared, rows, columns, sent, sent_rows, cuts,
        consumer.degrees[:, split].prod(axis=1).astype(np.float64), most, most_rows, cuts,
    )  # fmt: skip
