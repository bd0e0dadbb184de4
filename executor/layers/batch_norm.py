"""Batch normalisation of a part, with statistics of its own or of the whole batch."""

import torch
from torch import Tensor

__all__ = ["BatchNormalization"]

EPSILON = 1e-5
"""Added to the variance."""
_MOMENTUM = 0.1
"""Weight of a step's statistics in the running ones."""


class BatchNormalization:
    """Normalises the channels of one part.

    Alone, a part uses the mean and the biased variance of its own values.  Reduced, the values of all parts of the
    same channels count: forward each part adds up its values less the running mean, which all parts share, and their
    squares; so sums stay small and no digits cancel.  Backward it adds up dy and dy * xhat.

    Args:
        channels: Channels of the part.
        count: Values of one channel in the whole tensor if the statistics are reduced, else None.
        dtype, device: Of the running statistics.

    Source:
        Ioffe and Szegedy, ICML 2015, Algorithm 1 and the gradients of Sec. 3.
    """

    def __init__(self, channels: int, *, count: int | None, dtype: torch.dtype, device: torch.device | str) -> None:
        self.count = count
        self.buffers = {
            "running_mean": torch.zeros(channels, dtype=dtype, device=device),
            "running_var": torch.ones(channels, dtype=dtype, device=device),
        }
        self.statistics: Tensor | None = None
        """Reduced: float64, shape (2, channels), to be summed over the parts before the ``finish`` calls."""
        self.gradients: tuple[Tensor, Tensor] | None = None
        """After ``begin_backward``: of scale and shift, of the part's own values."""
        self._saved: dict[str, Tensor] = {}

    @property
    def reduced(self) -> bool:
        """Whether statistics are those of all parts."""
        return self.count is not None

    def begin_forward(self, values: Tensor, weight: Tensor, bias: Tensor, *, again: bool = False) -> Tensor:
        """Return the normalised values, or, reduced, the values: their statistics are set.

        The second time running statistics stay; reduced, the values are normalised by the statistics kept.
        """
        self._saved |= {"values": values, "weight": weight, "bias": bias}
        if again and self.reduced:
            return self._fixed(weight, bias)
        mean, variance = self.buffers["running_mean"], self.buffers["running_var"]
        if self.reduced:
            own = values.numel() / len(mean)
            own_mean, own_variance = torch.ops.aten.batch_norm_update_stats(values, None, None, 0.0)
            shifted = own_mean.double() - mean
            self.statistics = torch.stack((shifted, own_variance.double().addcmul_(shifted, shifted))).mul_(own)
            return values
        # The unbiased variance of one value does not exist: the running statistics then stay.
        moves = values.numel() > len(mean) and not again
        running = (mean, variance) if moves else (None, None)
        output: Tensor
        output, self._saved["mean"], self._saved["deviation"] = torch.ops.aten.native_batch_norm(
            values, weight, bias, *running, True, _MOMENTUM, EPSILON
        )
        return output

    def finish_forward(self) -> Tensor:
        """Return the values, normalised with the summed statistics."""
        assert self.statistics is not None
        assert self.count is not None
        running_mean, running_var = self.buffers["running_mean"], self.buffers["running_var"]
        shifted, squares = self.statistics / self.count
        mean = (shifted + running_mean).to(running_mean.dtype)
        variance = squares.addcmul_(shifted, shifted, value=-1).clamp_(min=0).to(running_var.dtype)
        if self.count > 1:
            running_mean.lerp_(mean, _MOMENTUM)
            running_var.lerp_(variance * (self.count / (self.count - 1)), _MOMENTUM)
        saved = self._saved
        saved["mean"], saved["variance"] = mean, variance
        return self._fixed(saved["weight"], saved["bias"])

    def begin_backward(self, gradient: Tensor) -> Tensor:
        """Return the gradient of the values, or, reduced, the one handed in: its statistics are set."""
        saved = self._saved
        if not self.reduced:
            before: Tensor
            before, *gradients = torch.ops.aten.native_batch_norm_backward(
                gradient,
                saved["values"],
                saved["weight"],
                None,
                None,
                saved["mean"],
                saved["deviation"],
                True,
                EPSILON,
                [True, True, True],
            )
            self.gradients = (gradients[0], gradients[1])
            return before
        fixed = (saved["mean"], saved["variance"], None, None, False, EPSILON)
        _, products, sums = torch.ops.aten.native_batch_norm_backward(
            gradient, saved["values"], saved["weight"], *fixed, [False, True, True]
        )
        self.gradients = (products, sums)
        self.statistics = torch.stack((sums, products)).double()
        saved["gradient"] = gradient
        return gradient

    def finish_backward(self) -> Tensor:
        """Return the gradient of the values: w / sigma * (dy - mean(dy) - xhat * mean(dy * xhat))."""
        assert self.statistics is not None
        assert self.count is not None
        saved = self._saved
        scale = saved["weight"] * (saved["variance"] + EPSILON).rsqrt()
        sums, products = (self.statistics / -self.count).to(scale.dtype)
        broadcast = scale.view(-1, *(1 for _ in saved["values"].shape[2:]))
        return self._fixed(scale * products, scale * sums).addcmul_(saved["gradient"], broadcast)

    def drop(self) -> None:
        """Drop everything saved but the statistics, which ``begin_forward`` may need again."""
        self._saved = {name: self._saved[name] for name in ("mean", "variance") if name in self._saved}

    def release(self) -> None:
        """Drop everything saved."""
        self._saved, self.statistics, self.gradients = {}, None, None

    def _fixed(self, weight: Tensor, bias: Tensor) -> Tensor:
        """Return weight * xhat + bias, in one pass over the values."""
        saved = self._saved
        output: Tensor = torch.ops.aten.native_batch_norm(
            saved["values"], weight, bias, saved["mean"], saved["variance"], False, 0.0, EPSILON
        )[0]
        return output
