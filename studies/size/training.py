"""What is trained, and what a training run takes: time, money, energy, and time lost to failures."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from groundwork.errors import ConfigError
from groundwork.input_files import yaml_input
from groundwork.units import HOUR_S
from studies.size.failures import Failures, least_time_s
from studies.size.sized_point import SizedPoint

_FILE = Path(__file__).with_name("board_power.yaml")


@cache
def _limits() -> Mapping[str, tuple[float, str]]:
    """Return watts and source by compute profile."""
    rows = yaml_input(_FILE, "power limits")
    return {name: (float(row["watts"]), str(row["source"])) for name, row in rows.items()}


def board_power_w(profiles: Sequence[str]) -> float | None:
    """Return the power limit of devices together; None where that of one is not known."""
    known, boards = _limits(), [_board(name) for name in profiles]
    return sum(known[name][0] for name in boards) if set(boards) <= set(known) else None


def power_sources(profiles: Sequence[str]) -> list[str]:
    """Return the documents that the limits are from, each once."""
    known = _limits()
    return [known[name][1] for name in dict.fromkeys(map(_board, profiles)) if name in known]


def _board(profile: str) -> str:
    """Return the name of a profile without the arithmetic behind it, which the board's limit does not depend on."""
    return profile.partition("@")[0]


_JOULES_PER_KWH = 3.6e6


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingRun:
    """A training run."""

    samples: int
    """Samples of an epoch."""
    epochs: int
    failures: Failures | None = None
    """None: nothing fails."""

    def __post_init__(self) -> None:
        for name in ("samples", "epochs"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} must be a whole number >= 1, got {getattr(self, name)!r}")

    def iterations(self, batch: int) -> int:
        """Return the iterations of the whole run; the last of an epoch may have fewer samples."""
        return self.epochs * math.ceil(self.samples / batch)


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingCost:
    """What a run takes on a cluster."""

    train_s: float
    """Expected time of all iterations, without failures."""
    likely_s: tuple[float, float] | None
    """80 % interval of the whole time, failures included; None where the errors are not known."""
    checkpoint_every_s: float
    """Interval between checkpoints for which the expected time is least; infinite where a run without any is
    expected to end sooner, 0 where nothing fails."""
    lost_s: float
    """Expected time of checkpoints, restarts and lost work."""
    total_s: float
    """Expected time of the run: ``train_s + lost_s``."""
    device_hours: float
    energy_kwh: float | None
    """Energy of the boards at their power limit; None where the limit of one of them is not known."""
    money: float | None
    """Device hours times the price, in its currency; None without one."""
    trained_samples: int
    """Samples of all epochs."""

    def interval_of(self, amount: float) -> tuple[float, float] | None:
        """Return the 80 % interval of an amount that grows with the time of the run, if errors are known."""
        return self.likely_s and (amount * self.likely_s[0] / self.total_s, amount * self.likely_s[1] / self.total_s)

    @property
    def device_hours_per_million_samples(self) -> float:
        """Device hours for a million samples, failures included."""
        return self.device_hours * 1e6 / self.trained_samples

    @property
    def money_per_million_samples(self) -> float | None:
        """Money for a million samples, in the currency of the price; None without one."""
        return None if self.money is None else self.money * 1e6 / self.trained_samples


def training_cost(point: SizedPoint, training: TrainingRun, *, price: float | None = None) -> TrainingCost:
    """Return what a run takes; all infinite where there is no plan."""
    count = training.iterations(point.batch)
    train_s = count * point.expected_s if not point.refusal else math.inf
    every_s, total_s = _with_failures(train_s, point, training.failures)
    ends = [_with_failures(count * end, point, training.failures)[1] for end in point.likely_s or ()]
    device_hours = point.devices * total_s / HOUR_S
    power_w = board_power_w(point.profiles)
    return TrainingCost(
        train_s=train_s,
        likely_s=(ends[0], ends[1]) if ends else None,
        checkpoint_every_s=every_s,
        lost_s=total_s - train_s if math.isfinite(train_s) else math.inf,
        total_s=total_s,
        device_hours=device_hours,
        energy_kwh=None if power_w is None else power_w * total_s / _JOULES_PER_KWH,
        money=None if price is None else price * device_hours,
        trained_samples=training.samples * training.epochs,
    )


def _with_failures(train_s: float, point: SizedPoint, failures: Failures | None) -> tuple[float, float]:
    """Return the interval between checkpoints and the expected time of a run; the time itself where nothing fails."""
    if failures is None or not math.isfinite(train_s):
        return 0.0, train_s
    return least_time_s(train_s, failures, point.nodes)
