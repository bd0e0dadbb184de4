"""Losses of the samples of a part."""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from executor.layers.base import PartContext, PartLayer, TrainingStep
from hwprofiles import ConfigError
from planner.operations import Loss

__all__ = ["LossPart"]


class LossPart(PartLayer):
    """Softmax with cross-entropy, or the mean squared error, of flattened samples.

    The loss is the mean over the samples of the whole batch.  Each part computes its share of it, so that
    gradients need no scale factor later.  The output is the probabilities, or the errors.
    """

    def __init__(self, context: PartContext, operation: Loss) -> None:
        super().__init__(context)
        self._softmax = operation.function == "softmax"
        self._batch = context.samples.batch

    def forward(self, inputs: Sequence[Tensor], parameters: Mapping[str, Tensor], step: TrainingStep) -> Tensor:
        """Set the loss and return the probabilities or the errors.

        Raises:
            ConfigError: The step has no targets.
        """
        if step.targets is None:
            raise ConfigError(f"targets of loss layer {self.layer.name!r} must be given, got None")
        samples, self._saved["targets"] = inputs[0].flatten(1), step.targets
        if self._softmax:
            logarithms = torch.log_softmax(samples, 1)
            self.loss = torch.nn.functional.nll_loss(logarithms, step.targets, reduction="sum") / self._batch
            output = logarithms.exp_()
        else:
            output = samples - step.targets.flatten(1)
            self.loss = output.square().sum() / (self._batch * output.shape[1])
        self._saved["output"] = output
        return output.view(self.held.shape)

    def begin_backward(self, gradient: Tensor | None) -> None:
        """Do nothing: the gradient of a loss starts from the targets."""

    def activation_gradient(self) -> list[Tensor]:
        """Return the gradient of the mean loss over the whole batch."""
        output, targets = self._saved["output"], self._saved["targets"]
        if self._softmax:
            gradient = output / self._batch
            # the gradient is (probability - 1 at the label) over the batch
            one = torch.full((), -1 / self._batch, dtype=output.dtype, device=output.device)
            gradient.scatter_add_(1, targets[:, None], one.expand(len(targets), 1))
        else:
            gradient = output * (2 / (self._batch * output.shape[1]))
        return [gradient.view(self.inputs[0].shape)]
