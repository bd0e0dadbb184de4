"""Losses of the samples of a part."""

import math
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from executor.layers.base import PartContext, PartLayer, TrainingStep
from groundwork.errors import ConfigError
from planner.operations.loss import Loss


class LossPart(PartLayer):
    """Softmax with cross-entropy, of samples or of each of their positions, or the mean squared error, of samples.

    The loss is the mean over the samples of the whole batch, or over all positions where each has a label.  Each part
    computes its share of it, so that gradients need no scale factor later.  The output is the probabilities, or the
    errors.
    """

    def __init__(self, context: PartContext, operation: Loss) -> None:
        super().__init__(context)
        self._softmax = operation.function != "mean_squared_error"
        self._by_position = operation.function == "softmax_per_position"
        positions = math.prod(self.layer.output.positions) if self._by_position else 1
        self._labels = context.samples.batch * positions
        """Number of labels of the whole batch."""
        self._elements = context.samples.batch * math.prod(self.held.shape[1:])
        """Number of errors of the whole batch."""

    def forward(self, inputs: Sequence[Tensor], parameters: Mapping[str, Tensor], step: TrainingStep) -> Tensor:
        """Set the loss and return the probabilities or the errors.

        Raises:
            ConfigError: The step has no targets.
        """
        if step.targets is None:
            raise ConfigError(f"targets of loss layer {self.layer.name!r} must be given, got None")
        self._saved["targets"] = step.targets.flatten()
        if not self._softmax:
            output = inputs[0] - step.targets.reshape(inputs[0].shape)
            self.loss = output.square().sum() / self._elements
            self._saved["output"] = output
            return output
        logarithms = torch.log_softmax(self._rows(inputs[0]), 1)
        self.loss = torch.nn.functional.nll_loss(logarithms, self._saved["targets"], reduction="sum") / self._labels
        self._saved["output"] = logarithms.exp_()
        return self._placed(self._saved["output"])

    def _rows(self, values: Tensor) -> Tensor:
        """Return one row for each label: of a sample, or of one of its positions, channels last."""
        return values.movedim(1, -1).flatten(0, -2) if self._by_position else values.flatten(1)

    def _placed(self, rows: Tensor) -> Tensor:
        """Return rows as the part of the tensor that they are of."""
        sample, channels, *positions = self.held.shape
        if not self._by_position:
            return rows.view(self.held.shape)
        return rows.view(sample, *positions, channels).movedim(-1, 1)

    def begin_backward(self, gradient: Tensor | None) -> None:
        """Do nothing: the gradient of a loss starts from the targets."""

    def activation_gradient(self) -> list[Tensor]:
        """Return the gradient of the mean loss over the whole batch."""
        output, targets = self._saved["output"], self._saved["targets"]
        if not self._softmax:
            return [output * (2 / self._elements)]
        gradient = output / self._labels
        # the gradient is (probability - 1 at the label) over the number of labels
        one = torch.full((), -1 / self._labels, dtype=output.dtype, device=output.device)
        gradient.scatter_add_(1, targets[:, None], one.expand_as(targets[:, None]))
        return [self._placed(gradient)]
