"""Memory layouts: in which order a processor convolves images quickest."""

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from planner.memory import CHANNELS_LAST_POSITIONS

__all__ = ["channels_last", "laid_out", "laid_out_as", "memory_format"]


def channels_last(region: Sequence[int]) -> bool:
    """Whether a convolution on a processor reads a region of these sizes (samples, channels, positions) so."""
    return len(region) == 4 and math.prod(region[2:]) >= CHANNELS_LAST_POSITIONS


def laid_out(values: Tensor, last: bool) -> Tensor:
    """A tensor with its channels last in memory, where that may be quicker, or first.

    Args:
        values: Any tensor; copied where its layout is another.
        last: Whether channels are last; numbers that are not float32, and GPUs, keep them first.
    """
    return values.contiguous(memory_format=memory_format(last, values.dtype, values.device))


def memory_format(last: bool, dtype: torch.dtype, device: torch.device) -> torch.memory_format:
    """The layout of a tensor that a convolution is to read; arguments as for ``laid_out``."""
    quick = last and dtype == torch.float32 and device.type == "cpu"
    return torch.channels_last if quick else torch.contiguous_format


def laid_out_as(other: Tensor, values: Tensor) -> Tensor:
    """A tensor with its channels where another has them; copied where its layout is another.

    Pooling's backward copies each tensor whose layout is not its input's by itself, but slowly: with channels last
    before and first behind a pool it took five to eight times as long as after this copy.
    """
    last = other.dim() == 4 and other.is_contiguous(memory_format=torch.channels_last) and not other.is_contiguous()
    return values.contiguous(memory_format=torch.channels_last if last else torch.contiguous_format)
