"""Gradients of many weights over few windows: one matrix product.

A library's convolution brings its weights into an order of its own, and their gradient back from it, in more time than
the product itself takes where a rank has few windows.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

__all__ = ["Product"]


@dataclass(frozen=True, slots=True)
class Product:
    """A convolution of one group as a product of its weights with columns, the windows of its input."""

    kernel: Sequence[int]
    stride: Sequence[int]
    pad: Sequence[int]
    """On both sides."""
    dilation: Sequence[int]

    def columns(self, values: Tensor) -> Tensor:
        """All windows.

        Args:
            values: Shape (samples, channels, *positions).

        Returns:
            Shape (channels x numbers of a kernel, output positions x samples).
        """
        if any(self.pad):
            values = torch.nn.functional.pad(values, [side for pad in reversed(self.pad) for side in (pad, pad)])
        values = values.movedim(0, -1).contiguous()  # samples last: neighbouring windows are copied as one run
        (channels, *sizes, samples), (channel, *steps, sample) = values.shape, values.stride()
        inside = [step * dilation for step, dilation in zip(steps, self.dilation, strict=True)]
        between = [step * stride for step, stride in zip(steps, self.stride, strict=True)]
        counts = [
            (size - dilation * (kernel - 1) - 1) // stride + 1
            for size, kernel, stride, dilation in zip(sizes, self.kernel, self.stride, self.dilation, strict=True)
        ]
        windows = values.as_strided((channels, *self.kernel, *counts, samples), (channel, *inside, *between, sample))
        return windows.reshape(channels * math.prod(self.kernel), math.prod(counts) * samples)

    def weight_gradient(self, gradient: Tensor, values: Tensor, place: Tensor) -> Tensor:
        """Write the gradient of the weights into its place.

        Args:
            gradient: Of the output, shape (samples, output channels, *output positions).
            values: The input.
            place: Of the weights' shape, contiguous.
        """
        rows = gradient.movedim(0, -1).reshape(len(place), -1)
        torch.mm(rows, self.columns(values).t(), out=place.view(len(place), -1))
        return place
