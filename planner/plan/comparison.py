"""Results of a comparison of strategies: the data behind the table and the page."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from html import escape
from typing import TYPE_CHECKING

from planner.expected.likely_times import TimeParts, expected_s, likely_s
from planner.plan.training_rates import TrainingRates
from planner.simulation.link_use import LinkUse

if TYPE_CHECKING:
    import pandas as pd

    from planner.plan.lowered_plan import PlannedStrategy
    from planner.plan.pace import Pace


_NUMBERS = (
    "name",
    "additive_s",
    "simulated_s",
    "expected_s",
    "samples_per_s",
    "speedup",
    "moved_bytes",
    "compute_s",
    "exposed_communication_s",
    "idle_s",
    "lower_bound_s",
    "tasks",
)


def _empty_frame() -> "pd.DataFrame":
    """Return a frame without rows; pandas is loaded only when one is needed."""
    import pandas as pd

    return pd.DataFrame()


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerResult:
    """One layer under one strategy."""

    name: str
    kind: str
    output: str
    """Printed shape, such as ``512 x 64 x 224 x 224``."""
    degrees: dict[str, int]
    """Degree of parallelism in each parallelizable dimension."""
    devices: tuple[int, ...]
    compute_s: float
    gradient_sync_s: float
    transfer_s: float
    """The three terms of Eq. 1; the transfer is that of the layer's inputs."""
    moved_bytes: float
    gradient_sync: str = ""
    """Algorithm that synchronises the gradients; with ``auto`` also the time of the next best one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StrategyResult:
    """One strategy, priced and replayed."""

    name: str
    ladder_s: dict[str, float]
    """Iteration time under each execution model, in order: additive, overlap, contention; with micro-batches these
    three take the whole batch at once, and ``pipelining`` follows."""
    additive_s: float
    """Iteration time by Eq. 1, in which nothing overlaps."""
    simulated_s: float
    """Steady-state iteration time with overlap and contention."""
    rates: TrainingRates
    """Samples and tokens a second, utilisation and device hours, by the expected time."""
    speedup: float
    """Expected time of the whole batch on one device over ``expected_s``."""
    moved_bytes: float
    """Bytes that leave a device in one iteration: transfers and gradient synchronisation."""
    compute_s: float
    """Part of ``simulated_s`` in which the busiest device computes."""
    exposed_communication_s: float
    """Part of ``simulated_s`` in which that device waits for communication that no arithmetic on it hides."""
    idle_s: float
    """Rest of ``simulated_s``, which the three add up to."""
    peak_memory_bytes: tuple[float, ...]
    """Peak memory of each device."""
    memory_by_kind_bytes: Mapping[str, float]
    """What the fullest device holds at its peak, by kind, as of ``planner.memory.peak_memory.peak_by_kind_bytes``."""
    lower_bound_s: float
    """Time of the busiest resource or of the longest path, which no schedule of these tasks can beat."""
    bound_reason: str
    engine_s: float
    tasks: int
    layers: tuple[LayerResult, ...]
    timeline: "pd.DataFrame"
    """One row for each task of one steady iteration: id, name, kind, device, peer, stream, layer, phase, iteration,
    sub_batch, start_s, end_s, bytes, origin; then the task whose end let it begin (``waited_for``, -1 if none in this
    iteration), when it could begin (``ready_s``) and how long it took to start up (``latency_s``)."""
    link_use: LinkUse
    collective_devices: Mapping[int, tuple[int, ...]] = field(default_factory=dict)
    """Devices that take part in each collective of the timeline, by its id."""
    alike: tuple[int, ...] = ()
    """Devices that do the same as each device, itself counted, of which the timeline has the tasks of the first; empty
    where all devices have tasks of their own."""
    pace: "Pace | None" = None
    """What sets the pace of the iteration, and how much of each resource's time is left."""
    planned: "PlannedStrategy" = field(repr=False)
    """The strategy as it was lowered."""
    time_parts: TimeParts
    """Shares of the iteration, from which its expected time and interval follow."""

    @property
    def samples_per_s(self) -> float:
        """Samples a second, by the expected time."""
        return self.rates.samples_per_s

    @property
    def expected_s(self) -> float:
        """Median of the iteration times that measurements suggest; rates and speedups are made from it."""
        return expected_s(self.time_parts)

    @property
    def likely_s(self) -> tuple[float, float] | None:
        """80 % interval about ``expected_s``; None where errors are not known."""
        return likely_s(self.time_parts)


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Strategies for one model, cluster and batch, side by side."""

    model: str
    cluster: str
    batch: int
    devices: tuple[str, ...]
    device_memory_bytes: tuple[float, ...]
    """What of each device's memory the tensors of a network can have."""
    samples_are: str = "images"
    """Word for the samples of the model."""
    one_device_s: float
    """Expected time of the whole batch on one device."""
    strategies: tuple[StrategyResult, ...]
    refused: dict[str, str] = field(default_factory=dict)
    """Reason why a strategy could not run, by its name."""
    winner: str = ""
    """Name of the strategy with the shortest expected iteration; ``layerwise`` where it ties."""
    rank_correlation: float = float("nan")
    """Spearman correlation of additive and simulated times over every strategy tried."""
    tried: "pd.DataFrame" = field(default_factory=_empty_frame)
    """Every strategy tried, random mixtures too: name, additive_s, simulated_s."""
    notes: tuple[str, ...] = ()

    def __repr__(self) -> str:
        names = ", ".join(result.name for result in self.strategies)
        return f"Comparison({self.model} on {self.cluster}, batch {self.batch}: {self.winner} is fastest of {names})"

    def _repr_html_(self) -> str:
        """Return the rows of ``to_frame`` as a table, for notebooks."""
        return f"<p>{escape(repr(self))}</p>{self.to_frame().to_html(index=False)}"

    def priced(self, price: float | None) -> "Comparison":
        """Return the comparison with the cost of every strategy.

        Args:
            price: Money for an hour of one device; None where it is not known.
        """
        return replace(self, strategies=tuple(replace(s, rates=s.rates.priced(price)) for s in self.strategies))

    def to_frame(self) -> "pd.DataFrame":
        """Return a row for each strategy: times, bytes, memory, and execution models as columns ``ladder.NAME_s``."""
        import pandas as pd

        rows = []
        for strategy in self.strategies:
            row = {each: getattr(strategy, each) for each in _NUMBERS}
            row |= {name: getattr(strategy.rates, name) for name in ("tokens_per_s", "mfu")}
            row["peak_memory_bytes"] = max(strategy.peak_memory_bytes)
            rows.append(row | {f"ladder.{model}_s": time for model, time in strategy.ladder_s.items()})
        return pd.DataFrame(rows)
