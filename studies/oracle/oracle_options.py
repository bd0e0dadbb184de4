"""What may be asked of the oracle, and how Table 1 is read where it leaves a choice."""

import difflib
import math
from dataclasses import dataclass
from typing import Literal

from hwprofiles import ConfigError

__all__ = ["STRATEGIES", "OracleOptions", "check_oracle_strategy", "device_counts", "strategy_list"]

STRATEGIES = ("serial", "data", "spatial", "layer", "filter", "channel", "data+filter", "data+spatial")
"""Rows of Table 1, and data + spatial, which the paper measures."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OracleOptions:
    """Parameters of the closed forms that neither the model nor the cluster gives.

    Raises:
        ConfigError: A number is out of its range.
    """

    segments: int | None = None
    """S, micro-batches of the pipeline.  None: the largest divisor of its batch that is at most 4 p; with that many
    the idle share is negligible (Huang et al., "GPipe", NeurIPS 2019, Sec. 2.3)."""
    group: int | None = None
    """p2, devices of one group of a hybrid.  None: a node's, or the most that leave at least two groups."""
    memory_reuse: float | None = None
    """Gamma: share of the counted activations and their gradients that is alive at once.  None: as
    ``planner.memory.peak_memory`` finds it for the model on one device."""
    optimizer_copies: int = 1
    """Numbers that the optimizer keeps for each trained one, beside the two of the table: 1 for momentum."""
    compute: Literal["parts", "ideal"] = "parts"
    """``parts``: FW, BW and WU are the profile's times of the part that a device holds.  ``ideal``: those of the
    whole mini-batch on one device over p, as the table prints them."""
    gradients: Literal["one", "layers"] = "one"
    """``one``: all gradients in one message, as the table has it; ``layers``: a message a buffer, as in programs."""
    activations: Literal["rings", "direct"] = "rings"
    """``rings``: as the table counts, p - 1 rounds for a gather and 2 (p - 1) for a sum, two neighbours of a halo one
    after the other.  ``direct``: as in programs, all messages of a tensor at once, and only what is needed back."""
    pipeline: Literal["table", "stages"] = "table"
    """``table``: the slowest stage's times, p + S - 1 times, and transfers that nothing hides.  ``stages``: the stages
    that a plan has, each micro-batch as soon as it has come (``studies.oracle.pipelines``)."""

    def __post_init__(self) -> None:
        for name in ("segments", "group"):
            value = getattr(self, name)
            if value is not None and (type(value) is not int or value < 1):
                raise ConfigError(f"{name} must be a whole number >= 1, got {value!r}")
        if self.memory_reuse is not None and not 0 <= self.memory_reuse < math.inf:
            raise ConfigError(f"memory_reuse (gamma) must be a finite number >= 0, got {self.memory_reuse!r}")
        if type(self.optimizer_copies) is not int or self.optimizer_copies < 0:
            raise ConfigError(f"optimizer_copies must be a whole number >= 0, got {self.optimizer_copies!r}")
        for name, known in _CHOICES.items():
            if getattr(self, name) not in known:
                raise ConfigError(f"{name} must be {' or '.join(known)}, got {getattr(self, name)!r}")


_CHOICES = {
    "compute": ("parts", "ideal"),
    "gradients": ("one", "layers"),
    "activations": ("rings", "direct"),
    "pipeline": ("table", "stages"),
}


def device_counts(text: str) -> tuple[int, ...]:
    """Numbers of devices: ``64``, ``4,16,64``, or ``16..1024``, which doubles from the first and ends with the last.

    Raises:
        ConfigError: The text has another form, or a number is below 1.
    """
    counts: set[int] = set()
    for word in text.split(","):
        ends = [end.strip() for end in word.split("..")]
        if len(ends) > 2 or not all(end.isascii() and end.isdigit() and int(end) > 0 for end in ends):
            raise ConfigError(f"gpus must look like 64, 4,16,64 or 16..1024 with whole numbers >= 1, got {text!r}")
        low, high = int(ends[0]), int(ends[-1])
        if low > high:
            raise ConfigError(f"gpus must rise from the first number to the last, got {word.strip()!r}")
        counts |= {high} | {low << k for k in range((high // low).bit_length())}
    return tuple(sorted(counts))


def strategy_list(text: str) -> tuple[str, ...] | None:
    """Strategies of a list separated by commas; None for an empty one.

    Raises:
        ConfigError: A name is unknown.
    """
    names = tuple(dict.fromkeys(name.strip() for name in text.split(","))) if text.strip() else ()
    for name in names:
        check_oracle_strategy(name)
    return names or None


def check_oracle_strategy(name: str) -> None:
    """Refuse a strategy that Table 1 does not have."""
    if name not in STRATEGIES:
        near = difflib.get_close_matches(name, STRATEGIES, n=1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        raise ConfigError(f"strategies must be among {', '.join(STRATEGIES)}, got {name!r}{hint}")
