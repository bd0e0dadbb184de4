"""Data types by name, and those that the 8-bit ones are compared with: one bit, a threshold, and plain floats."""

from collections.abc import Mapping

import torch
from numpy.typing import ArrayLike
from torch import Tensor
from typing_extensions import override

from executor.compression.base import DataType, check_finite
from executor.compression.kernel_choice import kernels_for, table_kernels_for
from executor.compression.tables import Table, table_of, values_of
from groundwork.errors import ConfigError
from planner.compression.data_types import SCALE_BYTES, Compression, compression


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


_SIGN = -(2**31)


class OneBit(DataType):
    """The sign of each element, and for each block the means of its elements >= 0 and of its negative elements.

    A message holds the two means of every block as float32, then the signs, the first in a byte's lowest bit.

    Source:
        Seide et al., "1-Bit Stochastic Gradient Descent", Interspeech 2014: threshold 0 and the means of
        either side; a block here is a column there.
    """

    def __init__(self, spec: Compression) -> None:
        super().__init__(spec)
        self._block = int(spec["block"])

    @override
    def _compress(self, values: Tensor, message: Tensor) -> None:
        check_finite(self.name, values)
        means, packed = self._split(message, len(values))
        kernels_for(values.device).compress_signs(values, self._block or max(len(values), 1), means, packed)

    @override
    def _decompress(self, message: Tensor, values: Tensor) -> None:
        means, packed = self._split(message, len(values))
        kernels_for(values.device).decompress_signs(means, packed, self._block or max(len(values), 1), values)

    def _split(self, message: Tensor, count: int) -> tuple[Tensor, Tensor]:
        """Return the means, shape (blocks, 2), and the packed signs in a message."""
        head = self.spec.scales(count) * 2 * SCALE_BYTES
        return message[:head].view(torch.float32).view(-1, 2), message[head:]


class Threshold(DataType):
    """Elements with at least a threshold's magnitude, sent as plus or minus the threshold.

    The rest waits in the residual.  The number of such elements depends on the data, but the size of a message must be
    known before: it has room for one element in ``every``.  Where there are more, the largest are sent, of equals the
    first; the others wait too.  A message holds their count as int32, then for each element sent, in order, its
    position in 31 bits and its sign; the room left is zero.

    Source:
        Strom, "Scalable Distributed DNN Training Using Commodity GPU Cloud Computing", Interspeech 2015.
    """

    def __init__(self, spec: Compression) -> None:
        super().__init__(spec)
        # rounded to float32, so that sender, receiver and the tests' reference use the same threshold
        self._threshold = float(torch.tensor(spec["threshold"], dtype=torch.float32))

    @override
    def _compress(self, values: Tensor, message: Tensor) -> None:
        if len(values) >= 2**31:
            raise ConfigError(f"{self.name}: tensor must hold fewer than 2**31 elements, got {len(values)}")
        check_finite(self.name, values)
        words = message.view(torch.int32).zero_()
        room = len(words) - 1
        position = kernels_for(values.device).positions_above(values, self._threshold)
        if len(position) > room:
            # the largest go; among those as large as the least of them, the first
            size = values[position].abs()
            least = torch.topk(size, room).values[-1]
            above, equal = position[size > least], position[size == least]
            position = torch.cat([above, equal[: room - len(above)]]).sort().values
        sign = torch.where(values[position] < 0, _SIGN, 0)
        words[0] = len(position)
        words[1 : 1 + len(position)] = (position | sign).int()

    @override
    def _decompress(self, message: Tensor, values: Tensor) -> None:
        words = message.view(torch.int32)
        sent = torch.arange(1, len(words), device=message.device) <= words[0]
        size = torch.where(words[1:] < 0, -self._threshold, self._threshold)
        # words past the count add zero to the first element, so that the host need not wait for the device's count
        values.zero_().index_add_(0, words[1:] & ~_SIGN, torch.where(sent, size, 0.0))


class FloatType(DataType):
    """float16, bfloat16 or float32, rounded to the nearest; elements that are too large become the largest."""

    @override
    def _compress(self, values: Tensor, message: Tensor) -> None:
        check_finite(self.name, values)
        largest = torch.finfo(self._dtype).max
        message.view(self._dtype).copy_(values.clamp(-largest, largest))

    @override
    def _decompress(self, message: Tensor, values: Tensor) -> None:
        values.copy_(message.view(self._dtype))

    @property
    def _dtype(self) -> torch.dtype:
        dtype = getattr(torch, self.name)
        assert isinstance(dtype, torch.dtype)
        return dtype


DATA_TYPES: Mapping[str, type[DataType]] = {
    "dynamic-tree": TableType,
    "static-tree": TableType,
    "linear": TableType,
    "mantissa": TableType,
    "one-bit": OneBit,
    "threshold": Threshold,
    "float16": FloatType,
    "bfloat16": FloatType,
    "float32": FloatType,
}
"""Class of each type that ``planner.compression.data_types`` names."""


def data_type(spec: str | Compression, **parameters: object) -> DataType:
    """Make a data type.

    Args:
        spec: As for ``planner.compression.data_types.compression``, or its result.
        **parameters: As there; none where ``spec`` is no text.

    Raises:
        ConfigError: The type or a parameter is unknown (the message names the nearest), or a value breaks its rule.
    """
    checked = compression(spec if isinstance(spec, str) else spec.text, **parameters)
    return DATA_TYPES[checked.name](checked)
