"""Parts of imported layers: their recorded computation, with gradients by PyTorch's automatic differentiation."""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from executor.layers.base import NO_BUFFERS, PartContext, PartLayer, TrainingStep
from executor.layers.dropout_mask import DropoutMask
from executor.recorded import Computation, ComputationInputs

__all__ = ["RecordedPart"]


class RecordedPart(PartLayer):
    """A part of a layer whose computation was recorded when it was imported.

    Args:
        context: The part and its layer.
        dtype: Type of the output.
        device: Device of the output.
    """

    def __init__(self, context: PartContext, dtype: torch.dtype, device: torch.device | str) -> None:
        super().__init__(context)
        self._computation = Computation(context.layer, context.held, context.inputs)
        self._context, self._dtype, self._device = context, dtype, torch.device(device)
        self._inputs: list[Tensor] = []
        self._parameters: dict[str, Tensor] = {}
        self._output: Tensor | None = None
        self._gradient: Tensor | None = None

    def forward(self, inputs: Sequence[Tensor], parameters: Mapping[str, Tensor], step: TrainingStep) -> Tensor:
        """Compute the steps, and keep their graph for the gradients."""
        data = [source == "input" for source in self.layer.inputs]
        self._inputs = [x.detach().requires_grad_(not d) for x, d in zip(inputs, data, strict=True)]
        self._parameters = {name: each.detach().requires_grad_() for name, each in parameters.items()}

        def dropped(number: int, share: float, values: Tensor) -> Tensor:
            meta = values.device.type == "meta"  # sizes only
            return values if meta else DropoutMask(self._context, share, number).forward(values, step)

        given = ComputationInputs(
            inputs=self._inputs, parameters=self._parameters, buffers=self.constants, dropped=dropped
        )  # fmt: skip
        with torch.enable_grad():
            self._output = self._computation.run(given, dtype=self._dtype, device=self._device)
        return self._output.detach().contiguous()

    def begin_backward(self, gradient: Tensor | None) -> None:
        """Keep the gradient."""
        self._gradient = gradient

    def activation_gradient(self) -> list[Tensor]:
        """Return the gradients of the inputs; those of data are zero."""
        return self._gradients(self._inputs)

    def weight_gradient(self, out: Mapping[str, Tensor] = NO_BUFFERS) -> dict[str, Tensor]:
        """Return the gradients of the parameters."""
        return dict(zip(self._parameters, self._gradients(list(self._parameters.values())), strict=True))

    def _gradients(self, tensors: Sequence[Tensor]) -> list[Tensor]:
        """Return the gradients of some tensors that the output was computed from."""
        assert self._output is not None
        wanted = [each for each in tensors if each.requires_grad] if self._output.requires_grad else []
        found = (
            torch.autograd.grad(self._output, wanted, self._gradient, retain_graph=True, allow_unused=True)
            if wanted
            else ()
        )
        by_tensor = {id(each): gradient for each, gradient in zip(wanted, found, strict=True)}
        rows = [by_tensor.get(id(each)) for each in tensors]
        return [torch.zeros_like(t) if g is None else g for t, g in zip(tensors, rows, strict=True)]

    def release(self) -> None:
        """Release everything that was saved for the backward pass."""
        super().release()
        self._inputs, self._parameters, self._output, self._gradient = [], {}, None, None
