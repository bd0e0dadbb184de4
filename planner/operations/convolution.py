"""Convolutions in one, two or three dimensions, with their pointwise epilogue."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from groundwork.array_types import Floats
from groundwork.errors import ConfigError
from hwprofiles.compute.kernels import ConvolutionWindow
from planner.graph.operation import SavedTensors
from planner.graph.parameters import Parameter
from planner.graph.shapes import SUMMED, IntervalMap, Shape, interval_map
from planner.operations.base import ACTIVATION_ACCESSES, ACTIVATION_BACKWARD_ACCESSES, BATCH_STATISTICS, Part
from planner.operations.checks import (
    check_activation,
    check_int,
    check_norm,
    check_window,
    shape_text,
    single,
    window_size,
)
from planner.operations.matrix_work import MatrixWork, loaded_share


@dataclass(frozen=True, slots=True, kw_only=True)
class Convolution(MatrixWork):
    """A convolution with an optional epilogue of batch normalisation and an activation.

    Work: an implicit matrix product, flop = 2 x output channels x (samples x output positions) x (input
    channels / groups x kernel volume), the same for each of the two gradients.

    Traffic: the product reads inputs and weights and writes outputs once.  The epilogue streams: batch normalisation
    passes over the outputs twice, forward once for the statistics and once reading and writing (3 accesses), backward
    once through outputs and gradients for the sums and once reading both and writing (5 accesses); an activation
    passes once (2 accesses forward, 3 backward).  The backward passes are counted with the weight gradient, because
    every convolution computes that, even the first layer.

    Parts may have slices of the input channels of one group.  They complete their sums before the epilogue.
    """

    kind: ClassVar[str] = "convolution"
    channels: int
    """Output channels."""
    kernel: tuple[int, ...]
    """Size of the window in each position dimension, as for the next three."""
    stride: tuple[int, ...]
    pad: tuple[int, ...]
    dilation: tuple[int, ...]
    groups: int = 1
    """Groups of channels that are convolved separately."""
    bias: bool = True
    """True for a bias of each output channel."""
    batch_norm: bool = False
    """True for batch normalisation behind the product."""
    activation: str | None = None
    """Name of the activation at the end, or None."""
    norm_eps: float = field(default=1e-5, repr=False)
    """Constant that the batch normalisation adds to the variance."""
    norm_momentum: float = field(default=0.1, repr=False)
    """Weight of a batch's statistics in the running statistics."""

    def __post_init__(self) -> None:
        check_int("convolution.channels", self.channels, 1)
        check_int("convolution.groups", self.groups, 1)
        check_window("convolution", self.kernel, self.stride, self.pad, self.dilation)
        check_activation("convolution.activation", self.activation)
        check_norm("convolution.norm_", self.norm_eps, self.norm_momentum)
        if self.channels % self.groups:
            raise ConfigError(f"convolution.groups must divide its {self.channels} channels, got {self.groups}")

    @property
    def winograd(self) -> bool:
        """True for 3 x 3 windows of stride 1, not dilated, in one group, which Winograd's algorithm computes."""
        return self.window.winograd

    @property
    def window(self) -> ConvolutionWindow:
        """Geometry that decides which algorithms libraries may choose."""
        return ConvolutionWindow.of(self.kernel, self.stride, self.dilation, self.groups)

    @property
    def completes_sums(self) -> bool:
        """True: the epilogue computes with whole sums."""
        return True

    @property
    def statistics(self) -> int:
        """Elements a channel that batch normalisation sums over the batch; 0 without it."""
        return BATCH_STATISTICS if self.batch_norm else 0

    @property
    def passes(self) -> tuple[int, int]:
        """Accesses of each output element by the epilogue, forward and backward."""
        forward = (3 if self.batch_norm else 0) + (ACTIVATION_ACCESSES if self.activation else 0)
        backward = (5 if self.batch_norm else 0) + (ACTIVATION_BACKWARD_ACCESSES if self.activation else 0)
        return forward, backward

    def output(self, inputs: Sequence[Shape]) -> Shape:
        """Return the shape of the output: sample, channel, positions."""
        shape = single("convolution", inputs, len(self.kernel))
        if shape.size("channel") % self.groups:
            raise ConfigError(f"convolution.groups must divide the channels of {shape_text(shape)}, got {self.groups}")
        windows = zip(shape.positions, self.kernel, self.stride, self.pad, self.dilation, strict=True)
        positions = tuple(
            window_size("convolution", size, kernel=k, stride=s, pad=p, dilation=d) for size, k, s, p, d in windows
        )
        return Shape(shape.dims, (shape.sizes[0], self.channels, *positions))

    def summed_size(self, inputs: Sequence[Shape]) -> int:
        """Return the input channels of a convolution of one group."""
        return inputs[0].size("channel") if self.groups == 1 else 0

    def interval_maps(self, slot: int, inputs: Sequence[Shape]) -> tuple[IntervalMap, ...]:
        """Return the channels that are summed over, or those of the groups that a part computes, and its windows."""
        dims = inputs[0].dims
        if self.groups == 1:
            channel = interval_map(dim=SUMMED)
        else:
            channel = interval_map(
                dim="channel",
                group_out=self.channels // self.groups,
                group_in=inputs[0].size("channel") // self.groups,
            )
        windows = zip(dims[2:], self.kernel, self.stride, self.pad, self.dilation, strict=True)
        return (
            interval_map(dim="sample"),
            channel,
            *(interval_map(dim=dim, kernel=k, stride=s, pad=p, dilation=d) for dim, k, s, p, d in windows),
        )

    def parameters(self, inputs: Sequence[Shape]) -> tuple[Parameter, ...]:
        """Return weights, bias, and scale and shift of the batch normalisation; all are split with the channels."""
        shape = (self.channels, inputs[0].size("channel") // self.groups, *self.kernel)
        weight = Parameter("weight", shape, ("channel", SUMMED) if self.groups == 1 else ("channel",))
        bias = (Parameter("bias", (self.channels,)),) if self.bias else ()
        norm = tuple(Parameter(f"norm_{name}", (self.channels,)) for name in ("weight", "bias") if self.batch_norm)
        return (weight, *bias, *norm)

    def saved_tensors(self, part: Part) -> SavedTensors:
        """Return the input, the input of the normalisation, and the output, from which an activation's mask follows."""
        return SavedTensors(
            inputs=True,
            output=self.activation is not None,
            elements=part.outputs / part.slices if self.batch_norm else 0.0,
            before_output=self.batch_norm,
            transforms=self.batch_norm or self.activation is not None,
        )

    def _rows(self, part: Part) -> Floats | float:
        return part.channels

    def _depth(self, part: Part) -> Floats | float:
        """Return the length of the sums of the forward product: input channels of a group times kernel positions."""
        return np.ceil(part.inputs[0].size("channel") // self.groups / part.slices) * math.prod(self.kernel)

    @property
    def _loaded_share(self) -> float:
        return loaded_share(self.kernel, self.stride)

    def _weights(self, part: Part) -> Floats:
        """Return the elements of the weights of each part; bias and normalisation are of the epilogue."""
        return part.channels * self._depth(part)

    def _streamed(self, part: Part) -> tuple[Floats | float, Floats | float]:
        forward, backward = (accesses * part.outputs / part.slices for accesses in self.passes)
        return forward, backward
