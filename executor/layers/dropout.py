"""Dropout of a part, as a layer of its own."""

from collections.abc import Mapping, Sequence

from torch import Tensor

from executor.layers.base import PartContext, PartLayer, TrainingStep
from executor.layers.dropout_mask import DropoutMask as Mask
from planner.operations import Dropout

__all__ = ["DropoutPart"]


class DropoutPart(PartLayer):
    """Elements dropped, the others scaled."""

    def __init__(self, context: PartContext, operation: Dropout) -> None:
        super().__init__(context)
        self._mask = Mask(context, operation.dropout)

    def forward(self, inputs: Sequence[Tensor], parameters: Mapping[str, Tensor], step: TrainingStep) -> Tensor:
        """Drop."""
        return self._mask.forward(inputs[0], step)

    def begin_backward(self, gradient: Tensor | None) -> None:
        """Go back through the mask."""
        assert gradient is not None
        self._saved["gradient"] = self._mask.backward(gradient)

    def activation_gradient(self) -> list[Tensor]:
        """Gradient of what was kept."""
        return [self._saved["gradient"]]

    def release(self) -> None:
        """Forget the mask."""
        super().release()
        self._mask.release()
