"""Random numbers by position: the same whatever part of a tensor a rank holds, and on every device."""

from collections.abc import Sequence

import torch
from torch import Tensor

from executor.boxes import Box

__all__ = ["key_of", "uniform"]

_GOLDEN = 0x9E3779B97F4A7C15
_FIRST, _SECOND = 0xBF58476D1CE4E5B9, 0x94D049BB133111EB
_BITS = 53


def _signed(value: int) -> int:
    """An unsigned 64-bit number as the two's complement that tensors hold."""
    value &= 2**64 - 1
    return value - 2**64 if value >= 2**63 else value


def _shifted(value: Tensor, by: int) -> Tensor:
    """Logical shift to the right."""
    return (value >> by) & ((1 << (64 - by)) - 1)


def _mixed(value: Tensor) -> Tensor:
    """The finaliser of SplitMix64 (Steele, Lea and Flood, OOPSLA 2014), modulo 2^64."""
    value = (value ^ _shifted(value, 30)) * _signed(_FIRST)
    value = (value ^ _shifted(value, 27)) * _signed(_SECOND)
    return value ^ _shifted(value, 31)


def key_of(*words: int) -> int:
    """One 64-bit key of several numbers, such as a seed, a step and a layer."""
    key = torch.zeros((), dtype=torch.int64)
    for word in words:
        key = _mixed((key ^ _signed(word)) + _signed(_GOLDEN))
    return int(key)


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
    index = torch.zeros((), dtype=torch.int64, device=device)
    for low, high, size in zip(box.low, box.high, whole, strict=True):
        index = index[..., None] * size + torch.arange(low, high, device=device)
    bits = 24 if dtype == torch.float32 else _BITS
    counters = index.mul_(_signed(_GOLDEN)).add_(key)
    return _shifted(_mixed(counters), 64 - bits).to(dtype).mul_(2.0**-bits)
