"""Views of a region of a tensor, by the axes in which an operation sees it.

An axis of an operation is a product of factors of dimensions.  A part holds a region, a box of the dimensions; of each
axis it needs some indices.  Both are translated by digits: index 70 of a channel axis of 12 x 64 is head 1, channel 6.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from executor.runtime import Box
from hwprofiles import ConfigError, Ints
from planner.graph import Shape
from planner.operations import parse_axis

__all__ = ["AxisFactor", "Ranges", "ResultView", "axes_in", "cover", "is_dense", "sizes_of", "view_of"]


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


def axes_in(texts: Sequence[str], shape: Shape) -> ViewAxes:
    """Return written axes in terms of the dimensions of a shape."""
    return tuple(
        tuple(
            AxisFactor(-1 if f.dim is None else shape.dims.index(f.dim), f.size or shape.size(str(f.dim)), f.stride)
            for f in parse_axis(text)
        )
        for text in texts
    )


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


@dataclass(frozen=True, slots=True)
class ResultView:
    """Result of a step on a part: the digits that it holds of each factor of its axes."""

    axes: ViewAxes
    ranges: Ranges

    def indices(self) -> list[Ints]:
        """Return the indices that it holds of each axis."""
        rows = []
        for axis, held in zip(self.axes, self.ranges, strict=True):
            index = np.zeros(1, dtype=np.int64)
            for f, (low, high) in zip(axis, held, strict=True):
                index = (index[:, None] * f.size + np.arange(low, high)).reshape(-1)
            rows.append(index)
        return rows

    def placed(self, result: Tensor, box: Box) -> Tensor:
        """Return the region of the output that a result holds, in the order of the output's dimensions."""
        sizes = [math.prod(high - low for low, high in held) for held in self.ranges]
        result = result.expand(sizes)
        vectors = []
        for dim, (low, high) in enumerate(zip(box.low, box.high, strict=True)):
            index, vector = np.arange(low, high), np.zeros(high - low, dtype=np.int64)
            for stride, axis, held in zip(result.stride(), self.axes, self.ranges, strict=True):
                for f, (first, last) in reversed(list(zip(axis, held, strict=True))):
                    if f.dim == dim:
                        vector += ((index // f.stride) % f.size - first) * stride
                    stride *= last - first
            vectors.append(vector)
        return _strided(result, vectors, 0)


def view_of(region: Tensor, box: Box, axes: ViewAxes, indices: Sequence[Ints], what: str) -> Tensor:
    """Return some indices of each axis of a view of a tensor, of which a region is at hand.

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
        return region.new_empty([len(index) for index in indices])
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
    return _strided(region, vectors, -sum(low * stride for low, stride in zip(box.low, strides, strict=True)))


def is_dense(sizes: Sequence[int], strides: Sequence[int]) -> bool:
    """Return whether the elements of a tensor fill one run of memory, each once, in any order of its dimensions."""
    run = 1
    for stride, size in sorted((stride, size) for size, stride in zip(sizes, strides, strict=True) if size != 1):
        if stride != run:
            return False
        run *= size
    return True


class _Rearranged(torch.autograd.Function):
    """All elements of a tensor in another order: as ``as_strided``, whose gradient would fill a tensor of zeros."""

    @staticmethod
    def forward(context: Any, tensor: Tensor, sizes: list[int], steps: list[int], packed: list[int]) -> Tensor:
        """Return a view.

        Args:
            context: What the gradient needs.
            tensor: The tensor.
            sizes: Counts of the loops over its elements, from the outside in.
            steps: Their steps.
            packed: Their steps in ``_packed(tensor)``.
        """
        context.sizes, context.packed, context.given = sizes, packed, (tensor.shape, _packed(tensor))
        return tensor.as_strided(sizes, steps)

    @staticmethod
    def backward(context: Any, gradient: Tensor) -> tuple[Tensor, None, None, None]:
        """Return a view of the gradient, which is copied if its elements lie in another order than the tensor's."""
        held = gradient
        if gradient.stride() != tuple(context.packed):
            held = gradient.new_empty_strided(context.sizes, context.packed).copy_(gradient)
        return held.as_strided(*context.given), None, None, None


def _packed(tensor: Tensor) -> list[int]:
    """Return the strides of a tensor without the gaps that a region of a larger tensor has."""
    strides, run = [1] * tensor.dim(), 1
    for dim in sorted(range(tensor.dim()), key=tensor.stride):
        strides[dim] = run
        run *= tensor.shape[dim]
    return strides


def _packed_steps(tensor: Tensor, steps: Sequence[int]) -> list[int]:
    """Return steps in a tensor as steps in ``_packed(tensor)``; each is some steps in one dimension."""
    rows = zip(tensor.stride(), _packed(tensor), tensor.shape, strict=True)
    pairs = sorted((stride, packed) for stride, packed, size in rows if size > 1 and stride)
    found = []
    for step in steps:
        fitting = [(stride, packed) for stride, packed in pairs if 0 < stride <= step and step % stride == 0]
        stride, packed = fitting[-1] if fitting else (1, 0)
        found.append(step // stride * packed)
    return found


def _strided(tensor: Tensor, vectors: Sequence[Ints], base: int) -> Tensor:
    """Return the elements of a tensor at ``base`` and one offset of each vector: a view where strides can say that.

    An axis whose offsets no strides can say is read whole, or the multiples of the offsets' common step of it, and then
    by an index of its own.
    """
    sizes, steps, start, chosen = list[int](), list[int](), base, dict[int, Ints]()
    for axis, vector in enumerate(vectors):
        loops = _nested(vector)
        start += int(vector.min())
        if loops is None:
            away = vector - vector.min()
            step = int(np.gcd.reduce(away))
            chosen[axis], loops = away // step, [(int(away.max()) // step + 1, step)]
        sizes += [count for count, _ in loops]
        steps += [step for _, step in loops]
    packed = _packed_steps(tensor, steps)
    if math.prod(sizes) == tensor.numel() and is_dense(sizes, packed):
        view: Tensor = _Rearranged.apply(tensor, sizes, steps, packed)  # type: ignore[no-untyped-call]
    else:
        view = tensor.as_strided(sizes, steps, tensor.storage_offset() + start)
    view = view.reshape([int(chosen[i].max()) + 1 if i in chosen else len(vector) for i, vector in enumerate(vectors)])
    for axis, index in chosen.items():
        view = view.index_select(axis, torch.from_numpy(index).to(tensor.device))
    return view


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
