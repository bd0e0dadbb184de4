"""Table types of 8 bits: a sign and the index of the nearest of 128 values."""

import torch
from numpy.typing import ArrayLike
from torch import Tensor
from typing_extensions import override

from executor.compression.base import DataType, check_finite
from executor.compression.kernel_choice import table_kernels_for
from executor.compression.tables import Table, table_of, values_of
from planner.compression.data_types import SCALE_BYTES, Compression


class TableType(DataType):
    """Dynamic tree, static tree, linear quantization and mantissa.

    A message holds the scales, if any, as float32, then one byte for each element.

    Args:
        spec: Name and parameters.
        values: Positive values instead of the type's own, as for ``table_of``, or a table.

    Raises:
        ConfigError: ``values`` cannot form a table.

    Source:
        Dettmers, "8-Bit Approximations for Parallelism in Deep Learning", ICLR 2016, Sections 3.1 and 3.2.
    """

    def __init__(self, spec: Compression, values: ArrayLike | Table | None = None) -> None:
        super().__init__(spec)
        if values is None:
            values = values_of(spec)
        self.table = values if isinstance(values, Table) else table_of(values)
        """Values that bytes stand for, before they are scaled."""
        self._block = int(spec["block"])

    @override
    def _compress(self, values: Tensor, message: Tensor) -> None:
        scales, indices = self._split(message, len(values))
        maxima = check_finite(self.name, values, self._block)
        if self.spec["normalised"]:
            scales.copy_(maxima)
        block = self._block or max(len(values), 1)
        table_kernels_for(values.device, self.table).compress_table(values, scales, block, self.table, indices)

    @override
    def _decompress(self, message: Tensor, values: Tensor) -> None:
        scales, indices = self._split(message, len(values))
        block = self._block or max(len(values), 1)
        table_kernels_for(message.device, self.table).decompress_table(indices, scales, block, self.table, values)

    def _split(self, message: Tensor, count: int) -> tuple[Tensor, Tensor]:
        """Return the scales and the indices in a message; a scale of 1 where it holds none."""
        head = self.spec.scales(count) * SCALE_BYTES
        if not self.spec["normalised"]:
            return torch.ones(1, device=message.device), message
        return message[:head].view(torch.float32), message[head:]
