"""Gradients of a convolution's weights as matrix products: faster than the library for many weights and few windows."""

import itertools
from abc import ABC, abstractmethod

import torch
from torch import Tensor
from typing_extensions import override

from planner.memory.cpu_backend import GradientForm, KernelPositions


class Product(ABC):
    """The gradient of the weights of a part's convolution with one group.

    Args:
        kernel: The convolution of this part.
    """

    def __init__(self, kernel: KernelPositions) -> None:
        self._kernel, self._pad = kernel, kernel.pad[0].tolist()

    @abstractmethod
    def weight_gradient(self, gradient: Tensor, values: Tensor, out: Tensor) -> Tensor:
        """Write the gradient of the weights into a buffer and return the buffer.

        Args:
            gradient: Gradient of the output, shape (samples, output channels, *output positions).
            values: The input, shape (samples, channels, *positions).
            out: Buffer of the weights' shape, contiguous.
        """


class WindowProduct(Product):
    """One product of the output's gradient with columns, which are the windows of the input."""

    @override
    def weight_gradient(self, gradient: Tensor, values: Tensor, out: Tensor) -> Tensor:
        rows = gradient.movedim(0, -1).reshape(len(out), -1)
        torch.mm(rows, self._columns(values).t(), out=out.view(len(out), -1))
        return out

    def _columns(self, values: Tensor) -> Tensor:
        """Return all windows, shape (channels x kernel positions, output positions x samples).

        A kernel of two positions over an input a b c, one channel::

            row of kernel position 0     a b     one column for each window
            row of kernel position 1     b c
        """
        kernel = self._kernel
        if any(self._pad):
            values = torch.nn.functional.pad(values, [side for pad in reversed(self._pad) for side in (pad, pad)])
        values = values.movedim(0, -1).contiguous()  # samples last: neighbouring windows are copied as one run
        # a view with one dimension for each of: channel, kernel position, output position, sample
        (channels, *_, samples), (channel, *steps, sample) = values.shape, values.stride()
        inside = [step * dilation for step, dilation in zip(steps, kernel.dilation, strict=True)]
        between = [step * stride for step, stride in zip(steps, kernel.stride, strict=True)]
        counts = kernel.outputs[0].tolist()
        windows = values.as_strided((channels, *kernel.kernel, *counts, samples), (channel, *inside, *between, sample))
        return windows.reshape(channels * kernel.count, -1)


class PositionProduct(Product):
    """One product for each kernel position, over the windows in which the position lies inside the tensor."""

    def __init__(self, kernel: KernelPositions) -> None:
        super().__init__(kernel)
        self._slices = [self._slices_of(position) for position in itertools.product(*map(range, kernel.kernel))]
        """Outputs whose windows have a kernel position inside the tensor, and the inputs there, by kernel position."""

    def _slices_of(self, kernel_position: tuple[int, ...]) -> tuple[tuple[slice, ...], tuple[slice, ...]]:
        outputs, inputs = list[slice](), list[slice]()
        for dim, position in enumerate(kernel_position):
            low, high, first = (int(row[0]) for row in self._kernel.ranges(dim, position))
            stride = self._kernel.stride[dim]
            outputs.append(slice(low, high))
            inputs.append(slice(first, first + (high - low - 1) * stride + 1, stride) if low < high else slice(0))
        return tuple(outputs), tuple(inputs)

    @override
    def weight_gradient(self, gradient: Tensor, values: Tensor, out: Tensor) -> Tensor:
        # with channels as the last dimension each product is one of (outputs x channels) matrices
        gradient, values = _channels_last(gradient), _channels_last(values)
        by_position = values.new_empty(self._kernel.count, *out.shape[:2])
        for product, (outputs, inputs) in zip(by_position, self._slices, strict=True):
            _product(gradient[outputs], values[inputs], product)
        out.view(*out.shape[:2], -1).copy_(by_position.movedim(0, -1))
        return out


def product_of(kernel: KernelPositions, form: int) -> Product | None:
    """Return the products of a form of the weights' gradient; None where the library computes it."""
    kinds = {GradientForm.WINDOWS: WindowProduct, GradientForm.POSITIONS: PositionProduct}
    return kinds[GradientForm(form)](kernel) if form != GradientForm.LIBRARY else None


def _channels_last(values: Tensor) -> Tensor:
    """Return a tensor with dimensions in the order positions, samples, channels: rows of a matrix for the product."""
    return values.permute(*range(2, values.dim()), 0, 1).contiguous()


def _product(gradient: Tensor, values: Tensor, out: Tensor) -> None:
    """Write the matrix product over all positions and samples into ``out``; zero where there are none."""
    rows = gradient.reshape(-1, gradient.shape[-1])
    torch.mm(rows.t(), values.reshape(-1, values.shape[-1]), out=out)
