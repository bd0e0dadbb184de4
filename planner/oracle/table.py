"""What the oracle answers: a row for each strategy and number of devices, limits, winners, alpha and beta."""

from dataclasses import asdict, dataclass
from typing import Any

__all__ = ["Limit", "OracleRow", "OracleTable", "WireRow"]


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
        best = self.affordable
        return {**asdict(self), "affordable": asdict(best) if best else None}
