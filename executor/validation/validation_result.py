"""Result of a validation: predictions and measurements of every strategy, joined by task."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import pandas as pd

NOISY = 0.25
"""Uncertainty of a median from which on a measurement is too noisy to judge a prediction by."""


def relative_error(predicted: float, measured: float) -> float:
    """Return the error of a prediction as a share of the measurement; NaN where the measurement is 0."""
    return predicted / measured - 1 if measured else float("nan")


@dataclass(frozen=True, slots=True, kw_only=True)
class StrategyValidation:
    """Predictions and measurements of one strategy."""

    name: str
    ladder_s: dict[str, float]
    """Iteration time under each execution model, in order: additive, overlap, contention; then the measured one."""
    iterations_s: tuple[float, ...]
    rounds: int
    quartiles_s: tuple[float, float]
    interval_s: tuple[float, float]
    """Interval that holds the median with 95 % confidence, by the medians of the turns; infinite below 3 turns."""
    losses: tuple[float, ...]
    """Losses of the first steps, from the same initial parameters and data for every strategy; NaN where waits stood in
    for arithmetic."""
    kinds: pd.DataFrame
    """One row a kind of task: kind, tasks, predicted_s, measured_s, error.  Sums of durations over all devices; of
    collectives the time in which any runs."""
    layers: pd.DataFrame
    """One row a layer: layer, then predicted_s, measured_s and error of its arithmetic (``compute_``) and of the
    transfers and gradient synchronisation that it owns (``communication_``); sums of durations, over all devices."""
    edges: pd.DataFrame
    """One row a tensor that crosses devices: producer, consumer, direction, messages, predicted_bytes,
    measured_bytes."""
    tasks: pd.DataFrame
    """One row a task: id, name, kind, layer, device, predicted_s, measured_s, error (durations; the measured one is
    the median), predicted_end_s, measured_end_s (from the first task of the iteration)."""
    simulated: pd.DataFrame
    """Timeline of a steady simulated iteration, as ``planner.simulation.program_replay.timeline_rows`` makes it."""
    measured: pd.DataFrame
    """Timeline of the measured iteration whose time is nearest the median, in the same form."""
    collective_devices: Mapping[int, tuple[int, ...]] = field(default_factory=dict)
    """Devices that take part in each collective of the timelines, by its id."""
    rounds_s: tuple[float, ...] = ()
    """Median of each turn; those of one place in different strategies ran in one round."""
    plain: str = ""
    """Name of the same strategy as it is, where this one compresses or has another order of synchronisation; else
    empty."""
    compressed: str = ""

    @property
    def predicted_s(self) -> float:
        """Iteration time of the full simulation, with contention."""
        return self.ladder_s["contention"]

    @property
    def measured_s(self) -> float:
        """Median time of an iteration."""
        return self.ladder_s["measured"]

    @property
    def error(self) -> float:
        """Error of the prediction, as a share of the measurement."""
        return relative_error(self.predicted_s, self.measured_s)

    @property
    def uncertainty(self) -> float:
        """Half the interval that holds the median, as a share of it; infinite where it is not known."""
        return (self.interval_s[1] - self.interval_s[0]) / 2 / self.measured_s if self.measured_s else float("inf")

    @property
    def noisy(self) -> bool:
        """True where the median is known, but so badly that no error of a prediction can be told from it."""
        return NOISY < self.uncertainty < float("inf")

    @property
    def bytes_equal(self) -> bool:
        """True where every tensor moved exactly the bytes that the cost model prices."""
        return bool((self.edges["predicted_bytes"] == self.edges["measured_bytes"]).all())


@dataclass(frozen=True, slots=True, kw_only=True)
class Speedup:
    """Speedup by compression, or by an order of synchronisation: time without it over time with it."""

    name: str
    plain: str
    predicted: float
    measured: float

    @property
    def error(self) -> float:
        """Error of the prediction, as a share of the measurement."""
        return relative_error(self.predicted, self.measured)


@dataclass(frozen=True, slots=True, kw_only=True)
class Validation:
    """Predictions and measurements of the strategies of one model on one cluster."""

    model: str
    batch: int
    cluster: str
    devices: tuple[str, ...]
    stand_in: bool
    """True where waits stood in for arithmetic."""
    stand_in_compression: bool = False
    """True where they stood in for compression and decompression too."""
    lab: bool
    """True where messages crossed the network of a lab."""
    strategies: tuple[StrategyValidation, ...]
    refused: dict[str, str] = field(default_factory=dict)
    """Strategies that could not run, with the reason."""
    environment: dict[str, str] = field(default_factory=dict)
    """Date, device, system and software of the measurement."""
    notes: tuple[str, ...] = ()
    """Assumptions of the plans, as sentences."""

    def to_frame(self) -> pd.DataFrame:
        """Return one row a strategy: iteration times as ``ladder.NAME_s``, quartiles, the error of the simulation."""
        rows = [
            {"name": each.name, "iterations": len(each.iterations_s), "error": each.error}
            | {"first_quartile_s": each.quartiles_s[0], "third_quartile_s": each.quartiles_s[1]}
            | {f"ladder.{name}_s": time for name, time in each.ladder_s.items()}
            for each in self.strategies
        ]
        return pd.DataFrame(rows)

    @property
    def rank_correlation(self) -> float:
        """Spearman's rank correlation between predicted and measured times; NaN for fewer than two strategies."""
        predicted, measured = (
            pd.Series([getattr(s, key) for s in self.strategies]).rank() for key in ("predicted_s", "measured_s")
        )
        return float(predicted.corr(measured)) if len(self.strategies) > 1 else float("nan")

    @property
    def order_right(self) -> bool:
        """True where the prediction puts the strategies in their measured order."""
        predicted, measured = (
            sorted(self.strategies, key=lambda s: getattr(s, key)) for key in ("predicted_s", "measured_s")
        )
        return [s.name for s in predicted] == [s.name for s in measured]

    @property
    def speedups(self) -> tuple[Speedup, ...]:
        """Speedups of every strategy that has a plain one beside it."""
        by_name = {s.name: s for s in self.strategies}
        pairs = [(s, by_name[s.plain]) for s in self.strategies if s.plain in by_name]
        return tuple(
            Speedup(
                name=changed.name,
                plain=plain.name,
                predicted=plain.predicted_s / changed.predicted_s,
                measured=plain.measured_s / changed.measured_s,
            )
            for changed, plain in pairs
        )

    @property
    def worst(self) -> StrategyValidation:
        """Strategy with the largest error of the prediction."""
        return max(self.strategies, key=lambda s: abs(s.error))

    @property
    def loss_difference(self) -> float:
        """Largest relative difference in the loss of one step between strategies that compress nothing.

        NaN where no loss is computed.
        """
        losses = pd.DataFrame([s.losses for s in self.strategies if not s.compressed])
        return float(((losses.max() - losses.min()) / losses.abs().max()).max(skipna=False))
