"""Convolutions of a part: its sliding windows, and the channel groups that it holds entirely or in part."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor

from executor.layers.base import NO_BUFFERS, PartContext, TrainingStep
from executor.layers.batch_norm import BatchNormalization
from executor.layers.epilogue import EpiloguePart
from executor.layers.kernels.layout import channels_last, laid_out
from executor.layers.kernels.products import Product, product_of
from executor.layers.kernels.windows import cropped, padded, windows_of
from planner.memory.cpu_backend import KernelPositions, gradient_forms
from planner.operations.convolution import Convolution


@dataclass(frozen=True, slots=True)
class _Segment:
    """Output channels of a part that one library call computes: a part of one group, or several whole groups."""

    outputs: slice
    inputs: slice
    groups: int


class ConvolutionPart(EpiloguePart):
    """A convolution, then batch normalisation and an activation where it has them.

    Where the padding of a part's region is symmetric, the library pads; else the region is copied into a padded one.

    Args:
        context: The part and its layer.
        operation: The convolution.
        normalization: Batch normalisation of the part's output channels, or None.
    """

    def __init__(self, context: PartContext, operation: Convolution, normalization: BatchNormalization | None) -> None:
        super().__init__(context, operation.activation, normalization)
        given = context.inputs[0]
        windows = windows_of(operation.interval_maps(0, context.layer.input_shapes), context.product, given)
        self._operation = operation
        self.reads_last = channels_last(context.largest)
        self._segments = _segments(operation, context)
        self._in_padding: tuple[int, ...] | None = None
        native = [window.left if window.symmetric else 0 for window in windows]
        if not given.elements:  # all of the part's windows lie in the padding
            channels = self._segments[-1].inputs.stop
            self._in_padding = (self.product.shape[0], channels, *(window.left for window in windows))
            native = [0] * len(windows)
        # windows with a symmetric padding need no copy: what is left to pad by ``padded`` and to crop is zero
        self._copied = tuple(replace(window, left=0, right=0) if window.symmetric else window for window in windows)
        self._product = self._product_of(native)
        self._form = (operation.stride, native, operation.dilation, False, [0] * len(windows))

    def _product_of(self, pad: list[int]) -> Product | None:
        """Return the matrix products that compute the gradient of the weights on a processor; None for the library."""
        if self._in_padding is not None:
            return None
        operation, (samples, channels, *positions) = self._operation, self.product.shape
        kernel = KernelPositions(
            kernel=operation.kernel,
            stride=operation.stride,
            dilation=operation.dilation,
            outputs=np.array([positions]),
            pad=np.array([pad]),
            inputs=np.array([[window.left + window.size + window.right for window in self._copied]]),
        )
        filters = np.array([float(channels * self.inputs[0].shape[1])])
        forms = gradient_forms(kernel, filters=filters, samples=np.array([float(samples)]), groups=operation.groups)
        return product_of(kernel, int(forms[0]))

    def forward(self, inputs: Sequence[Tensor], parameters: Mapping[str, Tensor], step: TrainingStep) -> Tensor:
        """Convolve the region with the held filters, then normalise it and apply the activation."""
        weight, bias = parameters["weight"], None if self.completes else parameters.get("bias")
        if self._in_padding is None:
            values = laid_out(padded(inputs[0], self._copied), self.reads_last)
        else:
            values = weight.new_zeros(self._in_padding)
        products = [
            torch.ops.aten.convolution(
                _taken(values, 1, segment.inputs),
                _taken(weight, 0, segment.outputs),
                None if bias is None else _taken(bias, 0, segment.outputs),
                *self._form,
                segment.groups,
            )
            for segment in self._segments
        ]
        self._saved["input"], self._saved["weight"] = values, weight
        return self._completed(products[0] if len(products) == 1 else torch.cat(products, 1), parameters, step)

    def complete_backward(self, gradient: Tensor) -> None:
        """Keep the gradient of the share, and that of the partial sums as it lies for both gradients."""
        super().complete_backward(laid_out(gradient, self.reads_last))

    def activation_gradient(self) -> list[Tensor]:
        """Return the gradient of the region that the part reads."""
        if self._in_padding is not None:
            return [self._saved["weight"].new_zeros(self.inputs[0].shape)]
        gradients = [row[0] for row in self._gradients([True, False, False])]
        gradient = gradients[0] if len(gradients) == 1 else torch.cat(gradients, 1)
        return [cropped(gradient, self._copied)]

    def weight_gradient(self, out: Mapping[str, Tensor] = NO_BUFFERS) -> dict[str, Tensor]:
        """Return the gradients of the filters, the bias, and the normalisation's scale and shift."""
        gradients = super().weight_gradient(out)
        weight, gradient = self._saved["weight"], self._saved["product_gradient"]
        if self._product and weight.device.type == "cpu":
            into = out["weight"] if "weight" in out else torch.empty_like(weight)
            gradients["weight"] = self._product.weight_gradient(gradient, self._saved["input"], into)
            if self._operation.bias:
                gradients["bias"] = self._bias_gradient(out.get("bias"))
            return gradients
        biased = self._operation.bias and not self.completes
        rows = self._gradients([False, True, biased])
        if self._operation.bias and self.completes:
            gradients["bias"] = self._bias_gradient(None)
        for name, column in (("weight", 1), ("bias", 2)) if biased else (("weight", 1),):
            parts = [row[column] for row in rows]
            gradients[name] = parts[0] if len(parts) == 1 else torch.cat(parts)
        return gradients

    def _gradients(self, wanted: list[bool]) -> list[tuple[Tensor, Tensor, Tensor]]:
        """Return the gradients of input, weight and bias of every segment, as far as they are wanted."""
        gradient, values, weight = (self._saved[name] for name in ("product_gradient", "input", "weight"))
        return [
            torch.ops.aten.convolution_backward(
                _taken(gradient, 1, segment.outputs),
                _taken(values, 1, segment.inputs),
                _taken(weight, 0, segment.outputs),
                [segment.outputs.stop - segment.outputs.start],
                *self._form,
                segment.groups,
                wanted,
            )
            for segment in self._segments
        ]


def _taken(values: Tensor, dim: int, part: slice) -> Tensor:
    """Return a slice of one dimension as a view; the tensor itself where the slice is the whole dimension."""
    whole = part.start == 0 and part.stop == values.shape[dim]
    return values if whole else values.narrow(dim, part.start, part.stop - part.start)


def _segments(operation: Convolution, context: PartContext) -> tuple[_Segment, ...]:
    """Divide a part's output channels at its first and last border between groups.

    Slices count from the first channel that the part holds or reads.  A part with channels 2 to 9 of groups of four::

        output channels     2 3 | 4 5 6 7 | 8 9
        segments             a  |    b    |  c       a, c: parts of a group; b: one whole group
    """
    low, high = context.product.low[1], context.product.high[1]
    if operation.groups == 1:
        return (_Segment(slice(0, high - low), slice(0, context.parameters["weight"].shape[1]), 1),)
    group_out = operation.channels // operation.groups
    group_in = context.layer.input_shapes[0].size("channel") // operation.groups
    first, last = -(-low // group_out) * group_out, high // group_out * group_out
    # without a border in between, the part lies inside one group
    bounds = (low, first, last, high) if first <= last else (low, high)
    base = low // group_out
    return tuple(
        _Segment(
            slice(start - low, stop - low),
            slice((start // group_out - base) * group_in, (-(-stop // group_out) - base) * group_in),
            max((stop - start) // group_out, 1),
        )
        for start, stop in pairwise(bounds)
        if stop > start
    )
