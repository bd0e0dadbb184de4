"""Fully connected layers: a part has some of the samples and some of the output channels."""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from executor.layers.base import NO_BUFFERS, PartContext, TrainingStep
from executor.layers.dropout_mask import DropoutMask
from executor.layers.epilogue import EpiloguePart
from planner.operations.linear import Linear


class LinearPart(EpiloguePart):
    """A matrix product, an activation, then dropout."""

    def __init__(self, context: PartContext, operation: Linear) -> None:
        super().__init__(context, operation.activation)
        self._operation, self._dropout = operation, DropoutMask(context, operation.dropout)

    def forward(self, inputs: Sequence[Tensor], parameters: Mapping[str, Tensor], step: TrainingStep) -> Tensor:
        """Multiply the flattened samples with the held rows of the weights, then apply activation and dropout."""
        values, weight = inputs[0].reshape(len(inputs[0]), -1), parameters["weight"]
        self._saved["input"], self._saved["weight"] = values, weight
        bias = None if self.completes else parameters.get("bias")
        return self._completed(torch.nn.functional.linear(values, weight, bias), parameters, step)

    def _epilogue(self, product: Tensor, parameters: Mapping[str, Tensor], step: TrainingStep) -> Tensor:
        """Return the activated product after dropout."""
        return self._dropout.forward(super()._epilogue(product, parameters, step), step)

    def begin_backward(self, gradient: Tensor | None) -> None:
        """Compute the gradient of the product from that of dropout's output: element by element, in either order."""
        super().begin_backward(gradient)
        product = self._saved["product_gradient"]
        self._saved["product_gradient"] = self._dropout.backward(product, in_place=product is not gradient)

    def activation_gradient(self) -> list[Tensor]:
        """Return the gradient of the samples through the part's output channels alone."""
        return [(self._saved["product_gradient"] @ self._saved["weight"]).view(self.inputs[0].shape)]

    def weight_gradient(self, out: Mapping[str, Tensor] = NO_BUFFERS) -> dict[str, Tensor]:
        """Return the gradients of the weights and the bias, in ``out`` where it has buffers for them."""
        gradient = self._saved["product_gradient"]
        gradients = {"weight": torch.mm(gradient.t(), self._saved["input"], out=out.get("weight"))}
        if self._operation.bias:
            gradients["bias"] = self._bias_gradient(out.get("bias"))
        return gradients

    def drop(self) -> None:
        """Release everything: a recomputation makes the same mask."""
        self.release()

    def release(self) -> None:
        """Release everything that was saved for the backward pass."""
        super().release()
        self._dropout.release()
