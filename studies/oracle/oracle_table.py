"""What the oracle answers: a row for each strategy and number of devices, limits, winners, alpha and beta."""

import math
from dataclasses import asdict, dataclass, field
from typing import Any

import pandas as pd

from hwprofiles import HOUR_S

__all__ = ["Booking", "Limit", "OracleRow", "OracleTable", "Simulated", "WireRow"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Limit:
    """How far a strategy scales."""

    strategy: str
    devices: int
    """Most devices by Table 1."""
    reason: str
    """Which rule binds, and by which layer."""
    refused: dict[int, str]
    """Numbers of devices that were asked for and cannot be had, with the reason."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WireRow:
    """Alpha and beta of one level of the cluster, as the closed forms take them."""

    level: str
    alpha_s: float
    """For a message of 1 MiB."""
    beta_s_per_byte: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Simulated:
    """The same strategy as a plan, replayed with overlap and contention; times are 0 where there is no plan."""

    plan: str
    """The strategy of the plan: its name, or degrees such as ``data=4,filter=16``."""
    refused: str = ""
    """Why there is no plan; empty where there is one."""
    iteration_s: float = 0.0
    """In the steady state: the sum of the next three, which are of the device that computes longest."""
    compute_s: float = 0.0
    exposed_communication_s: float = 0.0
    """Communication that no arithmetic of the device covers."""
    idle_s: float = 0.0
    """Waiting for others."""
    epoch_s: float = 0.0
    memory_bytes: float = 0.0
    """Peak of the fullest device over the replay."""
    fits: bool = False
    tasks: int = 0
    """Of an iteration."""

    @property
    def waits_s(self) -> float:
        """What is not arithmetic of the device that computes longest."""
        return self.exposed_communication_s + self.idle_s


@dataclass(frozen=True, slots=True, kw_only=True)
class OracleRow:
    """One strategy on one number of devices."""

    strategy: str
    devices: int
    degrees: str
    """Such as ``4 x 16`` for 4 groups of 16; the grid of positions; or the segments of a pipeline."""
    batch: int
    """Samples of a mini-batch, all devices."""
    forward_backward_s: float
    update_s: float
    gradient_exchange_s: float
    activations_s: float
    halo_s: float
    pipeline_s: float
    """The four parts of ``communication_s``: gradients, gathered or summed activations, halos, between stages."""
    compute_s: float
    communication_s: float
    iteration_s: float
    """The sum of the two: nothing overlaps."""
    epoch_s: float
    """D/B iterations."""
    samples_per_s: float
    memory_bytes: float
    """Of the fullest device."""
    fits: bool
    limit: int
    limit_reason: str
    gpu_hours: float
    """Device hours of all epochs."""
    within_budget: bool
    simulated: Simulated | None = None
    """The second answer, where it was asked for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Booking:
    """Devices, and for how long."""

    strategy: str
    devices: int
    time_s: float
    """Of all epochs."""
    gpu_hours: float
    simulated: bool
    """Whether by the simulation; else by the closed form."""

    @classmethod
    def of(cls, row: OracleRow, epochs: int) -> "Booking | None":
        """What a row asks for; None where it does not fit or has no plan."""
        known = row.simulated
        if not (known.fits if known else row.fits):
            return None
        time_s = epochs * (known.epoch_s if known else row.epoch_s)
        return cls(
            strategy=row.strategy, devices=row.devices, time_s=time_s, gpu_hours=row.devices * time_s / HOUR_S,
            simulated=known is not None,
        )  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class OracleTable:
    """All rows of one question."""

    model: str
    cluster: str
    dataset: str
    samples: int
    scaling: str
    """``weak``: strategies that split samples take a batch per device; ``strong``: one batch, whatever the devices."""
    batch: int
    """Per device if weak."""
    epochs: int
    budget_gpu_hours: float | None
    gamma: float
    delta_bytes: int
    device_memory_bytes: float
    wires: tuple[WireRow, ...]
    rows: tuple[OracleRow, ...]
    limits: tuple[Limit, ...]
    winners: dict[int, str]
    """For every number of devices the strategy of the shortest epoch among those that fit; none where none does."""
    notes: tuple[str, ...]
    simulated_winners: dict[int, str] = field(default_factory=dict)
    """As ``winners``, by the simulation; empty where none was asked for."""

    def to_frame(self) -> pd.DataFrame:
        """One row a strategy and number of devices; what was simulated beside as columns ``simulated.NAME``."""
        rows = []
        for each in self.rows:
            row = asdict(each)
            simulated = row.pop("simulated")
            rows.append(row | {f"simulated.{name}": value for name, value in (simulated or {}).items()})
        return pd.DataFrame(rows)

    @property
    def simulates(self) -> bool:
        """Whether rows have been simulated."""
        return any(row.simulated for row in self.rows)

    @property
    def booking(self) -> Booking | None:
        """What to book for all epochs: the shortest that fits in memory and in the budget, simulated if that was asked.

        None where nothing does.
        """
        rows = [Booking.of(row, self.epochs) for row in self.rows]
        budget = self.budget_gpu_hours if self.budget_gpu_hours is not None else math.inf
        fitting = [row for row in rows if row is not None and row.gpu_hours <= budget]
        return min(fitting, key=lambda row: (row.time_s, row.devices), default=None)

    @property
    def counts(self) -> tuple[int, ...]:
        """Numbers of devices that some row has."""
        return tuple(sorted({row.devices for row in self.rows}))

    @property
    def affordable(self) -> OracleRow | None:
        """The shortest epoch that fits in memory and in the budget."""
        rows = [row for row in self.rows if row.fits and row.within_budget]
        return min(rows, key=lambda row: (row.epoch_s, row.devices), default=None)

    @property
    def fastest(self) -> OracleRow | None:
        """The shortest epoch that fits in memory."""
        return min((row for row in self.rows if row.fits), key=lambda row: (row.epoch_s, row.devices), default=None)

    def row(self, strategy: str, devices: int) -> OracleRow | None:
        """The row of a strategy on a number of devices; None where there is none."""
        return next((row for row in self.rows if (row.strategy, row.devices) == (strategy, devices)), None)

    def values(self) -> dict[str, Any]:
        """Everything as plain values."""
        chosen = {"affordable": self.affordable, "booking": self.booking}
        return {**asdict(self), **{name: asdict(value) if value else None for name, value in chosen.items()}}
