"""Dropout masks that depend on seed, step, layer and position only."""

from functools import partial

import torch
from torch import Tensor

from executor.layers.base import PartContext, TrainingStep
from executor.runtime.positional_random import key_of, uniform
from executor.runtime.samples import in_order


class DropoutMask:
    """The dropout mask of a part, which drops a share of its outputs and scales the others to keep their mean.

    Args:
        context: The part and its layer.
        share: Share of the outputs that are dropped; 0 for none.
        number: Number of the mask among those of the layer.

    Source:
        Srivastava et al., "Dropout", JMLR 15, 2014, Sec. 10: the scaled variant.
    """

    def __init__(self, context: PartContext, share: float, number: int = 0) -> None:
        self._context, self._share, self._number = context, share, (number,) if number else ()
        self._dropped: Tensor | None = None
        """Which elements are dropped: a byte each."""

    def forward(self, output: Tensor, step: TrainingStep) -> Tensor:
        """Return the output with elements dropped; ``output`` itself where the share is 0."""
        if not self._share:
            return output
        context = self._context
        key = key_of(step.seed, step.number, context.index, *self._number)
        whole = (context.samples.batch, *context.layer.output.sizes[1:])
        # a micro-batch holds samples from several places of the mini-batch; the mask is keyed by those places
        boxes = context.samples.boxes(context.held)
        dtype = torch.promote_types(output.dtype, torch.float32)
        made = partial(uniform, key, whole=whole, dtype=dtype, device=output.device)
        rows = [in_order(made, box, context.order) < self._share for box in boxes]
        self._dropped = torch.cat(rows) if len(rows) > 1 else rows[0]
        return self._scaled(output.clone().masked_fill_(self._dropped, 0.0))  # ``masked_fill`` changes the layout

    def backward(self, gradient: Tensor, *, in_place: bool = False) -> Tensor:
        """Return the gradient of the tensor that ``forward`` was given."""
        if self._dropped is None:
            return gradient
        return self._scaled((gradient if in_place else gradient.clone()).masked_fill_(self._dropped, 0.0))

    def release(self) -> None:
        """Release the mask."""
        self._dropped = None

    def _scaled(self, kept: Tensor) -> Tensor:
        """Scale what is left of a tensor, in place."""
        return kept.mul_(1 / (1 - self._share))
