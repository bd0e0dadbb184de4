"""Regions: the boxes of a tensor that parts hold and that parts of its consumers need."""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from hwprofiles import Ints
from planner.graph import Need, Shape
from planner.parallel.configurations import ConfigSpace, part_bounds

__all__ = ["Regions", "TransferRegions", "held_regions", "layout_keys", "needed_regions", "transfer_regions"]


@dataclass(frozen=True, slots=True, eq=False)
class Regions:
    """Half-open boxes, one a part of every configuration of a space: arrays of shape (parts in all, D).

    Empty boxes have [0, 0) in every dimension.
    """

    low: Ints
    high: Ints

    @property
    def volume(self) -> Ints:
        """Elements in each box."""
        return np.asarray((self.high - self.low).prod(axis=1))


@dataclass(frozen=True, slots=True, eq=False)
class TransferRegions:
    """K regions of a tensor, each held by one part of the producer and needed by one device."""

    part: Ints
    device: Ints
    low: Ints
    high: Ints

    def take(self, keep: Ints | NDArray[np.bool_]) -> "TransferRegions":
        """Some of them, in the given order."""
        return TransferRegions(self.part[keep], self.device[keep], self.low[keep], self.high[keep])


@lru_cache(maxsize=2048)
def held_regions(space: ConfigSpace) -> Regions:
    """The box of the layer's output that each part holds."""
    parts = space.parts
    rest = np.arange(len(space.devices), dtype=np.int64) - np.repeat(space.device_start[:-1], parts)
    degrees = np.repeat(space.degrees, parts, axis=0)
    low, high = np.empty_like(degrees), np.empty_like(degrees)
    for d in range(degrees.shape[1] - 1, -1, -1):  # row-major: the last dimension varies fastest
        rest, index = np.divmod(rest, degrees[:, d])
        size = space.output.sizes[d]
        low[:, d], high[:, d] = index * size // degrees[:, d], (index + 1) * size // degrees[:, d]
    return Regions(low, high)


@lru_cache(maxsize=4096)
def needed_regions(space: ConfigSpace, needs: tuple[Need, ...], source: Shape) -> Regions:
    """The box of an input that each part of a consumer needs.

    Args:
        space: Configurations of the consumer.
        needs: What the consumer's operation needs of each dimension of the input.
        source: Shape of the input tensor.
    """
    parts, dims = held_regions(space), space.output.dims
    low = np.empty((len(parts.low), len(source.sizes)), dtype=np.int64)
    high = np.empty_like(low)
    for d, (need, size) in enumerate(zip(needs, source.sizes, strict=True)):
        column = dims.index(need.dim) if need.dim is not None else 0
        low[:, d], high[:, d] = need.interval(parts.low[:, column], parts.high[:, column], size)
    empty = (high <= low).any(axis=1)
    low[empty], high[empty] = 0, 0
    return Regions(low, high)


@lru_cache(maxsize=4096)
def layout_keys(space: ConfigSpace, needs: tuple[Need, ...], source: Shape) -> Ints:
    """Which device needs which box of an input: equal numbers for equal layouts, shape (C,).

    The number is a 64-bit hash of the set of (device, box) pairs, empty boxes left out.
    """
    boxes = needed_regions(space, needs, source)
    words = np.column_stack([space.devices, boxes.low, boxes.high]).astype(np.uint64)
    mixed = np.zeros(len(words), dtype=np.uint64)
    for column in words.T:  # the finaliser of SplitMix64, chained over the columns
        mixed = (mixed ^ column) + np.uint64(0x9E3779B97F4A7C15)
        mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        mixed ^= mixed >> np.uint64(31)
    mixed[boxes.volume == 0] = 0
    return np.add.reduceat(mixed, space.device_start[:-1]).view(np.int64)


def transfer_regions(
    producer: ConfigSpace, consumer: ConfigSpace, needs: tuple[Need, ...], source: Shape, device_count: int
) -> TransferRegions:
    """What each part of a consumer needs, cut along the parts of the producer; each space has one configuration.

    Args:
        producer: Configuration of the layer that makes the tensor.
        consumer: Configuration of the layer that reads it.
        needs: What the consumer's operation needs of each dimension of the tensor.
        source: Shape of the tensor.
        device_count: Devices of the cluster.

    Returns:
        The pieces in turns, as an all-to-all is sent: first everyone to its next, then to the one after; so that
        whoever shares a port or a link does not queue behind all messages to one receiver.
    """
    boxes = needed_regions(consumer, needs, source)
    rows = np.flatnonzero(boxes.volume > 0)
    low, high = boxes.low[rows], boxes.high[rows]
    bounds = [part_bounds(*pair) for pair in zip(source.sizes, producer.degrees[0].tolist(), strict=True)]
    first = np.column_stack([np.searchsorted(b, low[:, d], side="right") - 1 for d, b in enumerate(bounds)])
    stop = np.column_stack([np.searchsorted(b, high[:, d], side="left") for d, b in enumerate(bounds)])
    counts = stop - first
    total = counts.prod(axis=1)
    row = np.repeat(np.arange(len(rows)), total)
    rest = np.arange(len(row)) - np.repeat(np.cumsum(total) - total, total)
    part, stride = np.zeros(len(row), dtype=np.int64), 1
    cut_low, cut_high = low[row], high[row]
    for d in range(len(bounds) - 1, -1, -1):
        rest, index = np.divmod(rest, counts[row, d])
        index += first[row, d]
        part, stride = part + index * stride, stride * (len(bounds[d]) - 1)
        np.maximum(cut_low[:, d], bounds[d][index], out=cut_low[:, d])
        np.minimum(cut_high[:, d], bounds[d][index + 1], out=cut_high[:, d])
    pieces = TransferRegions(part, consumer.devices[rows][row], cut_low, cut_high)
    turn = (pieces.device - producer.devices[part]) % device_count
    return pieces.take(np.lexsort((pieces.device, turn)))
