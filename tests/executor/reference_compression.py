"""The data types in plain NumPy: the reference that all kernels must equal, byte for byte."""

import numpy as np
from numpy.typing import NDArray

from executor.compression.tables import POSITIVE, values_of
from planner.compression.data_types import Compression

Bytes = NDArray[np.uint8]
Floats = NDArray[np.float32]

_SIGN = np.uint32(2**31)


def compress(spec: Compression, values: Floats) -> Bytes:
    """Return the message of finite float32 elements, shape (n,), which include the residual for types with feedback."""
    if spec.name == "one-bit":
        return _compress_signs(values, _block(spec, values), spec.scales(len(values)))
    if spec.name == "threshold":
        return _compress_threshold(values, np.float32(spec["threshold"]), int(spec["every"]))
    if spec.name == "bfloat16":
        return _compress_bfloat16(values)
    if spec.name in ("float16", "float32"):
        dtype = np.dtype(spec.name)
        largest = np.float32(np.finfo(dtype).max)
        return np.clip(values, -largest, largest).astype(dtype).view(np.uint8)
    return _compress_table(spec, values)


def decompress(spec: Compression, message: Bytes, count: int) -> Floats:
    """Return the float32 elements of a message, shape (count,)."""
    if spec.name == "one-bit":
        return _decompress_signs(spec, message, count)
    if spec.name == "threshold":
        return _decompress_threshold(message, np.float32(spec["threshold"]), count)
    if spec.name == "bfloat16":
        return (message.view(np.uint16).astype(np.uint32) << 16).view(np.float32)
    if spec.name in ("float16", "float32"):
        return message.view(spec.name).astype(np.float32)
    scales, indices = np.split(message, [spec.scales(count) * 4])
    factors = np.repeat(scales.view(np.float32), _block(spec, indices))[:count] if spec["normalised"] else np.float32(1)
    return values_of(spec).signed[indices] * factors


def _block(spec: Compression, elements: NDArray[np.generic]) -> int:
    return int(spec["block"]) or max(len(elements), 1)


def _compress_table(spec: Compression, values: Floats) -> Bytes:
    table = values_of(spec)
    scales = np.ones(1, dtype=np.float32)
    block = _block(spec, values)
    if spec["normalised"]:
        blocks = [values[i * block : (i + 1) * block] for i in range(spec.scales(len(values)))]
        scales = np.array([np.abs(part).max(initial=0) for part in blocks], dtype=np.float32)
    quotient = np.abs(values) / np.repeat(np.where(scales > 0, scales, np.float32(1)), block)[: len(values)]
    # a binary search, as in the source
    indices = np.searchsorted(table.cutoffs, quotient, side="right") + POSITIVE * np.signbit(values)
    head = scales.view(np.uint8) if spec["normalised"] else np.zeros(0, dtype=np.uint8)
    return np.concatenate([head, indices.astype(np.uint8)])


def _compress_signs(values: Floats, block: int, blocks: int) -> Bytes:
    means = []
    for i in range(blocks):
        part = values[i * block : (i + 1) * block].astype(np.float64)
        rows = np.pad(part, (0, block - len(part)))
        for side in (rows < 0, rows >= 0):
            count = int(side[: len(part)].sum())
            means.append(_halving_sum(np.where(side, rows, 0.0)) / max(count, 1))
    signs = np.packbits(values >= 0, bitorder="little")
    return np.concatenate([np.array(means, dtype=np.float32).view(np.uint8), signs])


def _halving_sum(values: NDArray[np.float64]) -> float:
    while len(values) > 1:
        half = -(-len(values) // 2)
        values = values[:half] + np.pad(values[half:], (0, 2 * half - len(values)))
    return float(values[0]) + 0.0  # no minus zero


def _decompress_signs(spec: Compression, message: Bytes, count: int) -> Floats:
    head = spec.scales(count) * 8
    signs = np.unpackbits(message[head:], count=count, bitorder="little")
    means = message[:head].view(np.float32).reshape(-1, 2)
    return means[np.arange(count) // _block(spec, signs), signs]


def _compress_threshold(values: Floats, threshold: np.float32, every: int) -> Bytes:
    room = -(-len(values) // every)
    positions = np.flatnonzero(np.abs(values) >= threshold)
    largest = np.argsort(-np.abs(values[positions]), kind="stable")[:room]
    positions = np.sort(positions[largest])
    words = np.zeros(1 + room, dtype=np.uint32)
    words[0] = len(positions)
    words[1 : 1 + len(positions)] = positions | np.where(values[positions] < 0, _SIGN, 0)
    return words.view(np.uint8)


def _decompress_threshold(message: Bytes, threshold: np.float32, count: int) -> Floats:
    words = message.view(np.uint32)
    values = np.zeros(count, dtype=np.float32)
    for word in words[1 : 1 + words[0]]:
        values[word & ~_SIGN] = -threshold if word & _SIGN else threshold
    return values


def _compress_bfloat16(values: Floats) -> Bytes:
    """Round half to even on the upper 16 bits; elements that are too large become the largest."""
    largest = np.array(0x7F7F0000, dtype=np.uint32).view(np.float32)
    bits = np.clip(values, -largest, largest).view(np.uint32)
    rounded = (bits + 0x7FFF + (bits >> 16 & 1)) >> 16
    return rounded.astype(np.uint16).view(np.uint8)
