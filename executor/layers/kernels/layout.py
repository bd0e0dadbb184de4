"""Memory layouts: the order of dimensions in which a processor convolves images fastest."""

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from planner.memory.cpu_backend import CHANNELS_LAST_POSITIONS


def channels_last(region: Sequence[int]) -> bool:
    """Return whether a processor convolves a region fastest with its channels last in memory.

    Args:
        region: Sizes of the region: samples, channels, positions.
    """
    return len(region) == 4 and math.prod(region[2:]) >= CHANNELS_LAST_POSITIONS


def laid_out(values: Tensor, last: bool) -> Tensor:
    """Return a tensor with its channels last in memory where that may be faster, else with its channels first.

    Args:
        values: Any tensor; copied where its layout is another.
        last: Whether channels are to be last; elements that are not float32, and GPUs, keep them first.
    """
    return values.contiguous(memory_format=memory_format(last, values.dtype, values.device))


def memory_format(last: bool, dtype: torch.dtype, device: torch.device) -> torch.memory_format:
    """Return the memory layout of a tensor that a convolution reads; arguments as for ``laid_out``."""
    channels_last_format = last and dtype == torch.float32 and device.type == "cpu"
    return torch.channels_last if channels_last_format else torch.contiguous_format


def of_one_sample(values: Tensor) -> Tensor:
    """Return a tensor of one sample with that dimension outermost, any other as it is.

    A view of axes in another order may give it any stride.  Libraries tell from the strides whether channels come last,
    and where this one is not the largest they copy the tensor into another layout.
    """
    if values.dim() < 2 or values.shape[0] != 1:
        return values
    return values.as_strided(values.shape, (values.numel(), *values.stride()[1:]))


def laid_out_as(other: Tensor, values: Tensor) -> Tensor:
    """Return a tensor in the memory layout of another; copied where its own layout differs.

    The backward pass of pooling copies a gradient whose layout is not that of the input by itself, but slowly: with
    channels last before and first after a pool it took five to eight times as long as after this copy.
    """
    last = other.dim() == 4 and other.is_contiguous(memory_format=torch.channels_last) and not other.is_contiguous()
    return values.contiguous(memory_format=torch.channels_last if last else torch.contiguous_format)


def memory_order(tensor: Tensor) -> list[int]:
    """Return the dimensions of a tensor by their place in memory, from the outside in."""
    strides = tensor.stride()
    return sorted(range(tensor.dim()), key=lambda d: -strides[d] if tensor.shape[d] > 1 else 0)
