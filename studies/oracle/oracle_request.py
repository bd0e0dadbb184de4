"""The request for a table of the oracle: what the command line offers as options, and how Table 1 is interpreted.

The module imports nothing heavy, so that the command line can read the fields.
"""

import math
from dataclasses import dataclass
from typing import Literal

from groundwork.errors import ConfigError
from groundwork.requests import check_fields, option, positive_integer
from groundwork.suggestions import did_you_mean

DATASETS = {"imagenet": 1_281_167, "cifar10": 50_000, "cosmoflow": 99_456}
"""Training samples.

Sources: Russakovsky et al., "ImageNet large scale visual recognition challenge", IJCV 2015, Table 2; Krizhevsky,
"Learning multiple layers of features from tiny images", 2009; Mathuriya et al., "CosmoFlow", SC 2018: eight
sub-volumes of each of 12,632 simulations, without 1,600 for validation and test.
"""


def samples_of(dataset: str | int) -> int:
    """Return the number of samples of a data set.

    Args:
        dataset: A name of ``DATASETS``, or a number of samples >= 1 (also as text).

    Raises:
        ConfigError: Neither.
    """
    if isinstance(dataset, str) and dataset in DATASETS:
        return DATASETS[dataset]
    text = str(dataset)
    if (samples := positive_integer(text)) is not None:
        return samples
    hint = did_you_mean(text, DATASETS)
    raise ConfigError(f"dataset must be one of {', '.join(DATASETS)} or a number of samples >= 1, got {text!r}{hint}")


STRATEGIES = ("serial", "data", "spatial", "layer", "filter", "channel", "data+filter", "data+spatial")
"""Rows of Table 1, and data + spatial, which the paper measures."""


