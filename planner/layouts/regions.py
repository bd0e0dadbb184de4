"""Regions of a tensor: those that the parts of its producer hold, and those that parts of its consumers need."""

from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from groundwork.array_types import Bools, Floats, Ints
from planner.graph.shapes import SUMMED, IntervalMap, Shape
from planner.layouts.configurations import ConfigSpace, completing_parts, part_bounds, product_space

_CHANNEL = 1
"""Place of the channels among dimensions; slices of the summed index are numbered behind them."""


@dataclass(frozen=True, slots=True, eq=False)
class Regions:
    """Regions of a tensor with D dimensions, one for each part of every configuration of a space.

    Element x of the tensor is in region p if ``low[p] <= x < high[p]`` in all dimensions.  Empty regions have [0, 0)
    in every dimension.
    """

    low: Ints
    """First indices, shape (parts in all, D)."""
    high: Ints
    """Indices behind the last, shape (parts in all, D)."""

    @property
    def volume(self) -> Ints:
        """Elements in each region, shape (parts in all,)."""
        return np.asarray((self.high - self.low).prod(axis=1))


@dataclass(frozen=True, slots=True, eq=False)
class TransferRegions:
    """K regions of a tensor, each held by one part of the producer and needed by one device of the consumer."""

    part: Ints
    """Part of the producer that holds each region, shape (K,)."""
    device: Ints
    """Device that needs it, shape (K,)."""
    low: Ints
    """First indices, shape (K, D)."""
    high: Ints
    """Indices behind the last, shape (K, D)."""

    def take(self, keep: Ints | NDArray[np.bool_]) -> "TransferRegions":
        """Return a selection of the regions, in the given order."""
        return TransferRegions(self.part[keep], self.device[keep], self.low[keep], self.high[keep])


@lru_cache(maxsize=2048)
def held_regions(space: ConfigSpace) -> Regions:
    """Return the region of the layer's output that each part holds.

    The parts of an output of 4 x 6 elements under the degrees (2, 3) are, in row-major order::

        part  0          1          2          3          4          5
        low   [0, 0]     [0, 2]     [0, 4]     [2, 0]     [2, 2]     [2, 4]
        high  [2, 2]     [2, 4]     [2, 6]     [4, 2]     [4, 4]     [4, 6]
    """
    parts = space.parts
    degrees, rest = np.repeat(space.degrees, parts, axis=0), _place(space) // np.repeat(space.repeats, parts)
    low, high = np.empty_like(degrees), np.empty_like(degrees)
    for d in range(degrees.shape[1] - 1, -1, -1):  # row-major: the last dimension varies fastest
        rest = rest // np.repeat(space.sums, parts) if d == _CHANNEL else rest
        rest, index = np.divmod(rest, degrees[:, d])
        size = space.output.sizes[d]
        low[:, d], high[:, d] = index * size // degrees[:, d], (index + 1) * size // degrees[:, d]
    return Regions(low, high)


def _place(space: ConfigSpace) -> Ints:
    """Return the place of each part among those of its configuration, shape (parts in all,)."""
    return np.arange(len(space.devices), dtype=np.int64) - np.repeat(space.device_start[:-1], space.parts)


