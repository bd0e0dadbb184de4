"""Parts that end in batch normalisation, an activation, or both."""

from collections.abc import Mapping, Sequence

from torch import Tensor

from executor.layers.base import NO_BUFFERS, PartContext, PartLayer, TrainingStep
from executor.layers.batch_norm import BatchNormalization
from executor.layers.kernels import activate_, activation_backward
from planner.operations import BatchNorm

__all__ = ["BatchNormPart", "EpiloguePart"]


class EpiloguePart(PartLayer):
    """A product, then its normalisation and activation, each where there is one.

    A subclass hands its product, which it must not need again, to ``_epilogue``, and starts both its gradients from
    ``self._saved["product_gradient"]``.

    Args:
        place: Which part.
        activation: Name, or None.
        normaliser: Of the part's channels, or None.
        prefix: Of the names of the normalisation's parameters.
    """

    def __init__(
        self,
        context: PartContext,
        activation: str | None,
        normaliser: BatchNormalization | None = None,
        prefix: str = "norm_",
    ) -> None:
        super().__init__(context)
        self._activation, self._normaliser, self._prefix = activation, normaliser, prefix
        if normaliser is not None:
            self.reduces, self.buffers = normaliser.reduced, normaliser.buffers

    def _epilogue(self, product: Tensor, parameters: Mapping[str, Tensor], step: TrainingStep) -> Tensor:
        if self._normaliser is None:
            return self._activated(product)
        weight, bias = (parameters[self._prefix + name] for name in ("weight", "bias"))
        normalised = self._normaliser.begin_forward(product, weight, bias, again=step.again)
        self.statistics = self._normaliser.statistics
        return normalised if self.reduces and not step.again else self._activated(normalised)

    def finish_forward(self) -> Tensor:
        """Return the output, shape of ``held``, from the summed statistics."""
        return (
            super().finish_forward() if self._normaliser is None else self._activated(self._normaliser.finish_forward())
        )

    def _activated(self, values: Tensor) -> Tensor:
        output = activate_(self._activation, values)
        if self._activation is not None:
            self._saved["output"] = output
        return output

    def begin_backward(self, gradient: Tensor | None) -> None:
        """Go back through the activation and, unless its sums are to be reduced, the normalisation."""
        assert gradient is not None
        if self._activation is not None:
            gradient = activation_backward(self._activation, gradient, self._saved["output"])
        if self._normaliser is not None:
            gradient = self._normaliser.begin_backward(gradient)
            self.statistics = self._normaliser.statistics
        self._saved["product_gradient"] = gradient

    def finish_backward(self) -> None:
        """Complete the way back through the normalisation from the summed statistics."""
        if self._normaliser is None:
            super().finish_backward()
        else:
            self._saved["product_gradient"] = self._normaliser.finish_backward()

    def weight_gradient(self, out: Mapping[str, Tensor] = NO_BUFFERS) -> dict[str, Tensor]:
        """Gradients of the normalisation's scale and shift."""
        if self._normaliser is None:
            return {}
        assert self._normaliser.gradients is not None
        return dict(zip((f"{self._prefix}weight", f"{self._prefix}bias"), self._normaliser.gradients, strict=True))

    def drop(self) -> None:
        """Drop what ``forward`` saved, but a normalisation's statistics."""
        self._saved.clear()
        if self._normaliser is not None:
            self._normaliser.drop()

    def release(self) -> None:
        """Drop everything saved for the backward passes."""
        super().release()
        if self._normaliser is not None:
            self._normaliser.release()


class BatchNormPart(EpiloguePart):
    """Batch normalisation as a layer of its own."""

    def __init__(self, context: PartContext, operation: BatchNorm, normaliser: BatchNormalization) -> None:
        super().__init__(context, operation.activation, normaliser, prefix="")

    def forward(self, inputs: Sequence[Tensor], parameters: Mapping[str, Tensor], step: TrainingStep) -> Tensor:
        """Normalise the input and apply the activation."""
        return self._epilogue(inputs[0], parameters, step)

    def activation_gradient(self) -> list[Tensor]:
        """Gradient of the input."""
        return [self._saved["product_gradient"]]
