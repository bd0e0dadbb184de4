"""The 8-bit types: a sign and the index of the nearest of 128 values."""

from functools import cache
from importlib.util import find_spec
from types import ModuleType

import torch
from numpy.typing import ArrayLike
from torch import Tensor
from typing_extensions import override

from executor.compression import cpu_kernels, torch_kernels
from executor.compression.base import DataType, check_finite
from executor.compression.tables import Table, table_of, values_of
from planner.compression import SCALE_BYTES, Compression

__all__ = ["TableType"]


class TableType(DataType):
    """Dynamic tree, static tree, linear quantization and mantissa.

    A message holds the scales, if any, as float32, then a byte a number.

    Args:
        spec: Name and parameters.
        values: Positive values in place of the type's own, as for ``table_of``, or a table.

    Raises:
        ConfigError: ``values`` are no table.
    """

    def __init__(self, spec: Compression, values: ArrayLike | Table | None = None) -> None:
        super().__init__(spec)
        if values is None:
            values = values_of(spec)
        self.table = values if isinstance(values, Table) else table_of(values)
        """The values that bytes stand for, before they are scaled."""
        self._block = int(spec["block"])

    @override
    def _encode(self, values: Tensor, message: Tensor) -> None:
        scales, codes = self._parts(message, len(values))
        maxima = check_finite(self.name, values, self._block)
        if self.spec["normalised"]:
            scales.copy_(maxima)
        block = self._block or max(len(values), 1)
        _kernels(values.device, self.table).encode(values, scales, block, self.table, codes)

    @override
    def _decode(self, message: Tensor, values: Tensor) -> None:
        scales, codes = self._parts(message, len(values))
        block = self._block or max(len(values), 1)
        _kernels(message.device, self.table).decode(codes, scales, block, self.table, values)

    def _parts(self, message: Tensor, count: int) -> tuple[Tensor, Tensor]:
        """The scales and the codes in a message; a scale of 1 where it holds none."""
        head = self.spec.scales(count) * SCALE_BYTES
        if not self.spec["normalised"]:
            return torch.ones(1, device=message.device), message
        return message[:head].view(torch.float32), message[head:]


@cache
def _has_triton() -> bool:
    return find_spec("triton") is not None


def _kernels(device: torch.device, table: Table) -> ModuleType:
    if table.lookup is None:
        return torch_kernels
    if device.type == "cpu":
        return cpu_kernels
    if device.type == "cuda" and _has_triton():
        from executor.compression import triton_kernels  # only where there is a GPU: it compiles for one

        return triton_kernels
    return torch_kernels
