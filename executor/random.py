"""Random numbers by position: the same whatever part of a tensor a rank holds, and on every device."""

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from executor.boxes import Box

__all__ = ["key_of", "uniform"]

_GOLDEN = 0x9E3779B97F4A7C15
_FIRST, _SECOND = 0xBF58476D1CE4E5B9, 0x94D049BB133111EB
_MASK = 2**64 - 1
_BITS = 53
_CHUNK, _DEVICE_CHUNK = 2**14, 2**24
"""Numbers made at once: what stays in a core's cache (and torch does not split over threads), and what keeps an
accelerator busy."""


def _signed(value: int) -> int:
    """An unsigned 64-bit number as the two's complement that tensors hold."""
    value &= _MASK
    return value - 2**64 if value >= 2**63 else value


def _shift(value: Tensor, by: int, out: Tensor) -> Tensor:
    """Logical shift to the right."""
    return torch.bitwise_right_shift(value, by, out=out).bitwise_and_((1 << (64 - by)) - 1)


def _mix(value: Tensor, scratch: Tensor) -> Tensor:
    """The finaliser of SplitMix64 (Steele, Lea and Flood, OOPSLA 2014), modulo 2^64, in place."""
    value.bitwise_xor_(_shift(value, 30, scratch)).mul_(_signed(_FIRST))
    value.bitwise_xor_(_shift(value, 27, scratch)).mul_(_signed(_SECOND))
    return value.bitwise_xor_(_shift(value, 31, scratch))


def key_of(*words: int) -> int:
    """One 64-bit key of several numbers, such as a seed, a step and a layer."""
    key = 0
    for word in words:
        key = ((key ^ word) + _GOLDEN) & _MASK
        key = (key ^ key >> 30) * _FIRST & _MASK
        key = (key ^ key >> 27) * _SECOND & _MASK
        key ^= key >> 31
    return _signed(key)


def uniform(key: int, box: Box, whole: Sequence[int], *, dtype: torch.dtype, device: torch.device | str) -> Tensor:
    """Numbers in [0, 1), one a position of a tensor; each depends on the key and its position only.

    Args:
        key: What the tensor is for, from ``key_of``.
        box: The part wanted.
        whole: Sizes of the whole tensor.
        dtype: ``float32`` gets 24 random bits, ``float64`` 53.
        device: Where the numbers are made.

    Returns:
        Shape of the box.
    """
    rows, run = _runs(box, whole, device)
    out = torch.empty(len(rows), run, dtype=dtype, device=device)
    bits = 24 if dtype == torch.float32 else _BITS
    chunk = _CHUNK if out.device.type == "cpu" else _DEVICE_CHUNK
    width, height = max(min(run, chunk), 1), max(chunk // max(run, 1), 1)
    steps = torch.arange(width, device=device).mul_(_signed(_GOLDEN))
    buffers = torch.empty(2, min(height, len(rows)) * width, dtype=torch.int64, device=device)
    for top in range(0, len(rows), height):
        for left in range(0, run, width):
            part = out[top : top + height, left : left + width]
            value, scratch = buffers[:, : part.numel()].view(2, *part.shape)
            first = (rows[top : top + height] + left).mul_(_signed(_GOLDEN)).add_(key)
            torch.add(first, steps[: part.shape[1]], out=value)
            part.copy_(_shift(_mix(value, scratch), 64 - bits, scratch)).mul_(2.0**-bits)
    return out.view(box.shape)


def _runs(box: Box, whole: Sequence[int], device: torch.device | str) -> tuple[Tensor, int]:
    """A box as runs of neighbouring positions: where each starts, shape (R, 1), and how long they all are."""
    split, run = len(whole), 1
    while split:
        split -= 1
        run *= box.shape[split]
        if box.shape[split] < whole[split]:
            break
    index = torch.zeros((), dtype=torch.int64, device=device)
    for d in range(split):
        index = index[..., None] * whole[d] + torch.arange(box.low[d], box.high[d], device=device)
    if whole:
        index = (index * whole[split] + box.low[split]) * math.prod(whole[split + 1 :])
    return index.view(-1, 1), run