def device_counts(text: str) -> tuple[int, ...]:
    """Return the device counts of ``64``, of ``4,16,64`` or of ``16..1024``.

    A range doubles from its first number and ends with its last: ``16..100`` is 16, 32, 64, 100.

    Raises:
        ConfigError: The text has another form, or a number is below 1.
    """
    counts: set[int] = set()
    for word in text.split(","):
        ends = [positive_integer(end.strip()) for end in word.split("..")]
        low, high = ends[0], ends[-1]
        if len(ends) > 2 or low is None or high is None:
            raise ConfigError(f"gpus must look like 64, 4,16,64 or 16..1024 with whole numbers >= 1, got {text!r}")
        if low > high:
            raise ConfigError(f"gpus must rise from the first number to the last, got {word.strip()!r}")
        counts |= {high} | {low << k for k in range((high // low).bit_length())}
    return tuple(sorted(counts))


def strategy_list(text: str) -> tuple[str, ...]:
    """Return the strategies of a list separated by commas or semicolons, each once; none of an empty list.

    Raises:
        ConfigError: A name is unknown.
    """
    names = tuple(dict.fromkeys(name.strip() for name in text.replace(";", ",").split(","))) if text.strip() else ()
    for name in names:
        _check_strategy(name)
    return names


def _check_strategy(name: str) -> None:
    """Refuse a strategy that Table 1 does not have."""
    if name not in STRATEGIES:
        hint = did_you_mean(name, STRATEGIES)
        raise ConfigError(f"strategies must be among {', '.join(STRATEGIES)}, got {name!r}{hint}")


@dataclass(frozen=True, slots=True, kw_only=True)
class OracleRequest:
    """Strategies and device counts to project, with the parameters that neither the model nor the cluster gives.

    Raises:
        ConfigError: A number is out of its range, or a name is unknown.
    """

    dataset: str = option(metavar="D", help="Data set: imagenet, cifar10, cosmoflow, or a number of samples.")
    devices: tuple[int, ...] = option(
        device_counts("1..16"),
        typed="1..16",
        names=("--gpus",),
        metavar="P",
        parser=device_counts,
        help="Device counts: 64, a list 4,16,64, or 16..1024 by doubling.",
    )
    """Device counts, each at least 1 and at most the cluster's."""
    strategies: tuple[str, ...] = option(
        (), metavar="S,S,...", parser=strategy_list, help="Strategies to project; all if not given."
    )
    """Strategies, of ``STRATEGIES``; empty for all.  A strategy that is named must suit one of the device counts."""
    batch_per_device: int | None = option(
        None,
        names=("--batch-per-gpu",),
        low=1,
        metavar="B",
        help="Weak scaling: B samples a device for strategies that split samples.",
    )
    """Samples a device in weak scaling; the strategies that do not split samples keep it as their whole mini-batch, as
    in the paper's Figure 1.  None: strong scaling, with the mini-batch of the graph."""
    segments: int | None = option(
        None, low=1, metavar="S", help="Micro-batches of the pipeline; must divide its mini-batch."
    )
    """S, micro-batches of the pipeline.  None: the largest divisor of its batch that is at most 4 p; with that many
    the idle share is negligible (Huang et al., "GPipe", NeurIPS 2019, Sec. 2.3)."""
    group: int | None = option(
        None, low=1, metavar="P2", help="Devices of a group in hybrids; by default those of a node."
    )
    """p2, devices of one group of a hybrid.  None: those of a node, or the most that leave at least two groups."""
    memory_reuse: float | None = option(
        None, metavar="GAMMA", help="Share of the counted activations that is in memory at once."
    )
    """Gamma: share of the counted activations and their gradients that is in memory at once.  None: the share that
    ``planner.memory`` computes for the model on one device."""
    epochs: int = option(1, low=1, metavar="E", help="Epochs that the budget pays for.")
    budget_gpu_hours: float | None = option(None, metavar="H", help="Device hours for all epochs together.")
    """Device hours: a row is within the budget if its devices need no more for all epochs."""
    simulate: bool = option(
        False, names=("--simulate",), help="Also replay every row as a plan, with overlap and contention."
    )
    optimizer_copies: int = 1
    """Elements that the optimizer keeps for each parameter, beside the two of the table: 1 for momentum."""
    compute: Literal["parts", "ideal"] = "parts"
    """``parts``: FW, BW and WU are the profile's times of the part that a device holds.  ``ideal``: those of the
    whole mini-batch on one device over p, as the table prints them."""
    gradients: Literal["one", "layers"] = "one"
    """``one``: all gradients in one message, as the table has it; ``layers``: a message a buffer, as in programs."""
    activations: Literal["rings", "direct"] = "rings"
    """``rings``: as the table counts, p - 1 rounds for an all-gather and 2 (p - 1) for an all-reduce, and the messages
    to the two neighbours of a halo one after the other.  ``direct``: as in programs, all messages of a tensor at
    once, but Channel's sums by collectives of the cluster's library, and only what is needed."""
    pipeline: Literal["table", "stages"] = "table"
    """``table``: the slowest stage's times, p + S - 1 times, and transfers that nothing hides.  ``stages``: the stages
    that a plan has, each micro-batch as soon as it has arrived (``studies.oracle.pipelines``)."""

    def __post_init__(self) -> None:
        samples_of(self.dataset)
        if not self.devices or any(type(p) is not int or p < 1 for p in self.devices):
            raise ConfigError(f"devices must be whole numbers >= 1, got {list(self.devices)!r}")
        for name in self.strategies:
            _check_strategy(name)
        for name, low in _WHOLE_NUMBERS.items():
            value = getattr(self, name)
            if value is not None and (type(value) is not int or value < low):
                raise ConfigError(f"{name} must be a whole number >= {low}, got {value!r}")
        if self.memory_reuse is not None and not 0 <= self.memory_reuse < math.inf:
            raise ConfigError(f"memory_reuse (gamma) must be a finite number >= 0, got {self.memory_reuse!r}")
        if self.budget_gpu_hours is not None and not 0 < self.budget_gpu_hours < math.inf:
            raise ConfigError(f"budget_gpu_hours must be a finite number > 0, got {self.budget_gpu_hours!r}")
        check_fields(self)


_WHOLE_NUMBERS = {"batch_per_device": 1, "segments": 1, "group": 1, "epochs": 1, "optimizer_copies": 0}
"""Fields with whole numbers, and the least of each."""
