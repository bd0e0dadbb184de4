"""The table types and one bit on a processor, compiled: one thread, without the interpreter's lock.

Same results as ``executor.compression.torch_kernels``, which say more plainly what is computed.
"""

from typing import Any

import numpy as np
from numba import njit, types
from torch import Tensor

from executor.compression.tables import Table

__all__ = ["absolute_maxima", "decode", "decode_signs", "encode", "encode_signs"]

_MAGNITUDE = np.uint32(0x7FFFFFFF)
_CHUNK = 1024
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
    numbers = values.numpy()
    _encode(numbers, numbers.view(np.uint32), scales.numpy(), block, table.lookup.view(np.uint32), codes.numpy())


def decode(codes: Tensor, scales: Tensor, block: int, table: Table, values: Tensor) -> None:
    """As ``torch_kernels.decode``."""
    _decode(codes.numpy(), scales.numpy(), block, table.signed, values.numpy())


def encode_signs(values: Tensor, block: int, means: Tensor, packed: Tensor) -> None:
    """As ``torch_kernels.encode_signs``."""
    _means(values.numpy(), block, means.numpy())
    _pack(values.numpy(), packed.numpy())


def decode_signs(means: Tensor, packed: Tensor, block: int, values: Tensor) -> None:
    """As ``torch_kernels.decode_signs``."""
    _unpack(packed.numpy(), means.numpy(), block, values.numpy())


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


@njit(types.void(_F, _I, _F, types.int64, types.Array(types.uint32, 1, "C", readonly=True), _B), **_OPTIONS)
def _encode(values: Any, bits: Any, scales: Any, block: int, lookup: Any, codes: Any) -> None:
    quotients = np.empty(_CHUNK, np.float32)  # apart, so that many are divided at a time
    quotient_bits = quotients.view(np.uint32)
    for b in range(len(scales)):
        scale = scales[b] if scales[b] > 0 else np.float32(1)
        end = min((b + 1) * block, len(values))
        for first in range(b * block, end, _CHUNK):
            count = min(_CHUNK, end - first)
            value, bit, code = values[first : first + count], bits[first : first + count], codes[first : first + count]
            for i in range(count):
                quotients[i] = abs(value[i]) / scale
            for i in range(count):
                quotient = quotient_bits[i]
                entry = lookup[quotient >> _HALF]
                index = (entry >> _CODE) + np.uint32((quotient & _LOW) >= (entry & _TURN))
                code[i] = index | (bit[i] >> _SIGN & _NEGATIVE)


@njit(types.void(_B, _F, types.int64, types.Array(types.float32, 1, "C", readonly=True), _F), **_OPTIONS)
def _decode(codes: Any, scales: Any, block: int, signed: Any, values: Any) -> None:
    for b in range(len(scales)):
        scale = scales[b]
        for i in range(b * block, min((b + 1) * block, len(codes))):
            values[i] = signed[codes[i]] * scale


@njit(types.void(_F, types.int64, types.float32[:, ::1]), **_OPTIONS)
def _means(values: Any, block: int, means: Any) -> None:
    half = (block + 1) // 2
    low, high = np.empty(half), np.empty(half)
    for b in range(len(means)):
        value = values[b * block : (b + 1) * block]
        single, pairs = min(half, len(value)), max(len(value) - half, 0)
        low[single:], high[single:] = 0.0, 0.0
        positive = 0
        for i in range(len(value)):
            positive += value[i] >= 0
        for i in range(single):
            low[i], high[i] = min(value[i], np.float32(0)), max(value[i], np.float32(0))
        for i in range(pairs):  # the first halving, without a copy of the block
            low[i] += min(value[half + i], np.float32(0))
            high[i] += max(value[half + i], np.float32(0))
        length = half
        while length > 1:
            middle = (length + 1) // 2
            for i in range(length - middle):
                low[i] += low[middle + i]
                high[i] += high[middle + i]
            length = middle
        means[b, 0] = (low[0] + 0.0) / max(len(value) - positive, 1)
        means[b, 1] = (high[0] + 0.0) / max(positive, 1)


@njit(types.void(_F, _B), **_OPTIONS)
def _pack(values: Any, packed: Any) -> None:
    for byte in range(len(packed)):
        bits = 0
        for i in range(byte * 8, min(byte * 8 + 8, len(values))):
            bits |= (values[i] >= 0) << (i - byte * 8)
        packed[byte] = bits


@njit(types.void(_B, types.float32[:, ::1], types.int64, _F), **_OPTIONS)
def _unpack(packed: Any, means: Any, block: int, values: Any) -> None:
    for b in range(len(means)):
        for i in range(b * block, min((b + 1) * block, len(values))):
            values[i] = means[b, packed[i >> 3] >> (i & 7) & 1]
