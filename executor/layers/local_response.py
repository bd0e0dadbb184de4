"""Local response normalisation of a part, with its halo of channels."""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from executor.layers.base import PartContext, PartLayer, TrainingStep
from planner.operations import LocalResponseNorm

__all__ = ["LocalResponseNormPart"]


class LocalResponseNormPart(PartLayer):
    """y = x / d^beta with d = k + alpha / size * the sum of the squares of ``size`` neighbouring channels.

    The gradient of x_j is g_j / d_j^beta - 2 alpha beta / size * x_j * the sum of g_i y_i / d_i over the outputs i
    whose window j is in.  Both sums are means over windows of channels, times ``size``.
    """

    def __init__(self, context: PartContext, operation: LocalResponseNorm) -> None:
        super().__init__(context)
        self._operation = operation
        held, given, half = context.held, context.inputs[0], operation.size // 2
        self._before, behind = held.low[1] - given.low[1], given.high[1] - held.high[1]
        self._channels = held.shape[1]
        self._outside = half - self._before, half - behind
        self._around = half + self._before, half + behind

    def forward(self, inputs: Sequence[Tensor], parameters: Mapping[str, Tensor], step: TrainingStep) -> Tensor:
        """Normalise the held channels by those around them."""
        operation, values = self._operation, inputs[0]
        divisor = self._means(values.square(), *self._outside).mul_(operation.alpha).add_(operation.k)
        output = self._own(values) * divisor.pow(-operation.beta)
        self._saved |= {"input": values, "divisor": divisor, "output": output}
        return output

    def begin_backward(self, gradient: Tensor | None) -> None:
        """Keep the gradient."""
        assert gradient is not None
        self._saved["gradient"] = gradient

    def activation_gradient(self) -> list[Tensor]:
        """Gradient of the region, halo included."""
        operation = self._operation
        gradient, values, divisor, output = (self._saved[name] for name in ("gradient", "input", "divisor", "output"))
        through = self._means((gradient * output).div_(divisor), *self._around)
        through.mul_(values).mul_(-2 * operation.alpha * operation.beta)
        self._own(through).addcmul_(gradient, divisor.pow(-operation.beta))
        return [through]

    def _own(self, values: Tensor) -> Tensor:
        """The held channels of the region, a view."""
        return values.narrow(1, self._before, self._channels)

    def _means(self, values: Tensor, before: int, behind: int) -> Tensor:
        """Means over windows of channels, after padding them with ``before`` and ``behind`` zeros."""
        size = self._operation.size
        flat = values.reshape(len(values), 1, values.shape[1], -1)
        native = before == behind == size // 2
        if not native:
            flat = torch.nn.functional.pad(flat, (0, 0, before, behind))
        pooled = torch.nn.functional.avg_pool2d(flat, (size, 1), 1, (size // 2 if native else 0, 0))
        return pooled.view(len(values), -1, *values.shape[2:])
