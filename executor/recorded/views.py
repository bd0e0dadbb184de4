"""Views of a region of a tensor, by the axes in which an operation sees it.

An axis of an operation is a product of factors of dimensions.  A part holds a region, a box of the dimensions; of each
axis it needs some indices.  Both are translated by digits: index 70 of a channel axis of 12 x 64 is head 1, channel 6.
What is to be read of tensors with certain sizes and strides is a ``Selection``, found once and used in every iteration.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np
import torch
from torch import Tensor

from executor.runtime.boxes import Box
from groundwork.array_types import Ints
from groundwork.errors import ConfigError
from planner.graph.shapes import Shape
from planner.operations.computation import parse_axis


@dataclass(frozen=True, slots=True)
class AxisFactor:
    """A factor of a dimension of a tensor."""

    dim: int
    """Index of the dimension; -1: a repetition."""
    size: int
    stride: int


ViewAxes = tuple[tuple[AxisFactor, ...], ...]
Ranges = tuple[tuple[tuple[int, int], ...], ...]
"""For each factor of each axis its half-open interval of digits."""


@lru_cache(maxsize=4096)
def axes_in(texts: tuple[str, ...], shape: Shape) -> ViewAxes:
    """Return written axes in terms of the dimensions of a shape."""
    return tuple(
        tuple(
            AxisFactor(-1 if f.dim is None else shape.dims.index(f.dim), f.size or shape.size(str(f.dim)), f.stride)
            for f in parse_axis(text)
        )
        for text in texts
    )


@lru_cache(maxsize=4096)
def sizes_of(axes: ViewAxes) -> tuple[int, ...]:
    """Return the number of indices of each axis."""
    return tuple(math.prod(f.size for f in axis) for axis in axes)


def cover(axes: ViewAxes, box: Box, whole: Sequence[tuple[int, int]] = ()) -> Ranges:
    """Return the smallest digits of all factors that hold a box.

    Args:
        axes: ViewAxes of a result, of which every index of the dimensions is one.
        box: Region of the dimensions.
        whole: Axis and factor of those that are taken in full.
    """
    ranges: dict[tuple[int, int], tuple[int, int]] = {}
    for dim, (low, high) in enumerate(zip(box.low, box.high, strict=True)):
        mine = [(f, (a, j)) for a, axis in enumerate(axes) for j, f in enumerate(axis) if f.dim == dim]
        for f, place in sorted(mine, key=lambda row: -row[0].stride):
            first, last = low // f.stride, -(-high // f.stride)
            ranges[place] = (0, f.size) if place in whole else (first, last)
            # within one outer index the rest is counted from there; across several all of the inner ones are held
            low, high = (low - first * f.stride, high - first * f.stride) if last - first == 1 else (0, f.stride)
    return tuple(tuple(ranges[a, j] for j in range(len(axis))) for a, axis in enumerate(axes))


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Selection:
    """Elements to read of any tensor of given sizes and strides, as views where strides can say it."""

    counts: list[int]
    steps: list[int]
    first: int
    whole: tuple[list[int], list[int], list[int]] | None
    """Where the elements are all of the tensor in another order: its dimensions and the loops' counts in the order of
    memory, and the loops' order.  The gradient of these views is a view; that of others fills a tensor with zeros."""
    sizes: list[int]
    """Sizes of the result's axes before ``chosen`` is read."""
    chosen: dict[int, Tensor]
    """Indices to read of axes that strides cannot say."""

    def of(self, tensor: Tensor) -> Tensor:
        """Return the elements."""
        if self.whole is not None:
            dims, counts, order = self.whole
            view = tensor.permute(dims).view(counts).permute(order)
        else:
            view = tensor.as_strided(self.counts, self.steps, tensor.storage_offset() + self.first)
        view = view.reshape(self.sizes)
        for axis, index in self.chosen.items():
            view = view.index_select(axis, index)
        return view


