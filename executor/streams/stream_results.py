"""Results of schedules that were measured on this machine, beside their predictions."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from executor.streams.threads import StepTimes
from groundwork.array_types import Floats
from planner.lowering.program import KINDS, Program
from studies.streams.decomposition import Decomposed
from studies.streams.delayed_memory import held_bytes
from studies.streams.stream_plan import StreamPlan


@dataclass(frozen=True, kw_only=True)
class MeasuredSchedule:
    """Measurement and prediction of one schedule."""

    name: str
    step_s: float
    quartiles_s: tuple[float, float]
    gains: tuple[float, ...]
    """Time of the first schedule's step over that of this one, by round."""
    predicted_s: float
    """Time simulated from single sub-tasks: median over the rounds, each with sub-tasks of its own."""
    errors: tuple[float, ...]
    """Relative error of the prediction by round, from sub-tasks and a step of the same round."""
    threads: tuple[int, int]
    """Cores of a critical sub-task of the backward pass, and of another."""
    held_bytes: float
    """Largest memory that delayed weight gradients held at once, in the round of the median, in bytes."""
    loss: float
    times: StepTimes
    """Times of the step in the round of the median."""
    work: Decomposed
    plan: StreamPlan

    @property
    def gain(self) -> float:
        """Median gain over the rounds."""
        return float(np.median(self.gains))

    @property
    def error(self) -> float:
        """Relative error of the prediction: median over the rounds."""
        return float(np.median(self.errors))


@dataclass(frozen=True, kw_only=True)
class MeasuredStreams:
    """Measured schedules of a network on one machine, the plain one first."""

    model: str
    batch: int
    cores: int
    rounds: int
    results: tuple[MeasuredSchedule, ...]

    def result(self, name: str) -> MeasuredSchedule:
        """Return the schedule of a name."""
        return next(row for row in self.results if row.name == name)


SubTaskTimes = dict[tuple[str, str], float]
"""Seconds of sub-tasks, by layer and kind of task."""


def median_times(program: Program, seconds: Sequence[Floats]) -> SubTaskTimes:
    """Return the median of each sub-task over several steps, of which each has the seconds of all tasks."""
    names = [layer.name for layer in program.graph.layers]
    keys = [(names[layer], KINDS[kind]) for layer, kind in zip(program.layer, program.kind, strict=True)]
    return dict(zip(keys, np.median(np.array(seconds), axis=0).tolist(), strict=True))


def measured_schedule(
    plan: StreamPlan,
    measured: Sequence[StepTimes],
    plain: Sequence[StepTimes],
    *,
    predicted_s: Sequence[float],
    work: Decomposed,
    threads: tuple[int, int],
    loss: float,
) -> MeasuredSchedule:
    """Return what was measured of a schedule.

    Args:
        plan: The schedule.
        measured: Its steps, one a round.
        plain: Those of the first schedule in the same rounds.
        predicted_s: Predicted time of its step, for each round.
        work: Sub-tasks that the first prediction is from.
        threads: Cores of a critical sub-task, and of another.
        loss: Loss of the last step.
    """
    steps = np.array([times.step_s for times in measured])
    middle = measured[int(np.argsort(steps)[(len(steps) - 1) // 2])]
    low, median, high = np.quantile(steps, [0.25, 0.5, 0.75]).tolist()
    return MeasuredSchedule(
        name=plan.name,
        step_s=median,
        quartiles_s=(low, high),
        gains=tuple((np.array([times.step_s for times in plain]) / steps).tolist()),
        predicted_s=float(np.median(predicted_s)),
        errors=tuple((np.array(predicted_s) / steps - 1).tolist()),
        threads=threads,
        held_bytes=held_bytes(work.program, middle.end_s),
        loss=loss,
        times=middle,
        work=work,
        plan=plan,
    )
