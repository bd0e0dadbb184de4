"""Pooling over sliding windows and over all positions."""

import math
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from executor.layers.base import PartContext, PartLayer, TrainingStep
from executor.layers.kernels.layout import laid_out_as
from executor.layers.kernels.windows import cropped, padded, windows_of
from planner.operations.pooling import GlobalPooling, Pooling


class PoolingPart(PartLayer):
    """The maximum or the mean of each window.

    Where the library's own padding, with sizes rounded down or up, gives the part's windows, it is used; else the
    region is copied into a padded one, with minus infinity for the maximum.  The divisor of a mean counts the tensor's
    padding, but not positions beyond it, which only the last window of a dimension can reach.

    Args:
        context: The part and its layer.
        operation: The pooling.
    """

    def __init__(self, context: PartContext, operation: Pooling) -> None:
        super().__init__(context)
        self._maximum = operation.mode == "max"
        windows = windows_of(operation.interval_maps(0, context.layer.input_shapes), context.held, context.inputs[0])
        floor, ceiling = all(window.symmetric for window in windows), all(window.ceiling for window in windows)
        # Torch's 3-D mean refuses a region smaller than the kernel, padded or not.
        native = (floor or ceiling) and (self._maximum or all(window.size >= window.kernel for window in windows))
        self._copied = () if native else windows
        self._lifted = len(windows) == 1  # the library's 1-D pooling has no backward of its own: 2-D with height 1
        ones, rank = [1] * self._lifted, len(windows) + self._lifted
        pad = [0] * self._lifted + [window.left if native else 0 for window in windows]
        # arguments of torch's pooling and of its gradient, which start with kernel, stride and padding
        form = ([*ones, *operation.kernel], [*ones, *operation.stride], pad)
        aten, up = torch.ops.aten, ceiling and not floor
        self._form: tuple[object, ...]
        if self._maximum:
            self._form = (*form, [1] * rank, up)
            self._pool = getattr(aten, f"max_pool{rank}d_with_indices")
            self._unpool = getattr(aten, f"max_pool{rank}d_with_indices_backward")
        else:
            self._form = (*form, up, True, None)
            self._pool = getattr(aten, f"avg_pool{rank}d")
            self._unpool = getattr(aten, f"avg_pool{rank}d_backward")
        self._shortened: dict[int, float] = {}
        """Kernel size over the divisor of the last mean, by dimension of the output."""
        # in a padded copy the library divides by the whole kernel, also where the last window sticks out of the padding
        if not native and not self._maximum:
            self._shortened = {
                dim: window.kernel / (window.kernel + window.pad - window.right)
                for dim, window in enumerate(windows, start=2)
                if window.right > window.pad
            }

    def forward(self, inputs: Sequence[Tensor], parameters: Mapping[str, Tensor], step: TrainingStep) -> Tensor:
        """Pool the region."""
        values = self._lift(padded(inputs[0], self._copied, -math.inf if self._maximum else 0.0))
        self._saved["input"] = values
        pooled = self._pool(values, *self._form)
        if self._maximum:
            pooled, self._saved["indices"] = pooled
        return self._corrected(self._lower(pooled))

    def begin_backward(self, gradient: Tensor | None) -> None:
        """Save the gradient, with the scale factors of the last means."""
        assert gradient is not None
        gradient = self._corrected(gradient.clone()) if self._shortened else gradient
        self._saved["gradient"] = self._lift(gradient)

    def activation_gradient(self) -> list[Tensor]:
        """Return the gradient of the region."""
        indices, values = (self._saved["indices"],) if self._maximum else (), self._saved["input"]
        gradient = self._unpool(laid_out_as(values, self._saved["gradient"]), values, *self._form, *indices)
        return [cropped(self._lower(gradient), self._copied)]

    def _lift(self, values: Tensor) -> Tensor:
        return values.unsqueeze(2) if self._lifted else values

    def _lower(self, values: Tensor) -> Tensor:
        return values.squeeze(2) if self._lifted else values

    def _corrected(self, values: Tensor) -> Tensor:
        """Scale the last mean of each dimension in place."""
        for dim, factor in self._shortened.items():
            values.narrow(dim, -1, 1).mul_(factor)
        return values


class GlobalPoolingPart(PartLayer):
    """The first maximum, or the mean, over all positions, for each of the part's samples and channels."""

    def __init__(self, context: PartContext, operation: GlobalPooling) -> None:
        super().__init__(context)
        self._maximum = operation.mode == "max"

    def forward(self, inputs: Sequence[Tensor], parameters: Mapping[str, Tensor], step: TrainingStep) -> Tensor:
        """Pool every channel of every sample."""
        values = inputs[0].flatten(2)
        if not self._maximum:
            return values.mean(2).view(self.held.shape)
        pooled, self._saved["indices"] = values.max(2, keepdim=True)
        return pooled.view(self.held.shape)

    def begin_backward(self, gradient: Tensor | None) -> None:
        """Save the gradient."""
        assert gradient is not None
        self._saved["gradient"] = gradient

    def activation_gradient(self) -> list[Tensor]:
        """Return the gradient of the input: at the position of the maximum, or the same at all positions."""
        gradient, shape = self._saved["gradient"].flatten(2), self.inputs[0].shape
        positions = math.prod(shape[2:])
        if not self._maximum:
            return [(gradient / positions).expand(-1, -1, positions).contiguous().view(shape)]
        spread = gradient.new_zeros((*shape[:2], positions))
        return [spread.scatter_(2, self._saved["indices"], gradient).view(shape)]
