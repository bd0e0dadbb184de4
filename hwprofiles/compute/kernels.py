"""What a device is asked to compute, without saying which layer asks."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hwprofiles import Floats

__all__ = ["Kernels"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Kernels:
    """A batch of kernels, one entry each in arrays of one shape.

    A convolution or a matrix product is described by the matrix product that implements it
    (implicit GEMM): ``rows`` x ``depth`` times ``depth`` x ``columns``.  Kernels that only stream
    memory (pooling, activations, updates) have ``flop`` and ``rows``, ``columns``, ``depth`` of zero or
    more; what prices them is ``memory_bytes``.
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
    """Samples in the part: some kernels tile over them."""
    streamed_bytes: Floats | float = 0.0
    """Bytes of passes of their own before or after a product (batch normalisation, activations), which no
    arithmetic hides."""

    @property
    def matrix(self) -> NDArray[np.bool_]:
        """Which entries are matrix products."""
        return self.rows * self.columns * self.depth > 0
