"""Request for a validation: the strategies to compare, on what, and how long each is run."""

from dataclasses import dataclass, field
from typing import Literal

from executor.runtime.optimizer_spec import OptimizerSpec
from executor.runtime.run_options import RunOptions, typed_data_types, typed_strategies, typed_words
from groundwork.errors import ConfigError
from groundwork.requests import option, whole_number
from planner.plan.plan_options import SyncAlgorithm


def check_bounds(**bounds: float) -> None:
    """Refuse bounds that are not positive, by name.

    Raises:
        ConfigError: A bound is not positive.
    """
    for name, value in bounds.items():
        if not value > 0:  # NaN neither
            raise ConfigError(f"{name} must be > 0, got {value}")


@dataclass(frozen=True, slots=True, kw_only=True)
class ValidationRequest:
    """Strategies to predict and to run, on one cluster or on this machine."""

    batch: int = option(parser=whole_number, metavar="N", help="Samples in a mini-batch over all devices.")
    processes: int | None = option(
        None, low=1, metavar="N", help="Ranks to start; as many as the lab has hosts if not given."
    )
    """None is for the command line, which counts the hosts of a lab."""
    strategies: tuple[str, ...] = option(
        ("data", "model", "owt", "spatial", "layerwise"),
        parser=typed_strategies,
        typed="data,model,owt,spatial,layerwise",
        metavar="S,S,...",
        help="Strategies, or strategy files, separated by commas.",
    )
    cluster: str | None = option(
        None,
        metavar="C",
        help="Cluster, of the catalogue or in a file, to predict with; this machine is probed if not given.",
    )
    """Cluster to predict with; in a lab, the description of its cluster, whose rates are those of the wire."""
    stand_in_compute: bool = option(
        False, names=("--stand-in-compute",), help="Wait for the predicted time of each task instead of computing it."
    )
    stand_in_compression: bool = option(
        False,
        names=("--stand-in-compression",),
        help="With --stand-in-compute: wait also instead of compressing and decompressing.",
    )
    gradient_sync: SyncAlgorithm = option("ring", help="All-reduce, or parameter server, that synchronises gradients.")
    gradient_sync_orders: tuple[str, ...] = option(
        (),
        parser=typed_words,
        names=("--gradient-sync-order",),
        metavar="O,O,...",
        help="Run every strategy also with gradients synchronised in these orders: end, ready, reuse.",
    )
    compress_gradients: tuple[str, ...] = option(
        (),
        parser=typed_data_types,
        metavar="T,T,...",
        help="Run every strategy also with gradients compressed to each of these data types.",
    )
    compress_activations: tuple[str, ...] = option(
        (),
        parser=typed_data_types,
        metavar="T,T,...",
        help="Run every strategy also with tensors between layers, and their gradients, compressed to these types.",
    )
    rounds: int = option(12, low=1, metavar="R", help="Largest number of turns of each strategy.")
    turn_s: float = 2.0
    """Length of the counted iterations of one strategy in one turn, about, in seconds."""
    spread: float = option(
        0.02, metavar="S", help="Turns end when the median of every strategy is known to this share of itself."
    )
    budget_s: float = option(300.0, names=("--budget",), metavar="S", help="No turns begin after this many seconds.")
    device: Literal["auto", "cpu", "cuda"] = option(
        "auto", help="Device of each rank; auto takes a GPU for each rank where there are enough, else processors."
    )
    threads: int = option(
        0, low=0, metavar="T", help="Threads that each rank computes with; 0 shares the machine's cores equally."
    )
    seed: int = option(
        0, metavar="S", help="Seed of the initial parameters, the data, dropout and the order of the turns."
    )
    optimizer: OptimizerSpec = field(default_factory=OptimizerSpec)

    def __post_init__(self) -> None:
        check_bounds(rounds=self.rounds, turn_s=self.turn_s, spread=self.spread, budget_s=self.budget_s)
        if self.stand_in_compression and not self.stand_in_compute:
            raise ConfigError(
                "stand_in_compression must be left out without stand_in_compute: arithmetic is then real, too"
            )

    @property
    def run_options(self) -> RunOptions:
        """Options of each plan's run; plan, steps, folder and the size of joined buffers are set per run."""
        return RunOptions(
            seed=self.seed,
            optimizer=self.optimizer,
            stand_in=self.stand_in_compute,
            real_compression=self.stand_in_compute and not self.stand_in_compression,
            device=self.device,
            threads=self.threads,
        )
