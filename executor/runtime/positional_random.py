"""Random numbers by position: the same for every split of a tensor over ranks, and on every device."""

import math
from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from executor.runtime.boxes import Box

_GOLDEN = 0x9E3779B97F4A7C15
_FIRST, _SECOND = 0xBF58476D1CE4E5B9, 0x94D049BB133111EB
_MASK = 2**64 - 1
_BITS = 53
_CHUNK, _DEVICE_CHUNK = 2**14, 2**24
"""Elements made at once: as many as stay in a core's cache, and as many as keep an accelerator busy."""
_STEPS = np.arange(_CHUNK, dtype=np.uint64) * _GOLDEN

_Words = NDArray[np.uint64]


def _signed(value: int) -> int:
    """Return the two's complement of an unsigned 64-bit number, as tensors hold it."""
    value &= _MASK
    return value - 2**64 if value >= 2**63 else value


def key_of(*words: int) -> int:
    """Return one 64-bit key for several numbers, such as a seed, a step and a layer.

    Source:
        Steele, Lea and Flood, "Fast Splittable Pseudorandom Number Generators", OOPSLA 2014: SplitMix64.
    """
    key = 0
    for word in words:
        key = ((key ^ word) + _GOLDEN) & _MASK
        key = (key ^ key >> 30) * _FIRST & _MASK
        key = (key ^ key >> 27) * _SECOND & _MASK
        key ^= key >> 31
    return _signed(key)


def uniform(key: int, box: Box, whole: Sequence[int], *, dtype: torch.dtype, device: torch.device | str) -> Tensor:
    """Return random elements in [0, 1) for a region of a tensor; each depends on the key and its position only.

    Args:
        key: Key of the tensor, from ``key_of``.
        box: The region.
        whole: Sizes of the whole tensor.
        dtype: Type of the elements: ``float32`` gets 24 random bits, ``float64`` 53.
        device: Device that makes them.

    Source:
        Steele, Lea and Flood, "Fast Splittable Pseudorandom Number Generators", OOPSLA 2014: SplitMix64, whose state
        advances by a constant, so that the element at any position can be computed directly.
    """
    out = torch.empty(box.shape, dtype=dtype, device=device)
    starts, run = _runs(box, whole, out.device)
    rows, bits = out.view(len(starts), run), 24 if dtype == torch.float32 else _BITS
    if out.device.type == "cpu":
        _fill_array(rows.numpy(), starts.numpy().view(np.uint64) * _GOLDEN + (key & _MASK), bits)
    else:
        _fill_tensor(rows, starts * _signed(_GOLDEN) + key, bits)
    return out


def _runs(box: Box, whole: Sequence[int], device: torch.device) -> tuple[Tensor, int]:
    """Return a box as runs of consecutive positions: their first positions, shape (R, 1), and their common length.

    An accelerator makes them itself: a copy from the host would make the host wait for all work before it.

    Rows 1 and 2, columns 1 to 3, of a tensor of three rows and five columns::

        position      0  1  2  3  4
                      5 [6  7  8] 9          first 6, length 3
                     10[11 12 13]14          first 11, length 3
    """
    # from the last dimension inward: dimensions that the box covers entirely make runs longer, the next one ends them
    split, run = len(whole), 1
    while split:
        split -= 1
        run *= box.shape[split]
        if box.shape[split] < whole[split]:
            break
    # row-major positions of all index combinations of the dimensions outside of the runs
    index = torch.zeros((), dtype=torch.int64, device=device)
    for d in range(split):
        index = index[..., None] * whole[d] + torch.arange(box.low[d], box.high[d], device=device)
    if whole:
        index = (index * whole[split] + box.low[split]) * math.prod(whole[split + 1 :])
    return index.reshape(-1, 1), run


def _fill_array(out: NDArray[np.floating], first: _Words, bits: int) -> None:
    """Fill rows with outputs of SplitMix64's finaliser (Steele, Lea and Flood, OOPSLA 2014), modulo 2^64.

    Args:
        out: Shape (rows, run).
        first: State of the generator for the first element of each row, shape (rows, 1).
        bits: Number of random bits of an element.
    """
    # tiles of about _CHUNK elements: part of a long run, or several short ones
    rows, run = out.shape
    width, height = max(min(run, _CHUNK), 1), max(_CHUNK // max(run, 1), 1)
    buffers = np.empty((2, min(height, rows) * width), dtype=np.uint64)
    for top in range(0, rows, height):
        for left in range(0, run, width):
            part = out[top : top + height, left : left + width]
            value, scratch = buffers[:, : part.size].reshape(2, *part.shape)
            np.add(first[top : top + height] + left * _GOLDEN % 2**64, _STEPS[: part.shape[1]], out=value)
            for shift, factor in ((30, _FIRST), (27, _SECOND)):
                np.bitwise_xor(value, np.right_shift(value, shift, out=scratch), out=value)
                np.multiply(value, factor, out=value)
            np.bitwise_xor(value, np.right_shift(value, 31, out=scratch), out=value)
            np.right_shift(value, 64 - bits, out=value)
            np.copyto(part, value.view(np.int64), casting="unsafe")  # exact, and faster than from unsigned integers
            np.multiply(part, 2.0**-bits, out=part)


def _fill_tensor(out: Tensor, first: Tensor, bits: int) -> None:
    """Fill rows as ``_fill_array`` does, on any device, in two's complement."""
    rows, run = out.shape
    width, height = max(min(run, _DEVICE_CHUNK), 1), max(_DEVICE_CHUNK // max(run, 1), 1)
    steps = torch.arange(width, device=out.device).mul_(_signed(_GOLDEN))
    buffers = torch.empty(2, min(height, rows) * width, dtype=torch.int64, device=out.device)
    for top in range(0, rows, height):
        for left in range(0, run, width):
            part = out[top : top + height, left : left + width]
            value, scratch = buffers[:, : part.numel()].view(2, *part.shape)
            torch.add(first[top : top + height] + _signed(left * _GOLDEN), steps[: part.shape[1]], out=value)
            for shift, factor in ((30, _FIRST), (27, _SECOND)):
                value.bitwise_xor_(_shifted(value, shift, scratch)).mul_(_signed(factor))
            value.bitwise_xor_(_shifted(value, 31, scratch))
            part.copy_(_shifted(value, 64 - bits, scratch)).mul_(2.0**-bits)


def _shifted(value: Tensor, by: int, out: Tensor) -> Tensor:
    """Return the logical shift to the right."""
    return torch.bitwise_right_shift(value, by, out=out).bitwise_and_((1 << (64 - by)) - 1)