@dataclass(frozen=True)
class ResultView:
    """Result of a step on a part: the digits that it holds of each factor of its axes."""

    axes: ViewAxes
    ranges: Ranges

    def indices(self) -> list[Ints]:
        """Return the indices that it holds of each axis."""
        return list(self._indices)

    @cached_property
    def _indices(self) -> list[Ints]:
        rows = []
        for axis, held in zip(self.axes, self.ranges, strict=True):
            index = np.zeros(1, dtype=np.int64)
            for f, (low, high) in zip(axis, held, strict=True):
                index = (index[:, None] * f.size + np.arange(low, high)).reshape(-1)
            rows.append(index)
        return rows

    @cached_property
    def sizes(self) -> list[int]:
        """Number of indices that it holds of each axis."""
        return [math.prod(high - low for low, high in held) for held in self.ranges]

    def placing(self, result: Tensor, box: Box) -> Selection:
        """Return what a result, of all its ``sizes``, holds of a region of the output, in the output's dimensions."""
        vectors = []
        for dim, (low, high) in enumerate(zip(box.low, box.high, strict=True)):
            index, vector = np.arange(low, high), np.zeros(high - low, dtype=np.int64)
            for stride, axis, held in zip(result.stride(), self.axes, self.ranges, strict=True):
                for f, (first, last) in reversed(list(zip(axis, held, strict=True))):
                    if f.dim == dim:
                        vector += ((index // f.stride) % f.size - first) * stride
                    stride *= last - first
            vectors.append(vector)
        return _selection(result, vectors, 0)


def selection(region: Tensor, box: Box, axes: ViewAxes, indices: Sequence[Ints], what: str) -> Selection:
    """Return how to read some indices of each axis of a view of a tensor, of which a region is at hand.

    Args:
        region: Elements of the region.
        box: The region.
        axes: ViewAxes of the view.
        indices: Indices of each axis.
        what: What is read, for the message.

    Raises:
        ConfigError: An index lies outside of the region.
    """
    if any(len(index) == 0 for index in indices):
        sizes = [len(index) for index in indices]
        return Selection(counts=sizes, steps=[0] * len(sizes), first=0, whole=None, sizes=sizes, chosen={})
    strides = region.stride()
    least, most = [0] * len(strides), [0] * len(strides)
    vectors = []
    for axis, index in zip(axes, indices, strict=True):
        vector, inner = np.zeros(len(index), dtype=np.int64), 1
        for f in reversed(axis):
            if f.dim >= 0:
                digits = (index // inner) % f.size * f.stride
                least[f.dim] += int(digits.min())
                most[f.dim] += int(digits.max())
                vector += digits * strides[f.dim]
            inner *= f.size
        vectors.append(vector)
    if any(a < low or b >= high for a, b, low, high in zip(least, most, box.low, box.high, strict=True)):
        raise ConfigError(
            f"{what} reads [{least} to {most}] of a tensor of which the part has [{list(box.low)} to {list(box.high)}]"
        )
    return _selection(region, vectors, -sum(low * stride for low, stride in zip(box.low, strides, strict=True)))


def is_dense(sizes: Sequence[int], strides: Sequence[int]) -> bool:
    """Return whether the elements of a tensor fill one run of memory, each once, in any order of its dimensions."""
    run = 1
    for stride, size in sorted((stride, size) for size, stride in zip(sizes, strides, strict=True) if size != 1):
        if stride != run:
            return False
        run *= size
    return True


def _selection(tensor: Tensor, vectors: Sequence[Ints], base: int) -> Selection:
    """Return how to read the elements of a tensor at ``base`` and one offset of each vector.

    An axis whose offsets no strides can say is read whole, or the multiples of the offsets' common step of it, and then
    by an index of its own.
    """
    counts, steps, start, chosen = list[int](), list[int](), base, dict[int, Ints]()
    for axis, vector in enumerate(vectors):
        loops = _nested(vector)
        start += int(vector.min())
        if loops is None:
            away = vector - vector.min()
            step = int(np.gcd.reduce(away))
            chosen[axis], loops = away // step, [(int(away.max()) // step + 1, step)]
        counts += [count for count, _ in loops]
        steps += [step for _, step in loops]
    return Selection(
        counts=counts,
        steps=steps,
        first=start,
        whole=_in_memory_order(tensor, counts, steps),
        sizes=[int(chosen[i].max()) + 1 if i in chosen else len(vector) for i, vector in enumerate(vectors)],
        chosen={axis: torch.from_numpy(index).to(tensor.device) for axis, index in chosen.items()},
    )


def _in_memory_order(
    tensor: Tensor, counts: Sequence[int], steps: Sequence[int]
) -> tuple[list[int], list[int], list[int]] | None:
    """Return a tensor's dimensions, loops' counts, both in the order of memory, and the loops' order.

    None unless the loops meet every element once.
    """
    strides = tensor.stride()
    dims = sorted(range(len(strides)), key=lambda dim: (-strides[dim], -tensor.shape[dim]))
    loops = sorted(range(len(steps)), key=lambda loop: (-steps[loop], -counts[loop]))
    ordered = [counts[loop] for loop in loops]
    try:
        view = tensor.permute(dims).view(ordered)
    except RuntimeError:  # a loop covers dimensions with a gap between them
        return None
    met = [(count, step) for count, step in zip(ordered, view.stride(), strict=True) if count != 1]
    if met != [(counts[loop], steps[loop]) for loop in loops if counts[loop] != 1]:
        return None
    return dims, ordered, [loops.index(loop) for loop in range(len(loops))]


def _nested(vector: Ints) -> list[tuple[int, int]] | None:
    """Return offsets as counts and steps of loops within one another, from the outside in; None if they are none."""
    if len(vector) == 1:
        return []
    step = int(vector[1] - vector[0])
    if step < 0:
        return None
    steps = np.diff(vector)
    other = np.flatnonzero(steps != step)
    run = int(other[0]) + 1 if len(other) else len(vector)
    if len(vector) % run:
        return None
    table = vector.reshape(-1, run)
    if (table - table[:, :1] != table[0] - table[0, 0]).any():
        return None
    outer = _nested(table[:, 0])
    return None if outer is None else [*outer, (run, step)]
