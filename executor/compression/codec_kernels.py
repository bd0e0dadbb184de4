"""Interface of the kernels that compress and decompress: the same results on every kind of device."""

from typing import Protocol

from torch import Tensor

from executor.compression.tables import Table


class CodecKernels(Protocol):
    """Kernels of the table types, of one-bit compression and of thresholds.

    All implementations give the same results to the last bit; ``torch_kernels`` shows them in plain operations.
    """

    def block_maxima(self, values: Tensor, block: int) -> Tensor:
        """Return the largest magnitude of every block; NaN where a block holds one.

        Args:
            values: Shape (n,), float32, contiguous.
            block: Number of elements in a block, >= 1; the last block may be shorter.

        Returns:
            Shape (ceil(n / block),), float32.
        """

    def compress_table(self, values: Tensor, scales: Tensor, block: int, table: Table, indices: Tensor) -> None:
        """Write for every element the index of the table's value nearest to its magnitude over its scale, and its sign.

        The quotient is rounded to float32 once.  A quotient half-way between two values takes the lower one, one above
        the table its largest value.  A scale of 0 counts as 1.

        Args:
            values: Shape (n,), float32, finite.
            scales: Shape (ceil(n / block),), float32, >= 0.
            block: Number of elements that share a scale.
            table: The values and the cutoffs between them.
            indices: Shape (n,), uint8; written: the index in the lower seven bits, the sign in the highest.
        """

    def decompress_table(self, indices: Tensor, scales: Tensor, block: int, table: Table, values: Tensor) -> None:
        """Write the signed value of every index times its scale; arguments as for ``compress_table``."""

    def compress_signs(self, values: Tensor, block: int, means: Tensor, packed: Tensor) -> None:
        """Write the sign of every element, and the mean of the elements of either sign in every block.

        Args:
            values: Shape (n,), float32, finite.
            block: Number of elements that share two means.
            means: Shape (blocks, 2), float32; written: the mean of the negative elements, and of the others; 0 where
                there are none.
            packed: Shape (ceil(n / 8),), uint8; written: one bit for each element, 1 for >= 0, from the lowest bit up.
        """

    def decompress_signs(self, means: Tensor, packed: Tensor, block: int, values: Tensor) -> None:
        """Write the mean that every sign stands for; arguments as for ``compress_signs``."""

    def positions_above(self, values: Tensor, threshold: float) -> Tensor:
        """Return the positions of the elements whose magnitude is at least a threshold, in order.

        Args:
            values: Shape (n,), float32, finite.
            threshold: A float32 number.

        Returns:
            Shape (positions,), int64.
        """
