"""Fully connected layers of a part: some samples, some output channels."""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from executor.layers.base import NO_BUFFERS, PartContext, TrainingStep
from executor.layers.dropout_mask import DropoutMask
from executor.layers.epilogue import EpiloguePart
from planner.operations import Linear

__all__ = ["LinearPart"]


class LinearPart(EpiloguePart):
    """A matrix product, an activation, then dropout."""

    def __init__(self, context: PartContext, operation: Linear) -> None:
        super().__init__(context, operation.activation)
        self._operation, self._dropout = operation, DropoutMask(context, operation.dropout)

    def forward(self, inputs: Sequence[Tensor], parameters: Mapping[str, Tensor], step: TrainingStep) -> Tensor:
        """Multiply the flattened samples with the held rows of the weights; activate; drop."""
        values, weight = inputs[0].reshape(len(inputs[0]), -1), parameters["weight"]
        self._saved["input"], self._saved["weight"] = values, weight
        output = self._epilogue(torch.nn.functional.linear(values, weight, parameters.get("bias")), parameters, step)
        return self._dropout.forward(output, step)

    def begin_backward(self, gradient: Tensor | None) -> None:
        """Go back through dropout and the activation."""
        assert gradient is not None
        super().begin_backward(self._dropout.backward(gradient))

    def activation_gradient(self) -> list[Tensor]:
        """Gradient of the samples, of the part's channels alone."""
        return [(self._saved["product_gradient"] @ self._saved["weight"]).view(self.inputs[0].shape)]

    def weight_gradient(self, out: Mapping[str, Tensor] = NO_BUFFERS) -> dict[str, Tensor]:
        """Gradients of the weights and the bias, in their places."""
        gradient = self._saved["product_gradient"]
        found = {"weight": torch.mm(gradient.t(), self._saved["input"], out=out.get("weight"))}
        if self._operation.bias:
            found["bias"] = torch.sum(gradient, 0, out=out.get("bias"))
        return found

    def drop(self) -> None:
        """Drop everything: the mask is made again."""
        self.release()

    def release(self) -> None:
        """Drop everything saved for the backward passes."""
        super().release()
        self._dropout.release()
