"""Fully connected layers of a part: some samples, some output channels."""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from executor.layers.base import Place, Step
from executor.layers.epilogue import EpiloguePart
from executor.random import key_of, uniform
from planner.operations import Linear

__all__ = ["LinearPart"]


class LinearPart(EpiloguePart):
    """A matrix product, an activation, then dropout whose mask depends on seed, step, layer and position only."""

    def __init__(self, place: Place, operation: Linear) -> None:
        super().__init__(place, operation.activation)
        self._operation = operation

    def forward(self, inputs: Sequence[Tensor], parameters: Mapping[str, Tensor], step: Step) -> Tensor:
        """Multiply the flattened samples with the held rows of the weights; activate; drop."""
        values, weight = inputs[0].reshape(len(inputs[0]), -1), parameters["weight"]
        self._saved["input"], self._saved["weight"] = values, weight
        output = self._epilogue(torch.nn.functional.linear(values, weight, parameters.get("bias")), parameters)
        share = self._operation.dropout
        if not share:
            return output
        key = key_of(step.seed, step.number, self.index)
        whole = (self.samples.batch, *self.layer.output.sizes[1:])
        rows = [uniform(key, b, whole, dtype=output.dtype, device=output.device) for b in self.samples.boxes(self.held)]
        kept = torch.cat(rows) >= share
        self._saved["factor"] = kept.to(output.dtype).mul_(1 / (1 - share))
        return output * self._saved["factor"]

    def begin_backward(self, gradient: Tensor | None) -> None:
        """Go back through dropout and the activation."""
        if self._operation.dropout:
            assert gradient is not None
            gradient = gradient * self._saved["factor"]
        super().begin_backward(gradient)

    def activation_gradient(self) -> list[Tensor]:
        """Gradient of the samples, of the part's channels alone."""
        return [(self._saved["product_gradient"] @ self._saved["weight"]).view(self.inputs[0].shape)]

    def weight_gradient(self) -> dict[str, Tensor]:
        """Gradients of the weights and the bias."""
        gradient = self._saved["product_gradient"]
        weight = {"weight": gradient.t() @ self._saved["input"]}
        return weight | {"bias": gradient.sum(0)} if self._operation.bias else weight
