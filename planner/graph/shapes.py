"""Tensor shapes with named dimensions, and which part of an input a part of an output needs."""

import math
from dataclasses import dataclass

import numpy as np

from hwprofiles import Ints

__all__ = ["IN_CHANNEL", "Need", "Shape"]


IN_CHANNEL = "in_channel"
"""The reduction dimension: slices of a layer's input channels, and the dimension of partial sums over each."""


@dataclass(frozen=True, slots=True)
class Shape:
    """Named sizes, in the order of the dimensions: sample, channel, then positions."""

    dims: tuple[str, ...]
    """``sample``, ``channel``, of partial sums ``in_channel``, then none, ``length``, ``height, width`` or
    ``depth, height, width``."""
    sizes: tuple[int, ...]

    def size(self, dim: str) -> int:
        """Size of a named dimension."""
        return self.sizes[self.dims.index(dim)]

    @property
    def elements(self) -> int:
        """Product of the sizes."""
        return math.prod(self.sizes)

    @property
    def positions(self) -> tuple[int, ...]:
        """Sizes of the dimensions after sample, channel and, of partial sums, ``in_channel``."""
        return self.sizes[3:] if IN_CHANNEL in self.dims else self.sizes[2:]


@dataclass(frozen=True, slots=True, kw_only=True)
class Need:
    """Which interval of one input dimension an interval of the output needs.

    ``dim`` None: all of it, whatever the part.  Otherwise the interval [low, high) of the output's
    dimension ``dim`` is mapped by a sliding window (kernel, stride, pad, dilation), by channel groups,
    or by an offset (concatenation), and cut to the input's bounds.
    """

    dim: str | None
    kernel: int = 1
    stride: int = 1
    pad: int = 0
    dilation: int = 1
    offset: int = 0
    """Where the input starts in the output's dimension: concatenation."""
    group_out: int = 1
    """Output indices of one group; with ``group_in`` for grouped convolutions."""
    group_in: int = 1
    """Input indices of one group."""

    def interval(self, low: Ints, high: Ints, input_size: int) -> tuple[Ints, Ints]:
        """Map half-open output intervals to half-open input intervals; empty ones become [0, 0).

        Args:
            low, high: Output bounds along ``dim``, integer arrays of one shape (ignored if ``dim`` is None).
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
