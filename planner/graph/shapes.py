"""Tensor shapes with named dimensions, and the intervals of an input that an interval of the output needs."""

import math
from dataclasses import dataclass

import numpy as np

from hwprofiles import Ints

__all__ = ["IN_CHANNEL", "IntervalMap", "Shape"]


IN_CHANNEL = "in_channel"
"""Name of the reduction dimension: slices of a layer's input channels, and the partial sums over each slice."""


@dataclass(frozen=True, slots=True)
class Shape:
    """Sizes of a tensor's named dimensions: sample, channel, then positions."""

    dims: tuple[str, ...]
    """Names: ``sample``, ``channel``, for partial sums ``in_channel``, then the positions: none, ``length``,
    ``height, width`` or ``depth, height, width``."""
    sizes: tuple[int, ...]

    def size(self, dim: str) -> int:
        """Return the size of a named dimension."""
        return self.sizes[self.dims.index(dim)]

    @property
    def elements(self) -> int:
        """Number of elements: the product of the sizes."""
        return math.prod(self.sizes)

    @property
    def positions(self) -> tuple[int, ...]:
        """Sizes of the position dimensions: those after sample, channel and ``in_channel``."""
        return self.sizes[3:] if IN_CHANNEL in self.dims else self.sizes[2:]


@dataclass(frozen=True, slots=True, kw_only=True)
class IntervalMap:
    """Map from an interval of an output dimension to the interval of an input dimension that it is computed from.

    With ``dim`` None every part needs the whole input dimension.  Otherwise the interval [low, high) of the output's
    dimension ``dim`` is mapped by a sliding window (kernel, stride, pad, dilation), by channel groups,
    or by an offset (concatenation), and clipped to the input's bounds.  Windows that reach beyond the part's own
    interval are its halo: with kernel 3, stride 1 and pad 1, output rows [4, 8) need input rows [3, 9).
    """

    dim: str | None
    """Output dimension, or None."""
    kernel: int = 1
    stride: int = 1
    pad: int = 0
    dilation: int = 1
    offset: int = 0
    """Index in the output's dimension at which the input begins; for concatenation."""
    group_out: int = 1
    """Output indices of one group; for grouped convolutions."""
    group_in: int = 1
    """Input indices of one group; for grouped convolutions."""

    def interval(self, low: Ints, high: Ints, input_size: int) -> tuple[Ints, Ints]:
        """Map half-open output intervals to half-open input intervals; empty ones become [0, 0).

        Args:
            low: First output indices along ``dim``, an integer array of any shape (ignored if ``dim`` is None).
            high: Output indices behind the last, same shape.
            input_size: Size of the input dimension.

        Returns:
            Input bounds, arrays of the same shape, 0 <= low <= high <= ``input_size``.
        """
        if self.dim is None:
            return np.zeros_like(low), np.full_like(high, input_size)
        first = (low // self.group_out) * self.group_in
        last = -(-high // self.group_out) * self.group_in
        start = first * self.stride - self.pad - self.offset
        stop = (last - 1) * self.stride - self.pad - self.offset + self.dilation * (self.kernel - 1) + 1
        start, stop = np.clip(start, 0, input_size), np.clip(stop, 0, input_size)
        empty = (stop <= start) | (high <= low)
        return np.where(empty, 0, start), np.where(empty, 0, stop)
