"""Table of the oracle: a row for each strategy and number of devices, limits, winners, alpha and beta."""

import math
from dataclasses import asdict, dataclass, field
from typing import Any

import pandas as pd

from groundwork.units import HOUR_S


@dataclass(frozen=True, slots=True, kw_only=True)
class Limit:
    """Largest number of devices that a strategy can use."""

    strategy: str
    devices: int
    """Most devices by the last column of Table 1."""
    reason: str
    """Rule that sets the limit, and the layer that it comes from."""
    refused: dict[int, str]
    """Requested numbers of devices that the strategy cannot use, with the reasons."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WireRow:
    """Alpha and beta of one level of the cluster, as the closed forms take them."""

    level: str
    alpha_s: float
    """Latency of a message of 1 MiB."""
    beta_s_per_byte: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Simulated:
    """The same strategy as a plan, replayed with overlap and contention; times are 0 where there is no plan."""

    plan: str
    """The strategy of the plan: its name, or degrees such as ``data=4,filter=16``."""
    refused: str = ""
    """Reason why there is no plan; empty where there is one."""
    iteration_s: float = 0.0
    """Steady-state iteration: the sum of the next three times, which are those of the device that computes longest."""
    compute_s: float = 0.0
    exposed_communication_s: float = 0.0
    """Communication that no computation of the device covers."""
    idle_s: float = 0.0
    """Time in which the device waits for others."""
    epoch_s: float = 0.0
    memory_bytes: float = 0.0
    """Peak memory of the fullest device over the replay."""
    fits: bool = False
    tasks: int = 0
    """Tasks of an iteration."""

    @property
    def waits_s(self) -> float:
        """Time in which the device that computes longest does not compute."""
        return self.exposed_communication_s + self.idle_s


@dataclass(frozen=True, slots=True, kw_only=True)
class OracleRow:
    """One strategy on one number of devices."""

    strategy: str
    devices: int
    degrees: str
    """Degrees such as ``4 x 16`` for 4 groups of 16; the grid of positions; or the segments of a pipeline."""
    batch: int
    """Samples of a mini-batch, all devices."""
    forward_backward_s: float
    update_s: float
    gradient_sync_s: float
    """Gradient synchronisation, the first of the four parts of ``communication_s``."""
    activations_s: float
    """All-gathers and all-reduces of activations and their gradients."""
    halo_s: float
    """Halo exchange between parts of the positions."""
    pipeline_s: float
    """Transfers between the stages of a pipeline."""
    compute_s: float
    communication_s: float
    iteration_s: float
    """Sum of computation and communication, because nothing overlaps."""
    epoch_s: float
    """Time of D/B iterations."""
    samples_per_s: float
    memory_bytes: float
    """Memory of the fullest device."""
    fits: bool
    limit: int
    limit_reason: str
    gpu_hours: float
    """Device hours of all epochs."""
    within_budget: bool
    simulated: Simulated | None = None
    """The row's strategy as a replayed plan, where the request says so."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Booking:
    """Number of devices to book, and for how long."""

    strategy: str
    devices: int
    time_s: float
    """Time of all epochs."""
    gpu_hours: float
    simulated: bool
    """True if the time is simulated; else it is that of the closed form."""

    @classmethod
    def of(cls, row: OracleRow, epochs: int) -> "Booking | None":
        """Return the booking for a row; None where it does not fit or has no plan.

        Args:
            row: The row.
            epochs: Number of epochs.
        """
        known = row.simulated
        if not (known.fits if known else row.fits):
            return None
        time_s = epochs * (known.epoch_s if known else row.epoch_s)
        return cls(
            strategy=row.strategy,
            devices=row.devices,
            time_s=time_s,
            gpu_hours=row.devices * time_s / HOUR_S,
            simulated=known is not None,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class OracleTable:
    """All rows of one request."""

    model: str
    cluster: str
    dataset: str
    samples: int
    scaling: str
    """``weak``: strategies that split samples take a batch per device; ``strong``: one batch, whatever the devices."""
    batch: int
    """Samples of a mini-batch: of each device in weak scaling, of all devices in strong scaling."""
    epochs: int
    budget_gpu_hours: float | None
    gamma: float
    delta_bytes: int
    device_memory_bytes: float
    wires: tuple[WireRow, ...]
    rows: tuple[OracleRow, ...]
    limits: tuple[Limit, ...]
    winners: dict[int, str]
    """Strategy with the shortest epoch among those that fit, by number of devices; none where no strategy fits."""
    notes: tuple[str, ...]
    simulated_winners: dict[int, str] = field(default_factory=dict)
    """Winners by simulation; empty where nothing is simulated."""

    def to_frame(self) -> pd.DataFrame:
        """Return one row for each strategy and device count; simulated values are in columns ``simulated.NAME``."""
        rows = []
        for each in self.rows:
            row = asdict(each)
            simulated = row.pop("simulated")
            rows.append(row | {f"simulated.{name}": value for name, value in (simulated or {}).items()})
        return pd.DataFrame(rows)

    @property
    def simulates(self) -> bool:
        """True if rows are simulated."""
        return any(row.simulated for row in self.rows)

    @property
    def booking(self) -> Booking | None:
        """Booking with the shortest time of all epochs that fits in memory and in the budget.

        The time is simulated where rows are simulated.  None where nothing fits.
        """
        return self._soonest(self.budget_gpu_hours if self.budget_gpu_hours is not None else math.inf)

    def _soonest(self, budget_gpu_hours: float) -> Booking | None:
        """Return the booking with the shortest time of all epochs within so many device hours."""
        rows = [Booking.of(row, self.epochs) for row in self.rows if row.simulated or not self.simulates]
        fitting = [row for row in rows if row is not None and row.gpu_hours <= budget_gpu_hours]
        return min(fitting, key=lambda row: (row.time_s, row.devices), default=None)

    @property
    def counts(self) -> tuple[int, ...]:
        """Numbers of devices of the rows, rising."""
        return tuple(sorted({row.devices for row in self.rows}))

    @property
    def affordable(self) -> OracleRow | None:
        """Row of the booking; None where nothing fits."""
        return self._row_of(self.booking)

    @property
    def fastest(self) -> OracleRow | None:
        """Row with the shortest epoch that fits in memory, whatever the budget; None where nothing fits."""
        return self._row_of(self._soonest(math.inf))

    def _row_of(self, booking: Booking | None) -> OracleRow | None:
        return self.row(booking.strategy, booking.devices) if booking else None

    def row(self, strategy: str, devices: int) -> OracleRow | None:
        """Return the row of a strategy on a number of devices; None where there is none."""
        return next((row for row in self.rows if (row.strategy, row.devices) == (strategy, devices)), None)

    def values(self) -> dict[str, Any]:
        """Return everything as plain values, for JSON."""
        chosen = {"affordable": self.affordable, "booking": self.booking}
        return {**asdict(self), **{name: asdict(value) if value else None for name, value in chosen.items()}}
