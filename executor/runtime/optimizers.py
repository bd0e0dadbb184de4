"""Optimizers of one layer on one rank: torch's fused kernels on the slices of parameters that the rank holds."""

from abc import ABC, abstractmethod
from collections.abc import Sequence

import torch
from torch import Tensor

from executor.runtime.optimizer_spec import OptimizerSpec


class Optimizer(ABC):
    """An optimizer of a layer's parameters, with state that is split as they are.

    It calls the kernels without the hooks, checks and groups of ``torch.optim.Optimizer.step``: a step of a small layer
    on a CPU takes 6 instead of 35 us with SGD, 14 instead of 76 us with Adam.

    Args:
        spec: Name and settings.
        parameters: The slices that the rank holds; updated in place.
        names: Names of the state tensors, one for each parameter.
    """

    def __init__(self, spec: OptimizerSpec, parameters: Sequence[Tensor], names: Sequence[str]) -> None:
        self.spec = spec
        self.parameters = list(parameters)
        self.state = {name: [torch.zeros_like(parameter) for parameter in parameters] for name in names}
        """State tensors by name, one for each parameter, of its shape; a checkpoint is loaded into them."""
        self._steps: list[Tensor] = []
        """Number of steps taken, one tensor for each parameter, where the update rule depends on it."""

    def step(self, gradients: Sequence[Tensor]) -> None:
        """Update the parameters in place.

        Args:
            gradients: One for each parameter, of its shape, on its device, of any type; they are not written.
        """
        if not self.parameters:
            return
        pairs = zip(gradients, self.parameters, strict=True)
        # The fused kernels read memory in order, whatever the strides, and gradients of the parameters' type alone.
        self._update(
            [g if g.stride() == p.stride() and g.dtype == p.dtype else torch.empty_like(p).copy_(g) for g, p in pairs]
        )

    def resume(self, steps: int) -> None:
        """Continue after ``steps`` steps; the state tensors are loaded separately."""
        for count in self._steps:
            count.fill_(steps)

    @abstractmethod
    def _update(self, gradients: list[Tensor]) -> None:
        """Update the parameters and the state in place."""


class _Sgd(Optimizer):
    def __init__(self, spec: OptimizerSpec, parameters: Sequence[Tensor]) -> None:
        super().__init__(spec, parameters, ("momentum",) if spec.momentum else ())
        self._momentum = self.state.get("momentum", [])

    def _update(self, gradients: list[Tensor]) -> None:
        torch._fused_sgd_(
            self.parameters,
            gradients,
            self._momentum,
            weight_decay=self.spec.weight_decay,
            momentum=self.spec.momentum,
            lr=self.spec.learning_rate,
            dampening=0.0,
            nesterov=False,
            maximize=False,
            is_first_step=False,
        )


class _Adam(Optimizer):
    def __init__(self, spec: OptimizerSpec, parameters: Sequence[Tensor]) -> None:
        super().__init__(spec, parameters, ("mean", "square"))
        self._steps = [torch.zeros((), device=parameter.device) for parameter in parameters]

    def _update(self, gradients: list[Tensor]) -> None:
        torch._foreach_add_(self._steps, 1)
        torch._fused_adam_(
            self.parameters,
            gradients,
            self.state["mean"],
            self.state["square"],
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


def make_optimizer(spec: OptimizerSpec, parameters: Sequence[Tensor]) -> Optimizer:
    """Return the optimizer of these parameters, which it updates in place; the list may be empty."""
    return _Sgd(spec, parameters) if spec.name == "sgd" else _Adam(spec, parameters)
