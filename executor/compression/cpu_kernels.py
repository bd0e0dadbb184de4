"""Kernels of table types, one-bit compression and thresholds on a processor: one thread, without Python's lock.

The same results as ``executor.compression.torch_kernels``, which show in plain operations what is computed.
"""

from typing import Any

import numpy as np
import torch
from numba import njit, types
from torch import Tensor

from executor.compression.codec_kernels import CodecKernels
from executor.compression.tables import Table

_MAGNITUDE = np.uint32(0x7FFFFFFF)
_CHUNK = 1024
_LOW = np.uint32(0xFFFF)
_HALF, _INDEX, _SIGN, _NEGATIVE = np.uint32(16), np.uint32(17), np.uint32(24), np.uint32(0x80)
_CUTOFF = np.uint32(0x1FFFF)
"""Bits of a lookup entry that hold the cutoff; the index lies above them."""


class CpuKernels(CodecKernels):
    """Table types, one-bit compression and thresholds compiled for a processor; see ``CodecKernels``."""

    def block_maxima(self, values: Tensor, block: int) -> Tensor:
        """Return the largest magnitude of every block."""
        count = -(-len(values) // block)
        maxima = values.new_empty(count)
        _maxima(values.numpy().view(np.uint32), block, maxima.numpy().view(np.uint32))
        return maxima

    def compress_table(self, values: Tensor, scales: Tensor, block: int, table: Table, indices: Tensor) -> None:
        """Write the index and the sign of every element, by the table's lookup, which it must have."""
        assert table.lookup is not None
        array = values.numpy()
        lookup = table.lookup.view(np.uint32)
        _compress_table(array, array.view(np.uint32), scales.numpy(), block, lookup, indices.numpy())

    def decompress_table(self, indices: Tensor, scales: Tensor, block: int, table: Table, values: Tensor) -> None:
        """Write the signed value of every index times its scale."""
        _decompress_table(indices.numpy(), scales.numpy(), block, table.signed, values.numpy())

    def compress_signs(self, values: Tensor, block: int, means: Tensor, packed: Tensor) -> None:
        """Write signs and means."""
        _means(values.numpy(), block, means.numpy())
        _pack(values.numpy(), packed.numpy())

    def decompress_signs(self, means: Tensor, packed: Tensor, block: int, values: Tensor) -> None:
        """Write the mean that every sign stands for."""
        _unpack(packed.numpy(), means.numpy(), block, values.numpy())

    def positions_above(self, values: Tensor, threshold: float) -> Tensor:
        """Return the positions of magnitudes of at least a threshold, which are counted before they are written."""
        array, limit = values.numpy(), np.float32(threshold)
        # two passes: the counts of the first say where each chunk's positions begin
        counts = _counts(array, limit)
        ends = np.cumsum(counts)
        positions = np.empty(int(ends[-1]) if len(ends) else 0, np.int64)
        _positions(array, limit, counts, ends, positions)
        return torch.from_numpy(positions)


_OPTIONS: dict[str, Any] = {"cache": True, "nogil": True, "error_model": "numpy"}
_F, _I, _B = types.float32[::1], types.uint32[::1], types.uint8[::1]


@njit(types.void(_I, types.int64, _I), **_OPTIONS)
def _maxima(bits: Any, block: int, maxima: Any) -> None:
    # magnitudes are in the order of their bits, infinity and NaN above all finite ones
    for b in range(len(maxima)):
        largest = np.uint32(0)
        for i in range(b * block, min((b + 1) * block, len(bits))):
            largest = max(largest, bits[i] & _MAGNITUDE)
        maxima[b] = largest


@njit(types.void(_F, _I, _F, types.int64, types.Array(types.uint32, 1, "C", readonly=True), _B), **_OPTIONS)
def _compress_table(values: Any, bits: Any, scales: Any, block: int, lookup: Any, indices: Any) -> None:
    quotients = np.empty(_CHUNK, np.float32)  # in a buffer of their own, so that the compiler divides many at a time
    quotient_bits = quotients.view(np.uint32)
    for b in range(len(scales)):
        scale = scales[b] if scales[b] > 0 else np.float32(1)
        end = min((b + 1) * block, len(values))
        for first in range(b * block, end, _CHUNK):
            count = min(_CHUNK, end - first)
            value, bit = values[first : first + count], bits[first : first + count]
            index = indices[first : first + count]
            for i in range(count):
                quotients[i] = abs(value[i]) / scale
            # the upper bits select an entry; its cutoff for the lower bits decides between two neighbouring indices
            for i in range(count):
                quotient = quotient_bits[i]
                entry = lookup[quotient >> _HALF]
                nearest = (entry >> _INDEX) + np.uint32((quotient & _LOW) >= (entry & _CUTOFF))
                index[i] = nearest | (bit[i] >> _SIGN & _NEGATIVE)


@njit(types.void(_B, _F, types.int64, types.Array(types.float32, 1, "C", readonly=True), _F), **_OPTIONS)
def _decompress_table(indices: Any, scales: Any, block: int, signed: Any, values: Any) -> None:
    for b in range(len(scales)):
        scale = scales[b]
        for i in range(b * block, min((b + 1) * block, len(indices))):
            values[i] = signed[indices[i]] * scale


@njit(types.float64(_F, types.int64, types.float32), **_OPTIONS)
def _side(value: Any, position: Any, sign: Any) -> Any:
    """Return an element times ``sign`` where that is positive; 0 elsewhere, and past the last element."""
    return max(sign * value[position], np.float32(0)) if position < len(value) else np.float32(0)


@njit(types.void(_F, types.int64, types.float32[:, ::1]), **_OPTIONS)
def _means(values: Any, block: int, means: Any) -> None:
    # adds in the order of ``torch_kernels._halving_sum``, negative elements in `low` and positive ones in `high`
    half = (block + 1) // 2
    quarter = (half + 1) // 2
    low, high, nothing = np.empty(quarter), np.empty(quarter), np.float32(0)
    for b in range(len(means)):
        value = values[b * block : (b + 1) * block]
        positive = 0
        for i in range(len(value)):
            positive += value[i] >= 0
        # the first two halvings, without a copy of the block; up to `whole` all four elements exist
        whole = max(min(half - quarter, len(value) - half - quarter), 0)
        for i in range(whole):
            a, c, e, g = value[i], value[half + i], value[quarter + i], value[half + quarter + i]
            low[i] = (np.float64(min(a, nothing)) + min(c, nothing)) + (np.float64(min(e, nothing)) + min(g, nothing))
            high[i] = (np.float64(max(a, nothing)) + max(c, nothing)) + (np.float64(max(e, nothing)) + max(g, nothing))
        for i in range(whole, quarter):
            # Of the four elements the last does not exist, and the third only in the first half: a row of odd length is
            # filled up with a zero.
            for sums, sign in ((low, np.float32(-1)), (high, np.float32(1))):
                pair = _side(value, i, sign) + _side(value, half + i, sign)
                sums[i] = sign * (pair + (_side(value, quarter + i, sign) if quarter + i < half else 0.0))
        # the other halvings, in place
        length = quarter
        while length > 1:
            middle = (length + 1) // 2
            for i in range(length - middle):
                low[i] += low[middle + i]
                high[i] += high[middle + i]
            length = middle
        means[b, 0] = (low[0] + 0.0) / max(len(value) - positive, 1)
        means[b, 1] = (high[0] + 0.0) / max(positive, 1)


@njit(types.int64[::1](_F, types.float32), **_OPTIONS)
def _counts(values: Any, threshold: Any) -> Any:
    counts = np.zeros(-(-len(values) // _CHUNK), np.int64)
    for chunk in range(len(counts)):
        count = 0
        for i in range(chunk * _CHUNK, min((chunk + 1) * _CHUNK, len(values))):
            count += abs(values[i]) >= threshold
        counts[chunk] = count
    return counts


@njit(types.void(_F, types.float32, types.int64[::1], types.int64[::1], types.int64[::1]), **_OPTIONS)
def _positions(values: Any, threshold: Any, counts: Any, ends: Any, positions: Any) -> None:
    for chunk in range(len(counts)):
        at = ends[chunk] - counts[chunk]
        for i in range(chunk * _CHUNK, min((chunk + 1) * _CHUNK, len(values)) if counts[chunk] else 0):
            if abs(values[i]) >= threshold:
                positions[at] = i
                at += 1


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
