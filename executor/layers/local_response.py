"""Local response normalisation of a part, which reads a halo of neighbouring channels."""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from executor.layers.base import PartContext, PartLayer, TrainingStep
from planner.operations.normalisation import LocalResponseNorm


class LocalResponseNormPart(PartLayer):
    """Local response normalisation: y = x / d^beta, d = k + alpha / size * the sum of x^2 over ``size`` channels.

    The gradient of x_j is g_j / d_j^beta - 2 alpha beta / size * x_j * the sum of g_i y_i / d_i over the outputs i
    whose window contains j.  Both sums are computed as means over windows of channels, times ``size``.

    Source:
        Krizhevsky, Sutskever and Hinton, "ImageNet Classification with Deep Convolutional Neural Networks", NIPS 2012,
        Sec. 3.3, with alpha divided by ``size`` as in torch.
    """

    def __init__(self, context: PartContext, operation: LocalResponseNorm) -> None:
        super().__init__(context)
        self._operation = operation
        held, given, half = context.held, context.inputs[0], operation.size // 2
        self._before, behind = held.low[1] - given.low[1], given.high[1] - held.high[1]
        self._channels = held.shape[1]
        # zeros that stand for channels beyond the layer's first and last, and those around the part's gradient
        self._outside = half - self._before, half - behind
        self._around = half + self._before, half + behind

    def forward(self, inputs: Sequence[Tensor], parameters: Mapping[str, Tensor], step: TrainingStep) -> Tensor:
        """Normalise the held channels by those around them."""
        operation, values = self._operation, inputs[0]
        divisor = self._means(values.square(), self._outside).mul_(operation.alpha).add_(operation.k)
        output = self._own(values) * divisor.pow(-operation.beta)
        self._saved |= {"input": values, "divisor": divisor, "output": output}
        return output

    def begin_backward(self, gradient: Tensor | None) -> None:
        """Save the gradient."""
        assert gradient is not None
        self._saved["gradient"] = gradient

    def activation_gradient(self) -> list[Tensor]:
        """Return the gradient of the region, with its halo."""
        operation = self._operation
        gradient, values, divisor, output = (self._saved[name] for name in ("gradient", "input", "divisor", "output"))
        through = self._means((gradient * output).div_(divisor), self._around)
        through.mul_(values).mul_(-2 * operation.alpha * operation.beta)
        self._own(through).addcmul_(gradient, divisor.pow(-operation.beta))
        return [through]

    def _own(self, values: Tensor) -> Tensor:
        """Return the held channels of the region, as a view."""
        return values.narrow(1, self._before, self._channels)

    def _means(self, values: Tensor, padding: tuple[int, int]) -> Tensor:
        """Return means over windows of channels, with channels of zeros before and behind them."""
        size, (samples, channels, *positions) = self._operation.size, values.shape
        # an average pooling over images with channels as height and all positions as width
        values = values.reshape(samples, 1, channels, -1)
        native = padding == (size // 2, size // 2)
        if not native:  # without the name of what is padded, it is released before the means are made
            values = torch.nn.functional.pad(values, (0, 0, *padding))
        pooled = torch.nn.functional.avg_pool2d(values, (size, 1), 1, (size // 2 if native else 0, 0))
        return pooled.view(samples, -1, *positions)
