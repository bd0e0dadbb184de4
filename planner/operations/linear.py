"""Fully connected layers."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from groundwork.array_types import Floats
from groundwork.errors import ConfigError
from planner.graph.operation import SavedTensors
from planner.graph.parameters import Parameter
from planner.graph.shapes import SUMMED, IntervalMap, Shape, interval_map
from planner.operations.base import Part
from planner.operations.checks import check_activation, check_int, single
from planner.operations.matrix_work import MatrixWork


@dataclass(frozen=True, slots=True, kw_only=True)
class Linear(MatrixWork):
    """A matrix product of each flattened sample, with an optional activation and dropout of the outputs.

    Activation and dropout run in place.
    Parts may have slices of the input channels.  They complete their sums before bias, activation and dropout.
    """

    kind: ClassVar[str] = "linear"
    channels: int
    """Output channels."""
    bias: bool = True
    """True for a bias of each output channel."""
    activation: str | None = None
    """Name of the activation, or None."""
    dropout: float = 0.0
    """Share of the outputs that training drops."""

    def __post_init__(self) -> None:
        check_int("linear.channels", self.channels, 1)
        check_activation("linear.activation", self.activation)
        if not 0 <= self.dropout < 1:
            raise ConfigError(f"linear.dropout must be >= 0 and < 1, got {self.dropout!r}")

    @property
    def completes_sums(self) -> bool:
        """True: the epilogue computes with whole sums."""
        return True

    def summed_size(self, inputs: Sequence[Shape]) -> int:
        """Return the input channels."""
        return inputs[0].size("channel")

    def output(self, inputs: Sequence[Shape]) -> Shape:
        """Return the shape of the output: sample, channel; the input may have positions."""
        return Shape(("sample", "channel"), (single("linear", inputs).sizes[0], self.channels))

    def interval_maps(self, slot: int, inputs: Sequence[Shape]) -> tuple[IntervalMap, ...]:
        """Return the channels that are summed over, with all positions, of a part's samples."""
        read = {"sample": "sample", "channel": SUMMED}
        return tuple(interval_map(dim=read.get(dim)) for dim in inputs[0].dims)

    def parameters(self, inputs: Sequence[Shape]) -> tuple[Parameter, ...]:
        """Return weights and bias, both split with the channels."""
        shape = (self.channels, math.prod(inputs[0].sizes[1:]))
        weight = Parameter("weight", shape, ("channel", SUMMED), summed_block=math.prod(inputs[0].positions))
        return (weight, Parameter("bias", (self.channels,))) if self.bias else (weight,)

    def saved_tensors(self, part: Part) -> SavedTensors:
        """Return the input and the output; with dropout, instead of the output, its values before and what is kept."""
        drops, activates = self.dropout > 0, self.activation is not None
        return SavedTensors(
            inputs=True,
            output=activates and not drops,
            elements=part.outputs / part.slices if drops and activates else 0.0,
            index_bytes=part.outputs / part.slices if drops else 0.0,
            before_output=drops,
            transforms=activates or drops,
        )

    def _rows(self, part: Part) -> Floats | float:
        return part.channels

    def _depth(self, part: Part) -> Floats | float:
        """Return the length of the sums: elements of one sample that each part reads."""
        (shape,) = part.inputs
        return np.ceil(shape.size("channel") / part.slices) * math.prod(shape.positions)
