"""Kernels: the work of a device in terms of its arithmetic and memory, independent of layers."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from groundwork.array_types import Bools, Floats

KERNEL_KINDS = ("product", "convolution", "attention", "norm", "elementwise", "moe")
"""Kinds of kernels that profiles know: the first two are products, or end as products."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConvolutionWindow:
    """The geometry of a convolution that all its parts share; it decides which algorithms libraries may choose."""

    positions: int
    """Positions of the window: 9 for 3 x 3."""
    stride: int = 1
    """Product of the strides."""
    groups: int = 1
    """Groups of channels that are convolved separately."""
    winograd: bool = False
    """True for 3 x 3, stride 1, not dilated, one group: Winograd's algorithm applies."""
    one_dimensional: bool = False
    """True for windows like 1 x 7, which libraries have no tuned kernels for."""
    fourier: bool = False
    """True for larger square windows of stride 1, not dilated, one group: Fourier transforms, or Winograd's
    algorithm for 5 x 5, apply."""

    @classmethod
    def of(
        cls, kernel: Sequence[int], stride: Sequence[int], dilation: Sequence[int], groups: int
    ) -> "ConvolutionWindow":
        """Return the geometry of a convolution, of which each position dimension has a size, a stride and a dilation.

        Winograd's algorithm is for 3 x 3 windows of stride 1, not dilated, in one group.
        """
        plain = groups == 1 and all(value == 1 for value in (*stride, *dilation))
        square = len(kernel) == 2 and kernel[0] == kernel[1]
        return cls(
            positions=math.prod(kernel),
            stride=math.prod(stride),
            groups=groups,
            winograd=plain and square and kernel[0] == 3,
            fourier=plain and square and kernel[0] > 3,
            one_dimensional=sum(extent > 1 for extent in kernel) == 1,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Kernels:
    """A batch of kernels, with one entry for each in arrays of one shape.

    A convolution or a matrix product is described by the matrix product that implements it
    (implicit GEMM): ``rows`` x ``depth`` times ``depth`` x ``columns``.  Kernels that only stream
    memory (pooling, activations, updates) have ``flop`` and ``rows``, ``columns``, ``depth`` of zero or
    more; their time follows from ``memory_bytes``.
    """

    flop: Floats
    """Floating-point operations; a multiply-add counts as two."""
    memory_bytes: Floats
    """Bytes read from and written to device memory, each operand once."""
    rows: Floats
    """GEMM rows: the output channels (forward) of the part; 0 for streaming kernels."""
    columns: Floats
    """GEMM columns: samples x positions of the part; 0 for streaming kernels."""
    depth: Floats
    """GEMM inner dimension: input channels x kernel volume; 0 for streaming kernels."""
    samples: Floats
    """Samples in the part, over which some kernels tile."""
    streamed_bytes: Floats | float = 0.0
    """Bytes of separate passes before or after a product (batch normalisation, activations), which no arithmetic
    hides."""
    window: ConvolutionWindow | None = None
    """Geometry of a convolution; None for plain products and streaming kernels."""

    @property
    def matrix(self) -> Bools:
        """Flags of the entries that are matrix products."""
        return self.rows * self.columns * self.depth > 0
