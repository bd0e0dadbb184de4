"""Optimizer settings of a run, in a module without torch, so that the launcher of ranks need not load it."""

import math
from dataclasses import dataclass

from groundwork.errors import ConfigError

OPTIMIZER_NAMES = ("sgd", "adam")


@dataclass(frozen=True, slots=True, kw_only=True)
class OptimizerSpec:
    """Name and settings of an optimizer; the update rules are those of ``torch.optim``.

    Adam runs with betas of 0.9 and 0.999 and eps of 1e-8, and does not read ``momentum``.
    """

    name: str = "sgd"
    """One of ``OPTIMIZER_NAMES``."""
    learning_rate: float = 0.01
    momentum: float = 0.9
    """Share of the last step that the next one keeps, in [0, 1)."""
    weight_decay: float = 0.0
    """Factor of the parameter that is added to its gradient, >= 0."""

    def __post_init__(self) -> None:
        if self.name not in OPTIMIZER_NAMES:
            raise ConfigError(f"optimizer.name must be one of {', '.join(OPTIMIZER_NAMES)}, got {self.name!r}")
        if not 0 < self.learning_rate < math.inf:  # also rejects NaN
            raise ConfigError(f"optimizer.learning_rate must be finite and > 0, got {self.learning_rate!r}")
        if not 0 <= self.momentum < 1:
            raise ConfigError(f"optimizer.momentum must be >= 0 and < 1, got {self.momentum!r}")
        if not 0 <= self.weight_decay < math.inf:
            raise ConfigError(f"optimizer.weight_decay must be finite and >= 0, got {self.weight_decay!r}")
