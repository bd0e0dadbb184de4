"""Dropout as a layer of its own."""

from collections.abc import Mapping, Sequence

from torch import Tensor

from executor.layers.base import PartContext, PartLayer, TrainingStep
from executor.layers.dropout_mask import DropoutMask
from planner.operations.dropout import Dropout


class DropoutPart(PartLayer):
    """Dropout: sets a share of the elements to zero and scales the others."""

    def __init__(self, context: PartContext, operation: Dropout) -> None:
        super().__init__(context)
        self._mask = DropoutMask(context, operation.dropout)

    def forward(self, inputs: Sequence[Tensor], parameters: Mapping[str, Tensor], step: TrainingStep) -> Tensor:
        """Apply the mask."""
        return self._mask.forward(inputs[0], step)

    def begin_backward(self, gradient: Tensor | None) -> None:
        """Apply the mask to the gradient."""
        assert gradient is not None
        self._saved["gradient"] = self._mask.backward(gradient)

    def activation_gradient(self) -> list[Tensor]:
        """Return the gradient of the input."""
        return [self._saved["gradient"]]

    def release(self) -> None:
        """Release the mask and everything else that was saved."""
        super().release()
        self._mask.release()