@lru_cache(maxsize=2048)
def summed_slices(space: ConfigSpace) -> Ints:
    """Return the slice of the summed index that each part computes, shape (parts in all,)."""
    behind = space.degrees[:, _CHANNEL + 1 :].prod(axis=1) * space.repeats
    return np.asarray(_place(space) // np.repeat(behind, space.parts) % np.repeat(space.sums, space.parts))


def part_sizes(space: ConfigSpace) -> dict[str, Floats]:
    """Return the sizes of every part, as ``ConfigSpace.largest_part`` those of the largest; shape (parts in all,)."""
    space = product_space(space)
    regions = held_regions(space)
    sizes: Floats = (regions.high - regions.low).astype(np.float64)
    rows = {dim: sizes[:, d] for d, dim in enumerate(space.output.dims)}
    return rows | ({SUMMED: np.repeat(space.sums, space.parts).astype(np.float64)} if (space.sums > 1).any() else {})


def completed_sums(space: ConfigSpace) -> tuple[Ints, Floats]:
    """Return the devices that complete each sum together, shape (groups, slices), and its elements, shape (groups,).

    Args:
        space: Space of one configuration.
    """
    parts = completing_parts(space)
    return space.devices[parts], held_regions(product_space(space)).volume[parts[:, 0]].astype(np.float64)


@lru_cache(maxsize=4096)
def needed_regions(space: ConfigSpace, interval_maps: tuple[IntervalMap, ...], source: Shape) -> Regions:
    """Return the region of an input, or of a parameter, that each part of a consumer needs.

    Args:
        space: Configurations of the consumer.
        interval_maps: For each dimension of the input, the interval that the consumer's operation reads.
        source: Shape of the input tensor.
    """
    # what is summed over serves the product, all else what a layer makes of whole sums
    space = product_space(space) if any(each.dim == SUMMED for each in interval_maps) else space
    parts, dims = held_regions(space), space.output.dims
    low = np.empty((len(parts.low), len(source.sizes)), dtype=np.int64)
    high = np.empty_like(low)
    for d, (interval_map, size) in enumerate(zip(interval_maps, source.sizes, strict=True)):
        if interval_map.dim == SUMMED:
            part, count, block = summed_slices(space), np.repeat(space.sums, space.parts), interval_map.group_in
            low[:, d], high[:, d] = (each * (size // block) // count * block for each in (part, part + 1))
            continue
        column = dims.index(interval_map.dim) if interval_map.dim is not None else 0
        low[:, d], high[:, d] = interval_map.interval(parts.low[:, column], parts.high[:, column], size)
    empty = (high <= low).any(axis=1)
    low[empty], high[empty] = 0, 0
    return Regions(low, high)


@lru_cache(maxsize=4096)
def layout_keys(space: ConfigSpace, interval_maps: tuple[IntervalMap, ...], source: Shape) -> Ints:
    """Return a key of the layout in which each configuration reads an input; equal layouts have equal keys.

    The layout is the set of (device, region) pairs, empty regions left out; its key is a 64-bit hash.

    Args:
        space: Configurations of the consumer.
        interval_maps: For each dimension of the input, the interval that the consumer's operation reads.
        source: Shape of the input tensor.

    Returns:
        Keys, shape (C,).
    """
    regions = needed_regions(space, interval_maps, source)
    words = np.column_stack([space.devices, regions.low, regions.high]).astype(np.uint64)
    mixed = np.zeros(len(words), dtype=np.uint64)
    # one hash a pair: the finaliser of SplitMix64, chained over the columns; their sum does not depend on the order
    for column in words.T:
        mixed = (mixed ^ column) + np.uint64(0x9E3779B97F4A7C15)
        mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        mixed ^= mixed >> np.uint64(31)
    mixed[regions.volume == 0] = 0
    return np.add.reduceat(mixed, space.device_start[:-1]).view(np.int64)


def transfer_regions(
    producer: ConfigSpace,
    consumer: ConfigSpace,
    interval_maps: tuple[IntervalMap, ...],
    source: Shape,
    device_count: int,
    *,
    in_turn: bool = True,
) -> TransferRegions:
    """Return the regions that a consumer's parts need, divided along the parts of the producer that hold them.

    A consumer that splits 8 rows in 2 parts with a halo of 1 row needs [0, 5) and [3, 8); a producer with 4 parts of 2
    rows holds these as::

        needed [0, 5):  [0, 2) of part 0   [2, 4) of part 1   [4, 5) of part 2
        needed [3, 8):  [3, 4) of part 1   [4, 6) of part 2   [6, 8) of part 3

    Args:
        producer: Space of the layer that makes the tensor, with one configuration.
        consumer: Space of the layer that reads it, with one configuration.
        interval_maps: For each dimension of the tensor, the interval that the consumer's operation reads.
        source: Shape of the tensor.
        device_count: Devices of the cluster.
        in_turn: False: in any order, which takes half the time.

    Returns:
        Regions in the order of an all-to-all: first every device to its next one, then to the one after that, so that
        senders that share a port or a link do not queue behind all messages to one receiver.
    """
    needed = needed_regions(consumer, interval_maps, source)
    rows = np.flatnonzero(needed.volume > 0)
    low, high = needed.low[rows], needed.high[rows]
    bounds = [part_bounds(*pair) for pair in zip(source.sizes, producer.degrees[0].tolist(), strict=True)]
    # first part and the one behind the last that a needed region meets, in each dimension
    first = np.column_stack([np.searchsorted(b, low[:, d], side="right") - 1 for d, b in enumerate(bounds)])
    stop = np.column_stack([np.searchsorted(b, high[:, d], side="left") for d, b in enumerate(bounds)])
    counts = stop - first
    total = counts.prod(axis=1)
    # one entry for each pair of a needed region (row) and a part that it meets, numbered by ``rest`` within the region
    row = np.repeat(np.arange(len(rows)), total)
    rest = np.arange(len(row)) - np.repeat(np.cumsum(total) - total, total)
    part, stride = np.zeros(len(row), dtype=np.int64), 1
    part_low, part_high = low[row], high[row]
    for d in range(len(bounds) - 1, -1, -1):  # row-major: the last dimension varies fastest
        rest, index = np.divmod(rest, counts[row, d])
        index += first[row, d]
        part, stride = part + index * stride, stride * (len(bounds[d]) - 1)
        np.maximum(part_low[:, d], bounds[d][index], out=part_low[:, d])
        np.minimum(part_high[:, d], bounds[d][index + 1], out=part_high[:, d])
    regions = TransferRegions(part, consumer.devices[rows][row], part_low, part_high)
    regions = _from_copies(producer, regions)
    if not in_turn:
        return regions
    turn = (regions.device - producer.devices[regions.part]) % device_count
    return regions.take(np.lexsort((regions.device, turn)))


def _from_copies(producer: ConfigSpace, regions: TransferRegions) -> TransferRegions:
    """Return regions by the parts of a mesh: from each slice of a sum, and from one of the devices that hold the same.

    A device that holds a part itself reads its own; others read from those of equal parts in turn.

    Args:
        producer: Space of one configuration.
        regions: Regions by part, as numbered by samples, channels and positions alone.
    """
    sums, repeats = int(producer.sums[0]), int(producer.repeats[0])
    if sums * repeats == 1:
        return regions
    behind = int(producer.degrees[0, _CHANNEL + 1 :].prod())
    every = np.repeat(np.arange(len(regions.part)), sums)
    regions, place = regions.take(every), np.tile(np.arange(sums), len(regions.part))
    before, after = np.divmod(regions.part, behind)
    copies = (((before * sums + place) * behind + after) * repeats)[:, None] + np.arange(repeats)
    chosen = serving(producer.devices[copies] == regions.device[:, None], every)
    return replace(regions, part=copies[np.arange(len(copies)), chosen])


def serving(own: Bools, turn: Ints) -> Ints:
    """Return which of the devices that hold the same serves a reader: the reader if it is one of them, else in turn.

    Args:
        own: Whether each of the devices is the reader, shape (..., devices).
        turn: Number of the reader among those that take turns, broadcast to shape (...).
    """
    return np.asarray(np.where(own.any(axis=-1), own.argmax(axis=-1), turn % own.shape[-1]))


def gradient_regions(
    producer: ConfigSpace, consumer: ConfigSpace, interval_maps: tuple[IntervalMap, ...], source: Shape
) -> TransferRegions:
    """Return the regions of a tensor's gradient that the producer's parts need, by the devices of the consumer.

    Every part needs what all parts of the consumer computed for it, once of those that computed the same, and from its
    own device where that is among them.  Where neither layer repeats or sums, these are the regions that the consumer
    reads, reversed.  Arguments as for ``transfer_regions``.
    """
    held, needed, repeats = held_regions(producer), needed_regions(consumer, interval_maps, source), consumer.repeats[0]
    low = np.maximum(held.low[:, None], needed.low[::repeats])
    high = np.minimum(held.high[:, None], needed.high[::repeats])
    part, place = np.nonzero((high > low).all(axis=2))
    copies = (place * repeats)[:, None] + np.arange(repeats)
    chosen = serving(consumer.devices[copies] == producer.devices[part][:, None], part)
    device = consumer.devices[copies[np.arange(len(copies)), chosen]]
    return TransferRegions(part, device, low[part, place], high[part, place])
