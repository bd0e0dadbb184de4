"""Requests to measure schedules of sub-tasks, on the cores of this machine or on a CUDA device, and their results."""

from dataclasses import dataclass

import numpy as np

from executor.streams.threads import StepTimes
from groundwork.errors import ConfigError
from groundwork.requests import option
from studies.streams.decomposition import Decomposed
from studies.streams.stream_plan import StreamPlan

MEASURED_SCHEDULES = ("one-stream", "layers", "asynchronous", "critical-path")
"""Schedules that are measured if none are named; the first is the one that the others are compared with."""
ROUNDS = 5
"""Rounds on cores where none are given."""


def _check_rounds(rounds: int | None) -> None:
    if rounds is not None and rounds < 1:
        raise ConfigError(f"rounds must be >= 1, got {rounds}")


@dataclass(frozen=True, slots=True, kw_only=True)
class CoreStreamsRequest:
    """Cores and rounds with which schedules are measured on threads of this machine."""

    cores: int | None = option(None, low=1, metavar="K", help="With --run: cores to use; all if not given.")
    critical_cores: int | None = option(
        None, low=1, metavar="K", help="With --run: cores of a critical sub-task; half of the cores if not given."
    )
    """Cores of a critical sub-task, from 1 to ``cores`` - 1; other sub-tasks of the backward pass take the rest."""
    rounds: int | None = option(
        None, low=1, metavar="R", help="With --run: measured steps of each schedule; 5 if not given."
    )
    """One more step of each schedule is not counted."""

    def __post_init__(self) -> None:
        _check_rounds(self.rounds)

    @property
    def counted_rounds(self) -> int:
        """Measured steps of each schedule."""
        return ROUNDS if self.rounds is None else self.rounds


@dataclass(frozen=True, slots=True, kw_only=True)
class CudaStreamsRequest:
    """Schedules to measure on the streams of a CUDA device, and the settings to measure them with."""

    profile: str
    """Compute profile of the device, whose ``launch`` section gives occupancies and priorities."""
    rounds: int = 20
    """Measured steps of each schedule; three more are not counted."""
    schedules: tuple[str, ...] = MEASURED_SCHEDULES
    """Schedules to measure; gains are over the first."""
    graphs: bool = False
    """Replay each step as a CUDA graph; gains are then over a graph of the first schedule."""
    occupancy: str = "geometry"
    """Model of what a kernel occupies, ``geometry`` or ``throughput``."""
    seed: int = 0
    device: str = "cuda"

    def __post_init__(self) -> None:
        _check_rounds(self.rounds)


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
