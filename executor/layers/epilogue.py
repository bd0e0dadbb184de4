"""Parts that end in batch normalisation, an activation, or both."""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from executor.layers.base import NO_BUFFERS, PartContext, PartLayer, TrainingStep
from executor.layers.batch_norm import BatchNormalization
from executor.layers.kernels.activations import activate_, activation_backward
from planner.operations.normalisation import BatchNorm


class EpiloguePart(PartLayer):
    """A part whose result is normalised and activated, each where the layer says so.

    A subclass passes its product, which it must not read afterwards, to ``_epilogue``, or to ``_completed`` where its
    parts may compute partial sums, and starts both its gradients from ``self._saved["product_gradient"]``.

    Args:
        context: The part and its layer.
        activation: Name of the activation, or None.
        normalization: Batch normalisation of the part's channels, or None.
        prefix: Prefix of the names of the normalisation's parameters.
    """

    def __init__(
        self,
        context: PartContext,
        activation: str | None,
        normalization: BatchNormalization | None = None,
        prefix: str = "norm_",
    ) -> None:
        super().__init__(context)
        self._activation, self._normalization, self._prefix = activation, normalization, prefix
        self.completes = context.product != context.held
        if normalization is not None:
            self.reduces, self.buffers = normalization.reduced, normalization.buffers

    def _completed(self, product: Tensor, parameters: Mapping[str, Tensor], step: TrainingStep) -> Tensor:
        """Return the output of a product that has its bias, or partial sums that others must complete first."""
        return product if self.completes else self._epilogue(product, parameters, step)

    def complete_forward(self, sums: Tensor, parameters: Mapping[str, Tensor], step: TrainingStep) -> Tensor:
        """Add the bias, then normalise and activate."""
        if "bias" in parameters:
            sums = sums + parameters["bias"].view(-1, *(1 for _ in sums.shape[2:]))
        return self._epilogue(sums, parameters, step)

    @property
    def share_gradient(self) -> Tensor:
        """Gradient of the part's share of whole sums."""
        return self._saved["product_gradient"]

    def complete_backward(self, gradient: Tensor) -> None:
        """Keep the gradient of the share for that of the bias, and go on with that of the partial sums."""
        self._saved["share_gradient"], self._saved["product_gradient"] = self._saved["product_gradient"], gradient

    def _bias_gradient(self, out: Tensor | None) -> Tensor:
        """Return the gradient of the bias, in ``out`` where that is given."""
        gradient = self._saved["share_gradient" if self.completes else "product_gradient"]
        return torch.sum(gradient, [dim for dim in range(gradient.dim()) if dim != 1], out=out)

    def _epilogue(self, product: Tensor, parameters: Mapping[str, Tensor], step: TrainingStep) -> Tensor:
        """Return the normalised and activated product; with reduction, set the statistics and return the product."""
        if self._normalization is None:
            return self._activated(product)
        weight, bias = (parameters.get(self._prefix + name) for name in ("weight", "bias"))
        if weight is None or bias is None:
            weight, bias = product.new_ones(product.shape[1]), product.new_zeros(product.shape[1])
        # with reduction, ``finish_forward`` activates once the statistics are summed
        normalised = self._normalization.begin_forward(product, weight, bias, again=step.again)
        self.statistics = self._normalization.statistics
        return normalised if self.reduces and not step.again else self._activated(normalised)

    def finish_forward(self) -> Tensor:
        """Return the output, of the shape of ``held``, from the summed statistics."""
        return (
            super().finish_forward()
            if self._normalization is None
            else self._activated(self._normalization.finish_forward())
        )

    def _activated(self, values: Tensor) -> Tensor:
        output = activate_(self._activation, values)
        if self._activation is not None:
            self._saved["output"] = output
        return output

    def begin_backward(self, gradient: Tensor | None) -> None:
        """Compute the gradient of the activation's input and, unless statistics are summed first, of the product."""
        assert gradient is not None
        if self._activation is not None:
            gradient = activation_backward(self._activation, gradient, self._saved["output"])
        if self._normalization is not None:
            gradient = self._normalization.begin_backward(gradient)
            self.statistics = self._normalization.statistics
        self._saved["product_gradient"] = gradient

    def finish_backward(self) -> None:
        """Compute the gradient of the product from the summed statistics."""
        if self._normalization is None:
            super().finish_backward()
        else:
            self._saved["product_gradient"] = self._normalization.finish_backward()

    def weight_gradient(self, out: Mapping[str, Tensor] = NO_BUFFERS) -> dict[str, Tensor]:
        """Return the gradients of the normalisation's scale and shift."""
        if self._normalization is None or not self.layer.parameters:
            return {}
        assert self._normalization.gradients is not None
        return dict(zip((f"{self._prefix}weight", f"{self._prefix}bias"), self._normalization.gradients, strict=True))

    def drop(self) -> None:
        """Release what ``forward`` saved, but a normalisation's statistics."""
        self._saved.clear()
        if self._normalization is not None:
            self._normalization.drop()

    def release(self) -> None:
        """Release everything that was saved for the backward pass."""
        super().release()
        if self._normalization is not None:
            self._normalization.release()


class BatchNormPart(EpiloguePart):
    """Batch normalisation as a layer of its own."""

    def __init__(self, context: PartContext, operation: BatchNorm, normalization: BatchNormalization) -> None:
        super().__init__(context, operation.activation, normalization, prefix="")

    def forward(self, inputs: Sequence[Tensor], parameters: Mapping[str, Tensor], step: TrainingStep) -> Tensor:
        """Normalise the input and apply the activation."""
        return self._epilogue(inputs[0], parameters, step)

    def activation_gradient(self) -> list[Tensor]:
        """Return the gradient of the input."""
        return [self._saved["product_gradient"]]
