"""Gradients of many weights over few windows: matrix products of a convolution's input and its output's gradient."""

import itertools
from abc import ABC, abstractmethod

import torch
from torch import Tensor
from typing_extensions import override

from planner.memory import GradientForm, KernelPositions

__all__ = ["PositionProduct", "Product", "WindowProduct", "product_of"]


class Product(ABC):
    """The gradient of the weights of a part's convolution of one group.

    Args:
        taps: The only part.
    """

    def __init__(self, taps: KernelPositions) -> None:
        self._taps, self._pad = taps, taps.pad[0].tolist()

    @abstractmethod
    def weight_gradient(self, gradient: Tensor, values: Tensor, out: Tensor) -> Tensor:
        """Write the gradient of the weights into its out.

        Args:
            gradient: Of the output, shape (samples, output channels, *output positions).
            values: The input, shape (samples, channels, *positions).
            out: Of the weights' shape, contiguous.
        """


class WindowProduct(Product):
    """One product of the output's gradient with columns, the windows of the input."""

    @override
    def weight_gradient(self, gradient: Tensor, values: Tensor, out: Tensor) -> Tensor:
        rows = gradient.movedim(0, -1).reshape(len(out), -1)
        torch.mm(rows, self._columns(values).t(), out=out.view(len(out), -1))
        return out

    def _columns(self, values: Tensor) -> Tensor:
        """All windows, shape (channels x numbers of a kernel, output positions x samples)."""
        taps = self._taps
        if any(self._pad):
            values = torch.nn.functional.pad(values, [side for pad in reversed(self._pad) for side in (pad, pad)])
        values = values.movedim(0, -1).contiguous()  # samples last: neighbouring windows are copied as one run
        (channels, *_, samples), (channel, *steps, sample) = values.shape, values.stride()
        inside = [step * dilation for step, dilation in zip(steps, taps.dilation, strict=True)]
        between = [step * stride for step, stride in zip(steps, taps.stride, strict=True)]
        counts = taps.outputs[0].tolist()
        windows = values.as_strided((channels, *taps.kernel, *counts, samples), (channel, *inside, *between, sample))
        return windows.reshape(channels * taps.count, -1)


class PositionProduct(Product):
    """A product for each tap, of what lies inside the tensor."""

    def __init__(self, taps: KernelPositions) -> None:
        super().__init__(taps)
        self._slices = [self._read_by(tap) for tap in itertools.product(*map(range, taps.kernel))]
        """By tap, the outputs whose windows have it inside, and the inputs that it reads for them."""

    def _read_by(self, tap: tuple[int, ...]) -> tuple[tuple[slice, ...], tuple[slice, ...]]:
        outputs, inputs = list[slice](), list[slice]()
        for dim, position in enumerate(tap):
            low, high, first = (int(row[0]) for row in self._taps.ranges(dim, position))
            stride = self._taps.stride[dim]
            outputs.append(slice(low, high))
            inputs.append(slice(first, first + (high - low - 1) * stride + 1, stride) if low < high else slice(0))
        return tuple(outputs), tuple(inputs)

    @override
    def weight_gradient(self, gradient: Tensor, values: Tensor, out: Tensor) -> Tensor:
        gradient, values = _channels_behind(gradient), _channels_behind(values)
        by_taps = values.new_empty(self._taps.count, *out.shape[:2])
        for found, (outputs, inputs) in zip(by_taps, self._slices, strict=True):
            _product(gradient[outputs], values[inputs], found)
        out.view(*out.shape[:2], -1).copy_(by_taps.movedim(0, -1))
        return out


def product_of(taps: KernelPositions, form: int) -> Product | None:
    """What computes a gradient of some form; None where the library does."""
    kinds = {GradientForm.WINDOWS: WindowProduct, GradientForm.TAPS: PositionProduct}
    return kinds[GradientForm(form)](taps) if form != GradientForm.LIBRARY else None


def _channels_behind(values: Tensor) -> Tensor:
    """Positions, samples, channels: rows of a matrix that lie side by side for neighbouring positions."""
    return values.permute(*range(2, values.dim()), 0, 1).contiguous()


def _product(gradient: Tensor, values: Tensor, out: Tensor) -> None:
    """Sum over all positions and samples; zero where there are none."""
    rows = gradient.reshape(-1, gradient.shape[-1])
    torch.mm(rows.t(), values.reshape(-1, values.shape[-1]), out=out)
