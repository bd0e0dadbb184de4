"""Results of schedules that were measured on this machine, beside their predictions."""

from dataclasses import dataclass

import numpy as np

from executor.streams.threads import StepTimes
from studies.streams.decomposition import Decomposed
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
