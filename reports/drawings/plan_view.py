"""View of a plan on its cluster, replayed once, from which all its pages are drawn."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

import pandas as pd

from groundwork.errors import ConfigError
from planner.cost.cost_model import CostModel
from planner.lowering.program import Program
from planner.plan.comparison import LayerResult
from planner.plan.pace import pace_of
from planner.plan.plan import Plan
from planner.plan.priced_strategy import layer_results
from planner.plan.training_rates import training_rates
from planner.simulation.memory_over_time import MemoryCurve, memory_curve
from planner.simulation.program_replay import Replay, replay
from planner.simulation.steady_path import CriticalPath, program_path
from reports.style.units import time_unit
from reports.tables.likely_text import expected_time, rate_tiles


@dataclass(frozen=True, kw_only=True)
class PlanView:
    """A plan with its program, and the results that follow from them, each computed when it is first used."""

    plan: Plan
    program: Program
    costs: CostModel
    """Cost model of the plan, on its graph and cluster."""
    additive_s: float
    """Additive cost (Eq. 1) with today's cost model."""
    notes: Sequence[str] = field(default=())
    measured: pd.DataFrame | None = None
    """Timeline of a measured iteration of the same program."""
    measured_s: float = float("nan")
    """Median time of a measured iteration."""

    def with_measurement(self, path: Path) -> "PlanView":
        """Return the view together with a measurement by ``orrery run``.

        Raises:
            ConfigError: ``path`` is not a measurement, or is one of another program.
        """
        from executor.measurement.measured_run import read_measurement

        measurement = read_measurement(path)
        tasks = measurement.start_s.shape[1]
        if tasks != self.program.size:
            raise ConfigError(
                f"measured must be of the same plan: {str(path)!r} has {tasks:,} tasks, the plan {self.program.size:,}"
            )
        timeline = measurement.timeline(self.program)
        return replace(self, measured=timeline, measured_s=measurement.iteration_s)

    @cached_property
    def replay(self) -> Replay:
        """Replay with overlap, contention, and what the plan was requested with above them."""
        return replay(self.program)

    @cached_property
    def path(self) -> CriticalPath:
        """Critical path of the steady iteration."""
        return program_path(self.replay)

    @cached_property
    def layers(self) -> tuple[LayerResult, ...]:
        """Configuration of every layer, with its terms of Eq. 1 and its bytes."""
        return layer_results(self.costs, self.plan.configurations, self.plan.micro_batching, self.program)

    @cached_property
    def memory(self) -> MemoryCurve:
        """Memory of every device over time."""
        return memory_curve(self.replay)

    @property
    def subject(self) -> str:
        """Model, cluster, strategy and size, for the line above a page's headline."""
        devices = len(self.program.cluster.devices)
        return (
            f"{self.plan.model} · {self.plan.cluster} · {self.plan.strategy} · {devices:,} devices"
            f" · batch {self.plan.batch:,}"
        )

    @property
    def headline(self) -> str:
        """Finding in one sentence: how long an iteration takes, and what sets its pace."""
        iteration_s, finding = self.replay.iteration_s, pace_of(self.replay, self.path).finding
        unit = time_unit([self.replay.expected_s])
        measured = f" ({unit.full(self.measured_s)} measured)" if self.measured is not None else ""
        return (
            f"{self.plan.model} with {self.plan.strategy} on {self.plan.cluster} takes "
            f"{expected_time(self.replay.expected_s, self.replay.likely_s, iteration_s)}{measured}: {finding}."
        )

    @property
    def tiles(self) -> list[tuple[str, str, str]]:
        """Key numbers: label, number, unit."""
        shares, simulated_s = self.replay.shares(), self.replay.iteration_s
        expected_s = self.replay.expected_s
        unit, rates = time_unit([simulated_s]), training_rates(self.costs, self.program, expected_s)
        tiles = [
            ("expected iteration", unit.text(expected_s), unit.name),
            *rate_tiles(rates, self.program.graph.samples_are),
            ("busiest device computes", f"{100 * shares.compute_s / simulated_s:.1f}", "%"),
            ("waits for communication", f"{100 * shares.exposed_communication_s / simulated_s:.1f}", "%"),
            ("simulated", unit.text(simulated_s), unit.name),
            ("additive (Eq. 1)", unit.text(self.additive_s), unit.name),
        ]
        if self.measured is not None:
            tiles.append(
                ("simulated over measured", f"{100 * (simulated_s / self.measured_s - 1):+.1f}".replace("-", "−"), "%")
            )
        return tiles
