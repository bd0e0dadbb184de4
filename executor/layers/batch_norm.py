"""Batch normalisation of a part, by statistics of the part alone or of the whole batch."""

import torch
from torch import Tensor


class BatchNormalization:
    """Batch normalisation of the channels of one part.

    Without reduction, a part is normalised by the mean and the biased variance of its own elements.  With reduction,
    all parts of the same channels are normalised together.  In the forward pass each part sums its elements less the
    running mean, which all parts share, and their squares: such sums stay small, so that no digits cancel.  In the
    backward pass it sums dy and dy * xhat.

    Args:
        channels: Number of channels of the part.
        count: Number of elements of one channel in the whole tensor if the statistics are reduced, else None.
        dtype, device: Of the running statistics.
        eps: Constant added to the variance.
        momentum: Weight of a step's statistics in the running statistics.

    Source:
        Ioffe and Szegedy, ICML 2015, Algorithm 1 and the gradients of Sec. 3.
    """

    def __init__(
        self,
        channels: int,
        *,
        count: int | None,
        dtype: torch.dtype,
        device: torch.device | str,
        eps: float = 1e-5,
        momentum: float = 0.1,
    ) -> None:
        self.count, self._eps, self._momentum = count, eps, momentum
        self.buffers = {
            "running_mean": torch.zeros(channels, dtype=dtype, device=device),
            "running_var": torch.ones(channels, dtype=dtype, device=device),
        }
        self.statistics: Tensor | None = None
        """Sums to be reduced over the parts before the ``finish`` methods are called: float64, shape (2, channels)."""
        self.gradients: tuple[Tensor, Tensor] | None = None
        """Gradients of scale and shift over the part's own elements, after ``begin_backward``."""
        self._saved: dict[str, Tensor] = {}

    @property
    def reduced(self) -> bool:
        """True if statistics are summed over all parts."""
        return self.count is not None

    def begin_forward(self, values: Tensor, weight: Tensor, bias: Tensor, *, again: bool = False) -> Tensor:
        """Normalise a part, or, with reduction, set its statistics.

        Args:
            values: Elements of the part, shape (samples, channels, *positions).
            weight: Scale, shape (channels,).
            bias: Shift, shape (channels,).
            again: Whether the forward pass is recomputed: the running statistics then do not change, and a part with
                reduction is normalised by the statistics that it has kept.

        Returns:
            The normalised elements; with reduction, ``values``, unless recomputed.
        """
        self._saved |= {"values": values, "weight": weight, "bias": bias}
        if again and self.reduced:
            return self._fixed(weight, bias)
        mean, variance = self.buffers["running_mean"], self.buffers["running_var"]
        if self.reduced:
            # torch returns the mean and the variance of the part; turned into sums of (x - m) and of (x - m)^2, with m
            # the running mean, they can be added up over the parts: sum (x - m)^2 = n (variance + (mean - m)^2)
            own = values.numel() / len(mean)
            own_mean, own_variance = torch.ops.aten.batch_norm_update_stats(values, None, None, 0.0)
            shifted = own_mean.double() - mean
            self.statistics = torch.stack((shifted, own_variance.double().addcmul_(shifted, shifted))).mul_(own)
            return values
        # The unbiased variance of one element does not exist: the running statistics then do not change.
        updates = values.numel() > len(mean) and not again
        running = (mean, variance) if updates else (None, None)
        output: Tensor
        output, self._saved["mean"], self._saved["deviation"] = torch.ops.aten.native_batch_norm(
            values, weight, bias, *running, True, self._momentum, self._eps
        )
        return output

    def finish_forward(self) -> Tensor:
        """Return the elements, normalised by the summed statistics."""
        assert self.statistics is not None
        assert self.count is not None
        running_mean, running_var = self.buffers["running_mean"], self.buffers["running_var"]
        # back from the mean of (x - m) and of (x - m)^2 over all parts to mean and variance; rounding must not make
        # the variance negative
        shifted, squares = self.statistics / self.count
        mean = (shifted + running_mean).to(running_mean.dtype)
        variance = squares.addcmul_(shifted, shifted, value=-1).clamp_(min=0).to(running_var.dtype)
        if self.count > 1:
            running_mean.lerp_(mean, self._momentum)
            running_var.lerp_(variance * (self.count / (self.count - 1)), self._momentum)
        saved = self._saved
        saved["mean"], saved["variance"] = mean, variance
        return self._fixed(saved["weight"], saved["bias"])

    def begin_backward(self, gradient: Tensor) -> Tensor:
        """Return the gradient of the elements; with reduction, set its statistics and return ``gradient`` itself."""
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
                self._eps,
                [True, True, True],
            )
            self.gradients = (gradients[0], gradients[1])
            return before
        # torch takes fixed statistics here, so that it returns the part's own sums of dy * xhat and of dy
        fixed = (saved["mean"], saved["variance"], None, None, False, self._eps)
        _, products, sums = torch.ops.aten.native_batch_norm_backward(
            gradient, saved["values"], saved["weight"], *fixed, [False, True, True]
        )
        self.gradients = (products, sums)
        self.statistics = torch.stack((sums, products)).double()
        saved["gradient"] = gradient
        return gradient

    def finish_backward(self) -> Tensor:
        """Return the gradient of the elements: w / sigma * (dy - mean(dy) - xhat * mean(dy * xhat))."""
        assert self.statistics is not None
        assert self.count is not None
        saved = self._saved
        # ``_fixed`` computes a * xhat + b: with a and b from the means of dy * xhat and of dy it gives all of the
        # formula but its first term, which is added in place
        scale = saved["weight"] * (saved["variance"] + self._eps).rsqrt()
        sums, products = (self.statistics / -self.count).to(scale.dtype)
        broadcast = scale.view(-1, *(1 for _ in saved["values"].shape[2:]))
        return self._fixed(scale * products, scale * sums).addcmul_(saved["gradient"], broadcast)

    def drop(self) -> None:
        """Release everything saved but the statistics, which a recomputation needs."""
        self._saved = {name: self._saved[name] for name in ("mean", "variance") if name in self._saved}

    def release(self) -> None:
        """Release everything saved."""
        self._saved, self.statistics, self.gradients = {}, None, None

    def _fixed(self, weight: Tensor, bias: Tensor) -> Tensor:
        """Return weight * xhat + bias, in one pass over the elements."""
        saved = self._saved
        output: Tensor = torch.ops.aten.native_batch_norm(
            saved["values"], weight, bias, saved["mean"], saved["variance"], False, 0.0, self._eps
        )[0]
        return output
