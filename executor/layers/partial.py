"""Partial sums of a layer split in its input channels: one slice of them, and the sum over all slices."""

from collections.abc import Mapping, Sequence

from torch import Tensor

from executor.layers.base import NO_BUFFERS, PartContext, PartLayer, TrainingStep
from executor.layers.batch_norm import BatchNormalization
from executor.layers.dropout_mask import DropoutMask
from executor.layers.epilogue import EpiloguePart
from planner.operations.partial import PartialSum

SLICES = 2
"""Index of the dimension of a tensor of partial sums that counts slices."""


class PartialProductPart(PartLayer):
    """The product of one slice of the input channels with that slice of the weights.

    Args:
        context: The part and its layer; it holds one slice.
        product: The same part of a layer whose only input is that slice.
    """

    def __init__(self, context: PartContext, product: PartLayer) -> None:
        super().__init__(context)
        assert context.held.shape[SLICES] == 1
        self._product = product

    def forward(self, inputs: Sequence[Tensor], parameters: Mapping[str, Tensor], step: TrainingStep) -> Tensor:
        """Multiply the slice with its weights."""
        return self._product.forward(inputs, parameters, step).unsqueeze(SLICES)

    def begin_backward(self, gradient: Tensor | None) -> None:
        """Pass the gradient to the product."""
        assert gradient is not None
        self._product.begin_backward(gradient.squeeze(SLICES))

    def activation_gradient(self) -> list[Tensor]:
        """Return the gradient of the region, through the slice alone."""
        return self._product.activation_gradient()

    def weight_gradient(self, out: Mapping[str, Tensor] = NO_BUFFERS) -> dict[str, Tensor]:
        """Return the gradient of the slice of the weights."""
        return self._product.weight_gradient(out)

    def release(self) -> None:
        """Release everything that was saved for the backward pass."""
        super().release()
        self._product.release()


class PartialSumPart(EpiloguePart):
    """The sum over all slices, with the bias, then normalisation, activation and dropout where the layer has them."""

    def __init__(self, context: PartContext, operation: PartialSum, normalization: BatchNormalization | None) -> None:
        super().__init__(context, operation.operation.activation, normalization)
        self._bias = operation.operation.bias
        self._dropout = DropoutMask(context, getattr(operation.operation, "dropout", 0.0))

    def forward(self, inputs: Sequence[Tensor], parameters: Mapping[str, Tensor], step: TrainingStep) -> Tensor:
        """Sum over the slices, then normalise, activate and drop."""
        total = inputs[0].sum(SLICES)
        if self._bias:
            total += parameters["bias"].view(-1, *(1 for _ in total.shape[2:]))
        return self._dropout.forward(self._epilogue(total, parameters, step), step)

    def begin_backward(self, gradient: Tensor | None) -> None:
        """Compute the gradient of the sum from that of dropout's output."""
        assert gradient is not None
        super().begin_backward(self._dropout.backward(gradient))

    def activation_gradient(self) -> list[Tensor]:
        """Return the gradient of the partial sums, which is the same for all slices."""
        gradient = self._saved["product_gradient"].unsqueeze(SLICES)
        return [gradient.expand(self.inputs[0].shape)]

    def weight_gradient(self, out: Mapping[str, Tensor] = NO_BUFFERS) -> dict[str, Tensor]:
        """Return the gradients of the bias, and of the normalisation's scale and shift."""
        gradients = super().weight_gradient(out)
        if self._bias:
            gradient = self._saved["product_gradient"]
            gradients["bias"] = gradient.sum([dim for dim in range(gradient.dim()) if dim != 1])
        return gradients

    def drop(self) -> None:
        """Release what ``forward`` saved, but a normalisation's statistics."""
        super().drop()
        self._dropout.release()

    def release(self) -> None:
        """Release everything that was saved for the backward pass."""
        super().release()
        self._dropout.release()
