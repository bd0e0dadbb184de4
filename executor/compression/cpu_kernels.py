"""The table types on a processor, compiled: one thread, without the interpreter's lock.

Same results as ``executor.compression.torch_kernels``, which say more plainly what is computed.
"""

from typing import Any

import numpy as np
from numba import njit, types
from torch import Tensor

from executor.compression.tables import Table

__all__ = ["absolute_maxima", "decode", "encode"]

_MAGNITUDE = np.uint32(0x7FFFFFFF)
_LOW = np.uint32(0xFFFF)
_HALF, _CODE, _SIGN, _NEGATIVE = np.uint32(16), np.uint32(17), np.uint32(24), np.uint32(0x80)
_TURN = np.uint32(0x1FFFF)


def absolute_maxima(values: Tensor, block: int) -> Tensor:
    """As ``torch_kernels.absolute_maxima``."""
    count = -(-len(values) // block)
    maxima = values.new_empty(count)
    _maxima(values.numpy().view(np.uint32), block, maxima.numpy().view(np.uint32))
    return maxima


def encode(values: Tensor, scales: Tensor, block: int, table: Table, codes: Tensor) -> None:
    """As ``torch_kernels.encode``; the table has a lookup."""
    assert table.lookup is not None
    _encode(values.numpy(), scales.numpy(), block, table.lookup.view(np.uint32), codes.numpy())


def decode(codes: Tensor, scales: Tensor, block: int, table: Table, values: Tensor) -> None:
    """As ``torch_kernels.decode``."""
    _decode(codes.numpy(), scales.numpy(), block, table.signed, values.numpy())


_OPTIONS: dict[str, Any] = {"cache": True, "nogil": True, "error_model": "numpy"}
_F, _I, _B = types.float32[::1], types.uint32[::1], types.uint8[::1]


@njit(types.void(_I, types.int64, _I), **_OPTIONS)
def _maxima(bits: Any, block: int, maxima: Any) -> None:
    # magnitudes are in the order of their bits, infinity and NaN above all numbers
    for b in range(len(maxima)):
        largest = np.uint32(0)
        for i in range(b * block, min((b + 1) * block, len(bits))):
            largest = max(largest, bits[i] & _MAGNITUDE)
        maxima[b] = largest


@njit(types.void(_F, _F, types.int64, types.Array(types.uint32, 1, "C", readonly=True), _B), **_OPTIONS)
def _encode(values: Any, scales: Any, block: int, lookup: Any, codes: Any) -> None:
    for b in range(len(scales)):
        scale = scales[b] if scales[b] > 0 else np.float32(1)
        for i in range(b * block, min((b + 1) * block, len(values))):
            value = values[i]
            bits = np.float32(abs(value) / scale).view(np.uint32)
            entry = lookup[bits >> _HALF]
            code = (entry >> _CODE) + np.uint32((bits & _LOW) >= (entry & _TURN))
            codes[i] = code | (np.float32(value).view(np.uint32) >> _SIGN & _NEGATIVE)


@njit(types.void(_B, _F, types.int64, types.Array(types.float32, 1, "C", readonly=True), _F), **_OPTIONS)
def _decode(codes: Any, scales: Any, block: int, signed: Any, values: Any) -> None:
    for b in range(len(scales)):
        scale = scales[b]
        for i in range(b * block, min((b + 1) * block, len(codes))):
            values[i] = signed[codes[i]] * scale
