"""Fully connected layers."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from groundwork.array_types import Floats
from groundwork.errors import ConfigError
from hwprofiles.compute.kernels import Kernels
from planner.graph.operation import SavedTensors
from planner.graph.parameters import Parameter
from planner.graph.shapes import SUMMED, IntervalMap, Shape, interval_map
from planner.operations.base import OperationBase, Part
from planner.operations.checks import check_activation, check_int, single


@dataclass(frozen=True, slots=True, kw_only=True)
class Linear(OperationBase):
    """A matrix product of each flattened sample, with an optional activation and dropout of the outputs.

    Work: flop = 2 x output channels x samples x inputs of a sample, the same for each of the two gradients.
    Traffic: inputs, weights and outputs once; activation and dropout run in place.
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
        positions = math.prod(inputs[0].positions)
        weight = Parameter(
            "weight", (self.channels, self._features(inputs)), ("channel", SUMMED), summed_block=positions
        )
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

    def _forward(self, part: Part) -> Kernels:
        return self._product(part, rows=part.channels, columns=part.samples, depth=self._depth(part))

    def _activation_gradient(self, part: Part) -> Kernels:
        return self._product(part, rows=self._depth(part), columns=part.samples, depth=part.channels)

    def _weight_gradient(self, part: Part) -> Kernels:
        return self._product(part, rows=part.channels, columns=self._depth(part), depth=part.samples)

    def _product(self, part: Part, *, rows: Floats | float, columns: Floats | float, depth: Floats | float) -> Kernels:
        """Return the kernels of a product of these sizes that reads or writes inputs, weights and outputs once."""
        features = self._depth(part)
        elements = part.samples * features + part.channels * features + part.outputs
        return part.matrix(rows=rows, columns=columns, depth=depth, elements=elements)

    @staticmethod
    def _depth(part: Part) -> Floats | float:
        """Return the length of the sums: elements of one sample that each part reads."""
        (shape,) = part.inputs
        return np.ceil(shape.size("channel") / part.slices) * math.prod(shape.positions)

    @staticmethod
    def _features(inputs: Sequence[Shape]) -> int:
        """Return the elements of one sample of the input."""
        return math.prod(inputs[0].sizes[1:])
