"""Tensor shapes with named dimensions, and the intervals of an input that an interval of the output needs."""

import math
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np

from groundwork.array_types import Ints

SUMMED = "summed"
"""Name of the index over which a layer sums, and which its output lacks: the input channels of a product, the words of
an embedding.  Parts that differ in it alone compute partial sums of the same region."""
REPEATED = "repeated"
"""Name that stands for no index: parts that differ in it alone compute the same."""


@dataclass(frozen=True, slots=True)
class Shape:
    """Sizes of a tensor's named dimensions: sample, channel, then positions."""

    dims: tuple[str, ...]
    """Names: ``sample``, ``channel``, then the positions: none, ``length``, ``height, width`` or ``depth, height,
    width``."""
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
        """Sizes of the position dimensions: those after sample and channel."""
        return self.sizes[2:]


@dataclass(frozen=True, slots=True, kw_only=True)
class IntervalMap:
    """Map from an interval of an output dimension to the interval of an input dimension that it is computed from.

    With ``dim`` None every part needs the whole input dimension, or the one ``index`` of it.  Otherwise the interval
    [low, high) of the output's dimension ``dim`` is mapped by a sliding window (kernel, stride, pad, dilation), by
    channel groups, or by an offset (concatenation), and clipped to the input's bounds.  Windows that reach beyond the
    part's own interval are its halo: with kernel 3, stride 1 and pad 1, output rows [4, 8) need input rows [3, 9).

    Three further maps serve what is imported.  A resampling reads in proportion: of 7 rows resampled to 3, output rows
    [1, 3) need input rows [2, 7).  A transposed convolution writes ``spread`` apart what it reads: with spread 2,
    kernel 2 and no pad, output rows [4, 8) need input rows [2, 4).  A rotation reads the interval that many indices
    before; a part across its seam needs the whole dimension.
    """

    dim: str | None
    """Output dimension, ``SUMMED`` (a part reads its own slice of the input dimension), or None."""
    kernel: int = 1
    stride: int = 1
    pad: int = 0
    dilation: int = 1
    offset: int = 0
    """Index in the output's dimension at which the input begins; for concatenation."""
    group_out: int = 1
    """Output indices of one group; for grouped convolutions."""
    group_in: int = 1
    """Input indices of one group; for grouped convolutions.  Of ``SUMMED``: indices for each that is summed over."""
    shift: int = 0
    """As ``offset``, but counted before groups are; for concatenations of tensors of which a dimension was divided."""
    proportional: bool = False
    """True if ``group_in`` over ``group_out`` is a ratio, and not a number of indices; for resampling."""
    spread: int = 1
    """Output indices from one input index to the next; for transposed convolutions."""
    rotation: int = 0
    """Indices by which the output is rotated against the input."""
    index: int | None = field(default=None, repr=False)
    """The one index that every part reads, if ``dim`` is None; None: all."""

    def interval(self, low: Ints, high: Ints, input_size: int) -> tuple[Ints, Ints]:
        """Map half-open output intervals to half-open input intervals; empty ones become [0, 0).

        Args:
            low: First output indices along ``dim``, an integer array of any shape (ignored if ``dim`` is none of the
                output's: the whole input dimension is read).
            high: Output indices behind the last, same shape.
            input_size: Size of the input dimension.

        Returns:
            Input bounds, arrays of the same shape, 0 <= low <= high <= ``input_size``.
        """
        if self.index is not None:
            return np.full_like(low, self.index), np.full_like(high, self.index + 1)
        if self.dim in (None, SUMMED):
            return np.zeros_like(low), np.full_like(high, input_size)
        start, stop = self._unclipped(low - self.shift, high - self.shift)
        if self.rotation:
            start, stop = start % input_size, start % input_size + stop - start
            wraps = stop > input_size
            start, stop = np.where(wraps, 0, start), np.where(wraps, input_size, stop)
        # neither np.clip nor np.where, which take several times as long for few parts
        start, stop = (np.minimum(np.maximum(each, 0), input_size) for each in (start, stop))
        filled = (start < stop) & (low < high)
        return start * filled, stop * filled

    def _unclipped(self, low: Ints, high: Ints) -> tuple[Ints, Ints]:
        """Return the interval as if the input had no bounds; arguments as for ``interval``."""
        reach = self.dilation * (self.kernel - 1)
        if self.spread > 1:
            return -((reach - low - self.pad) // self.spread), (high - 1 + self.pad) // self.spread + 1
        if self.proportional:
            first, last = low * self.group_in // self.group_out, -(-high * self.group_in // self.group_out)
        else:
            first, last = (low // self.group_out) * self.group_in, -(-high // self.group_out) * self.group_in
        behind = self.pad + self.offset + self.rotation
        return first * self.stride - behind, (last - 1) * self.stride - behind + reach + 1


interval_map = lru_cache(maxsize=4096)(IntervalMap)
"""Returns the one map with such fields: a network has few different ones, and operations ask for them each time."""
