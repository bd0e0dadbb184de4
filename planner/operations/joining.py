"""Layers that join tensors: sum and concatenation."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from groundwork.errors import ConfigError
from hwprofiles.compute.kernels import Kernels
from planner.graph.operation import SavedTensors
from planner.graph.shapes import IntervalMap, Shape
from planner.operations.base import (
    ACTIVATION_ACCESSES,
    ACTIVATION_BACKWARD_ACCESSES,
    OperationBase,
    Part,
    identity_maps,
)
from planner.operations.checks import check_activation, shape_text


@dataclass(frozen=True, slots=True, kw_only=True)
class Add(OperationBase):
    """A sum of tensors of one shape, with an optional activation.

    Traffic: forward all inputs and the output once, then the activation's pass.  The gradient of every input is
    the output's, which an activation masks (3 accesses) and which nothing touches without one.
    """

    kind: ClassVar[str] = "add"
    activation: str | None = None
    """Name of the activation of the sum, or None."""

    def __post_init__(self) -> None:
        check_activation("add.activation", self.activation)

    def output(self, inputs: Sequence[Shape]) -> Shape:
        """Return the shape of each input."""
        if len(inputs) < 2 or len(set(inputs)) > 1:
            raise ConfigError(f"add needs 2 or more inputs of one shape, got {_list(inputs)}")
        return inputs[0]

    def saved_tensors(self, part: Part) -> SavedTensors:
        """Return the output if there is an activation, whose mask follows from it."""
        masks = self.activation is not None
        return SavedTensors(output=masks, transforms=masks, passes_on=True)

    def _forward(self, part: Part) -> Kernels:
        count = len(part.inputs)
        accesses = count + 1 + (ACTIVATION_ACCESSES if self.activation else 0)
        return part.streaming(flop=part.outputs * (count - 1), elements=part.outputs * accesses)

    def _activation_gradient(self, part: Part) -> Kernels:
        touched = part.outputs if self.activation else 0.0 * part.outputs
        return part.streaming(flop=touched, elements=ACTIVATION_BACKWARD_ACCESSES * touched)


@dataclass(frozen=True, slots=True, kw_only=True)
class Concat(OperationBase):
    """A concatenation of tensors along the channels; each element is copied, forward and backward."""

    kind: ClassVar[str] = "concat"

    def output(self, inputs: Sequence[Shape]) -> Shape:
        """Return the inputs' shape with the sum of their channels."""
        rest = {(shape.dims, shape.sizes[0], shape.positions) for shape in inputs}
        if len(inputs) < 2 or len(rest) > 1:
            raise ConfigError(f"concat needs 2 or more inputs that differ in channels only, got {_list(inputs)}")
        channels = sum(shape.size("channel") for shape in inputs)
        return Shape(inputs[0].dims, (inputs[0].sizes[0], channels, *inputs[0].positions))

    def interval_maps(self, slot: int, inputs: Sequence[Shape]) -> tuple[IntervalMap, ...]:
        """Return the same interval, shifted in the channels by the inputs before."""
        sample, _, *positions = identity_maps(inputs[slot])
        offset = sum(shape.size("channel") for shape in inputs[:slot])
        return (sample, IntervalMap(dim="channel", offset=offset), *positions)

    def saved_tensors(self, part: Part) -> SavedTensors:
        """Return no tensors; the gradients of the inputs are views of the output's."""
        return SavedTensors(passes_on=True)

    def _forward(self, part: Part) -> Kernels:
        return part.streaming(flop=0.0, elements=2 * part.outputs)

    def _activation_gradient(self, part: Part) -> Kernels:
        return self._forward(part)


def _list(inputs: Sequence[Shape]) -> str:
    """Return shapes as text, separated by commas."""
    return ", ".join(map(shape_text, inputs)) or "none"
