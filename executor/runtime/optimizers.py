"""Optimizers of one layer on one rank: torch's fused kernels on the slices of parameters that the rank holds."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import ClassVar

import torch
from torch import Tensor

from executor.runtime.optimizer_spec import OptimizerSpec

_MASTER = "master"


class Optimizer(ABC):
    """An optimizer of a layer's parameters, with state that is split as they are.

    It calls the kernels without the hooks, checks and groups of ``torch.optim.Optimizer.step``: a step of a small layer
    on a CPU takes 6 instead of 35 us with SGD, 14 instead of 76 us with Adam.

    Args:
        spec: Name and settings.
        parameters: The slices that the rank holds; updated in place.
        masters: Master weights of the slices, which the kernels update, and which are then copied; empty for none.
        state_type: Type of the state between steps; None: that of what the kernels update.
        scale: Factor that gradients come with, as those of a loss that is scaled.
    """

    _counts_steps: ClassVar[bool] = False

    def __init__(
        self,
        spec: OptimizerSpec,
        parameters: Sequence[Tensor],
        *,
        masters: Sequence[Tensor] = (),
        state_type: torch.dtype | None = None,
        scale: float = 1.0,
    ) -> None:
        self.spec, self._scale = spec, scale
        self.parameters = list(parameters)
        self._updated = list(masters) or self.parameters
        kept = {
            name: [torch.zeros_like(each, dtype=state_type) for each in self._updated] for name in self._names(spec)
        }
        self.state = kept | ({_MASTER: self._updated} if masters else {})
        """State tensors by name, one for each parameter, of its shape, master weights among them; a checkpoint is
        loaded into them."""
        self._kept = kept
        self._converts = any(each.dtype != state_type for each in self._updated) if state_type else False
        """Whether the kernels, which take state of the parameters' type alone, compute with copies of it."""
        counted = self.parameters if self._counts_steps else []
        self._steps = [torch.zeros((), device=each.device) for each in counted]
        """Number of steps taken, one tensor for each parameter, where the update rule depends on it."""

    def step(self, gradients: Sequence[Tensor]) -> None:
        """Update the parameters in place.

        Args:
            gradients: One for each parameter, of its shape, on its device, of any type; they are not written.
        """
        if not self.parameters:
            return
        pairs = zip(gradients, self._updated, strict=True)
        # The fused kernels read memory in order, whatever the strides, and gradients of the parameters' type alone.
        same = [
            g if g.stride() == p.stride() and g.dtype == p.dtype else torch.empty_like(p).copy_(g) for g, p in pairs
        ]
        if self._scale != 1.0:
            same = list(torch._foreach_div(same, self._scale))
        if not self._converts:
            self._update(same, *self._kept.values())
        else:
            rows = [[each.to(g.dtype) for each, g in zip(row, same, strict=True)] for row in self._kept.values()]
            self._update(same, *rows)
            for kept, row in zip(self._kept.values(), rows, strict=True):
                torch._foreach_copy_(kept, row)
        if self._updated is not self.parameters:
            torch._foreach_copy_(self.parameters, self._updated)

    def resume(self, steps: int) -> None:
        """Continue after ``steps`` steps; the state tensors are loaded separately."""
        for count in self._steps:
            count.fill_(steps)

    @abstractmethod
    def _names(self, spec: OptimizerSpec) -> tuple[str, ...]:
        """Return the names of the state tensors, one for each parameter."""

    @abstractmethod
    def _update(self, gradients: list[Tensor], *state: list[Tensor]) -> None:
        """Update what is updated, and the state, in place."""


class _Sgd(Optimizer):
    def _names(self, spec: OptimizerSpec) -> tuple[str, ...]:
        return ("momentum",) if spec.momentum else ()

    def _update(self, gradients: list[Tensor], *state: list[Tensor]) -> None:
        torch._fused_sgd_(
            self._updated,
            gradients,
            state[0] if state else [],
            weight_decay=self.spec.weight_decay,
            momentum=self.spec.momentum,
            lr=self.spec.learning_rate,
            dampening=0.0,
            nesterov=False,
            maximize=False,
            is_first_step=False,
        )


class _Adam(Optimizer):
    _counts_steps = True

    def _names(self, spec: OptimizerSpec) -> tuple[str, ...]:
        return ("mean", "square")

    def _update(self, gradients: list[Tensor], *state: list[Tensor]) -> None:
        torch._foreach_add_(self._steps, 1)
        mean, square = state
        torch._fused_adam_(
            self._updated,
            gradients,
            mean,
            square,
            [],
            self._steps,
            lr=self.spec.learning_rate,
            beta1=0.9,
            beta2=0.999,
            weight_decay=self.spec.weight_decay,
            eps=1e-8,
            amsgrad=False,
            maximize=False,
        )


def make_optimizer(
    spec: OptimizerSpec,
    parameters: Sequence[Tensor],
    *,
    masters: Sequence[Tensor] = (),
    state_type: torch.dtype | None = None,
    scale: float = 1.0,
) -> Optimizer:
    """Return the optimizer of these parameters, which it updates in place; the list may be empty.

    Arguments as of ``Optimizer``.
    """
    kind = _Sgd if spec.name == "sgd" else _Adam
    return kind(spec, parameters, masters=masters, state_type=state_type, scale=scale)
