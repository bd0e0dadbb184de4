"""Regions: the boxes of a tensor that parts hold and that parts of its consumers need."""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from planner.configurations import ConfigSpace
from planner.shapes import Need, Shape

__all__ = ["Boxes", "held", "layouts_of", "needed"]

Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class Boxes:
    """Half-open boxes, one a part of every configuration of a space: arrays of shape (parts in all, D).

    Empty boxes have [0, 0) in every dimension.
    """

    low: Ints
    high: Ints

    @property
    def volume(self) -> Ints:
        """Elements in each box."""
        return np.asarray((self.high - self.low).prod(axis=1))


@lru_cache(maxsize=2048)
def held(space: ConfigSpace) -> Boxes:
    """The box of the layer's output that each part holds."""
    parts = space.parts
    rest = np.arange(len(space.devices), dtype=np.int64) - np.repeat(space.device_start[:-1], parts)
    degrees = np.repeat(space.degrees, parts, axis=0)
    low, high = np.empty_like(degrees), np.empty_like(degrees)
    for d in range(degrees.shape[1] - 1, -1, -1):  # row-major: the last dimension varies fastest
        rest, index = np.divmod(rest, degrees[:, d])
        size = space.output.sizes[d]
        low[:, d], high[:, d] = index * size // degrees[:, d], (index + 1) * size // degrees[:, d]
    return Boxes(low, high)


@lru_cache(maxsize=4096)
def needed(space: ConfigSpace, needs: tuple[Need, ...], source: Shape) -> Boxes:
    """The box of an input that each part of a consumer needs.

    Args:
        space: Configurations of the consumer.
        needs: What the consumer's operation needs of each dimension of the input.
        source: Shape of the input tensor.
    """
    parts, dims = held(space), space.output.dims
    low = np.empty((len(parts.low), len(source.sizes)), dtype=np.int64)
    high = np.empty_like(low)
    for d, (need, size) in enumerate(zip(needs, source.sizes, strict=True)):
        column = dims.index(need.dim) if need.dim is not None else 0
        low[:, d], high[:, d] = need.interval(parts.low[:, column], parts.high[:, column], size)
    empty = (high <= low).any(axis=1)
    low[empty], high[empty] = 0, 0
    return Boxes(low, high)


@lru_cache(maxsize=4096)
def layouts_of(space: ConfigSpace, needs: tuple[Need, ...], source: Shape) -> Ints:
    """Which device needs which box of an input: equal numbers for equal layouts, shape (C,).

    The number is a 64-bit hash of the set of (device, box) pairs, empty boxes left out.
    """
    boxes = needed(space, needs, source)
    words = np.column_stack([space.devices, boxes.low, boxes.high]).astype(np.uint64)
    mixed = np.zeros(len(words), dtype=np.uint64)
    for column in words.T:  # the finaliser of SplitMix64, chained over the columns
        mixed = (mixed ^ column) + np.uint64(0x9E3779B97F4A7C15)
        mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        mixed ^= mixed >> np.uint64(31)
    mixed[boxes.volume == 0] = 0
    return np.add.reduceat(mixed, space.device_start[:-1]).view(np.int64)
