"""Sums and concatenations of several inputs."""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from executor.layers.base import PartContext, PartLayer, TrainingStep
from executor.layers.epilogue import EpiloguePart
from planner.operations.joining import Add


class AddPart(EpiloguePart):
    """The sum of the same part of all inputs, then an activation."""

    def __init__(self, context: PartContext, operation: Add) -> None:
        super().__init__(context, operation.activation)

    def forward(self, inputs: Sequence[Tensor], parameters: Mapping[str, Tensor], step: TrainingStep) -> Tensor:
        """Add the inputs and apply the activation."""
        total = torch.add(inputs[0], inputs[1])
        for values in inputs[2:]:
            total.add_(values)
        return self._epilogue(total, parameters, step)

    def activation_gradient(self) -> list[Tensor]:
        """Return the gradient of the sum for every slot: the same tensor."""
        return [self._saved["product_gradient"]] * len(self.inputs)


class ConcatPart(PartLayer):
    """The channels of the inputs one after another; a part may need none of some inputs."""

    def __init__(self, context: PartContext) -> None:
        super().__init__(context)
        # where the channels that the part takes from each input begin in the part's output
        offset, starts = 0, []
        for shape, given in zip(context.layer.input_shapes, context.inputs, strict=True):
            starts.append(offset + given.low[1] - context.held.low[1])
            offset += shape.size("channel")
        self._starts = tuple(starts)

    def forward(self, inputs: Sequence[Tensor], parameters: Mapping[str, Tensor], step: TrainingStep) -> Tensor:
        """Concatenate the regions that are not empty."""
        return torch.cat([values for values in inputs if values.numel()], 1)

    def begin_backward(self, gradient: Tensor | None) -> None:
        """Save the gradient."""
        assert gradient is not None
        self._saved["gradient"] = gradient

    def activation_gradient(self) -> list[Tensor]:
        """Return views of the gradient by slot."""
        gradient = self._saved["gradient"]
        return [
            gradient.narrow(1, start, given.shape[1]) if given.elements else gradient.new_zeros(given.shape)
            for start, given in zip(self._starts, self.inputs, strict=True)
        ]
