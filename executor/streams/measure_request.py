"""Requests to measure schedules of sub-tasks, on the cores of this machine or on a CUDA device."""

from dataclasses import dataclass

from groundwork.errors import ConfigError
from groundwork.requests import option

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
