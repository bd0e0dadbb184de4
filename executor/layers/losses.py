"""Losses of the samples of a part."""

import math
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor
from typing_extensions import override

from executor.layers.base import PartContext, PartLayer, TrainingStep
from groundwork.errors import ConfigError
from planner.operations.loss import Loss

_FLOAT16_SCALE = 1024.0


class LossPart(PartLayer):
    """Softmax with cross-entropy, of samples or of each of their positions, or the mean squared error, of samples.

    The loss is the mean over the samples of the whole batch, or over all positions where each has a label.  Each part
    computes its share of it, so that gradients need no scale factor later.  The output is the probabilities, or the
    errors.

    A part of the channels has of each row its largest value m and the sum s of exp(x - m).  From those of all parts it
    computes the logarithm of the whole sum, and adds the loss of the rows whose label is one of its channels.

    Source:
        Shoeybi et al., "Megatron-LM", 2019, Sec. 3.
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
        self._columns_held = math.prod(self.held.shape[1:2] if self._by_position else self.held.shape[1:])
        """Columns of a row that the part has."""
        self.reduces = self._by_position and self.held.shape[1] < self.layer.output.size("channel")

    def forward(self, inputs: Sequence[Tensor], parameters: Mapping[str, Tensor], step: TrainingStep) -> Tensor:
        """Set the loss and return the probabilities or the errors.

        Raises:
            ConfigError: The step has no targets.
        """
        if step.targets is None:
            raise ConfigError(f"targets of loss layer {self.layer.name!r} must be given, got None")
        self._saved["targets"], self._type = step.targets.flatten(), inputs[0].dtype
        if not self._softmax:
            output = _wide(inputs[0] - step.targets.reshape(inputs[0].shape))
            self.loss = output.square().sum() / self._elements
            self._saved["output"] = output
            return output
        if self.reduces:
            return self._begin(self._rows(inputs[0]), step)
        logarithms = torch.log_softmax(self._rows(inputs[0]), 1)
        self.loss = torch.nn.functional.nll_loss(logarithms, self._saved["targets"], reduction="sum") / self._labels
        self._saved["output"] = logarithms.exp_()
        return self._placed(self._saved["output"])

    def _begin(self, rows: Tensor, step: TrainingStep) -> Tensor:
        """Set the statistics of the part, or, again, return the probabilities by those that it has kept."""
        saved = self._saved
        if step.again:
            saved["output"] = rows.sub(saved["logarithm"][:, None]).exp_()
            return self._placed(saved["output"])
        column, _ = self._columns()
        saved["at_label"] = rows.gather(1, column)[:, 0]
        saved["largest"] = rows.amax(1)
        saved["output"] = rows.sub(saved["largest"][:, None]).exp_()
        self.statistics = torch.stack((saved["largest"], saved["output"].sum(1)))[None]
        return saved["output"]

    def _columns(self) -> tuple[Tensor, Tensor]:
        """Return the column of each row's label, shape (rows, 1), and which of them lie in the part."""
        column = self._saved["targets"] - self.held.low[1]
        own = (column >= 0) & (column < self._columns_held)
        return column.where(own, 0)[:, None], own

    @override
    def finish_forward(self) -> Tensor:
        assert self.statistics is not None
        saved, (largest, sums) = self._saved, self.statistics.unbind(1)
        whole = largest.amax(0)
        saved["logarithm"] = whole + (sums * (largest - whole).exp()).sum(0).log()
        saved["output"] *= (saved.pop("largest") - saved["logarithm"]).exp_()[:, None]
        _, own = self._columns()
        self.loss = (saved["logarithm"] - saved.pop("at_label")).where(own, 0.0).sum() / self._labels
        self.statistics = None
        return self._placed(saved["output"])

    @override
    def finish_backward(self) -> None:
        pass

    @override
    def drop(self) -> None:
        self._saved = {"logarithm": self._saved["logarithm"]} if self.reduces else {}

    def _rows(self, values: Tensor) -> Tensor:
        """Return one row for each label: of a sample, or of one of its positions, channels last."""
        rows = values.movedim(1, -1).flatten(0, -2) if self._by_position else values.flatten(1)
        return _wide(rows)

    def _placed(self, rows: Tensor) -> Tensor:
        """Return rows as the part of the tensor that they are of."""
        sample, channels, *positions = self.held.shape
        if not self._by_position:
            return rows.view(self.held.shape)
        return rows.view(sample, *positions, channels).movedim(-1, 1)

    def begin_backward(self, gradient: Tensor | None) -> None:
        """Do nothing: the gradient of a loss starts from the targets."""

    def activation_gradient(self) -> list[Tensor]:
        """Return the gradient of the mean loss over the whole batch, times ``loss_scale``."""
        output, scale = self._saved["output"], loss_scale(self._type)
        if not self._softmax:
            return [(output * (2 * scale / self._elements)).to(self._type)]
        gradient = output * (scale / self._labels) if scale > 1 else output / self._labels
        # the gradient is (probability - 1 at the label) over the number of labels
        column, own = self._columns()
        gradient.scatter_add_(1, column, own[:, None].to(output.dtype) * (-scale / self._labels))
        return [self._placed(gradient).to(self._type)]


def loss_scale(dtype: torch.dtype) -> float:
    """Return the factor of all gradients in a type of activations; optimizers divide by it.

    Gradients of a mean over many labels are too small for float16, which has nothing below 6e-8.  A power of two rounds
    none of them.

    Source:
        Micikevicius et al., "Mixed Precision Training", ICLR 2018, Sec. 3.2, with one factor from first to last step.
    """
    return _FLOAT16_SCALE if dtype == torch.float16 else 1.0


def _wide(values: Tensor) -> Tensor:
    """Return values in float32 at least: half precision is too narrow for sums of exponentials and of losses."""
    return values.to(torch.promote_types(values.dtype, torch.float32))
