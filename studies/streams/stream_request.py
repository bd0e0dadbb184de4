"""The request for a comparison of schedules on one device, whose fields the command line offers as options.

The module imports nothing heavy, so that the command line can read the fields.
"""

from dataclasses import dataclass
from typing import Literal

from groundwork.errors import ConfigError
from groundwork.requests import check_fields, option

OccupancyModel = Literal["geometry", "throughput"]
"""Model of the share of the device that a kernel takes, where it was not measured."""
SCHEDULES = ("one-stream", "layers", "asynchronous", "critical-path")
METHODS = ("levels", "queue", "synchronisation")
"""Ways to give priorities to the hardware: one level for each; or two levels, and among critical sub-tasks the order of
one queue, or waits between streams."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PathOptions:
    """Parameters of Algorithm 1 of TurboDL."""

    alpha: int | None = None
    """Distance of the priority of weight gradients below that of their layer path; None: one more than the largest
    distance between paths."""
    beta: int | None = None
    """Distance of the priority of bias gradients, likewise."""
    method: str = "auto"
    """One of ``METHODS``; ``auto``: levels where the device has enough, else whichever of the others is faster."""


def schedule_list(text: str) -> tuple[str, ...]:
    """Return the schedules of a list separated by commas."""
    return tuple(name.strip() for name in text.split(","))


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamRequest:
    """Device and schedules to compare.

    Raises:
        ConfigError: A schedule is unknown or named twice, a number is out of its range, or a choice is unknown.
    """

    device: str = option("p100", metavar="D", help="Compute profile, such as p100, or its file.")
    schedules: tuple[str, ...] = option(
        SCHEDULES,
        typed=",".join(SCHEDULES),
        metavar="S,S,...",
        parser=schedule_list,
        help="Schedules, separated by commas; gains are over the first.",
    )
    occupancy_model: OccupancyModel = option(
        "geometry",
        names=("--occupancy",),
        help="Share of the device that a kernel takes: the room of its blocks, or only what its speed needs.",
    )
    alpha: int | None = option(
        None, metavar="A", help="Distance of the priority of weight gradients below their layer path."
    )
    beta: int | None = option(
        None, metavar="B", help="Distance of the priority of bias gradients below their layer path."
    )
    method: Literal["auto", "levels", "queue", "synchronisation"] = option(
        "auto", help="Way to give priorities to the device; auto: its levels, or the faster of the other two."
    )
    hold_mib: float | None = option(
        None, metavar="MIB", help="Largest memory that delayed weight gradients may hold, in MiB."
    )
    """Bound in MiB on the memory that delayed weight gradients hold; None for no bound."""
    max_streams: int | None = option(
        None, low=1, metavar="N", help="Streams that may be used; by default those that the device runs at once."
    )
    """Streams that may be used; None for those of the device."""

    def __post_init__(self) -> None:
        if not self.schedules or len(set(self.schedules)) < len(self.schedules):
            listed = ", ".join(self.schedules)
            raise ConfigError(f"schedules must be different names of {', '.join(SCHEDULES)}, got {listed!r}")
        for name in self.schedules:
            if name not in SCHEDULES:
                raise ConfigError(f"schedules must be of {', '.join(SCHEDULES)}, got {name!r}")
        if self.hold_mib is not None and not self.hold_mib >= 0:  # refuses NaN too
            raise ConfigError(f"hold_mib must be >= 0, got {self.hold_mib:g}")
        check_fields(self)

    @property
    def paths(self) -> PathOptions:
        """Parameters of Algorithm 1."""
        return PathOptions(alpha=self.alpha, beta=self.beta, method=self.method)

    @property
    def hold_bytes(self) -> float | None:
        """Bound on the memory that delayed weight gradients hold, bytes; None for no bound."""
        return None if self.hold_mib is None else self.hold_mib * 2**20
