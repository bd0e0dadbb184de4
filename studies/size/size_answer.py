"""Answers to questions of size: the point asked for, its neighbours that just fail, and the curve between."""

import math
from dataclasses import dataclass
from typing import Any

from planner.plan.pace import Pace
from studies.size.sized_point import SizedPoint
from studies.size.training import TrainingCost

_OF_CURVE = "x holds surely quantity likely"
_OF_POINT = "cluster devices nodes batch strategy iteration_s expected_s likely_s samples_per_s refusal"
_OF_COST = (
    "train_s total_s likely_s lost_s checkpoint_every_s device_hours_per_million_samples money_per_million_samples "
    "device_hours energy_kwh money"
)
"""Names of what is written of a point of a curve, its plan, and its training."""


def _chosen(row: object, names: str) -> dict[str, Any]:
    return {name: getattr(row, name) for name in names.split()}


@dataclass(frozen=True, slots=True, kw_only=True)
class CurvePoint:
    """One point that was tried."""

    x: float
    """Value of the quantity that is asked for: devices, samples of a device, or bytes/s."""
    point: SizedPoint
    holds: bool
    """True if it meets the rule by its expected value."""
    surely: bool = False
    """True if it meets the rule at the unfavourable end of the 80 % interval, too."""
    cost: TrainingCost | None = None
    """What training takes; None where the question has no training."""
    quantity: float = float("nan")
    """Value that the rule is about: seconds, bytes, money, device hours or a share."""
    likely: tuple[float, float] | None = None
    """80 % interval of ``quantity``; None where it has none, or the errors are not known."""

    @property
    def total_s(self) -> float:
        """Expected time of the training; infinite where the question has none."""
        return self.cost.total_s if self.cost else math.inf

    @property
    def latest_s(self) -> float:
        """Time of the training at the slow end of its 80 % interval; infinite where that is not known."""
        return self.cost.likely_s[1] if self.cost and self.cost.likely_s else math.inf

    def values(self) -> dict[str, Any]:
        """Return the point as plain values."""
        row = _chosen(self, _OF_CURVE) | _chosen(self.point, _OF_POINT)
        if self.cost is not None:
            row |= {name.replace("likely", "likely_total"): each for name, each in _chosen(self.cost, _OF_COST).items()}
        return row


@dataclass(frozen=True, slots=True, kw_only=True)
class SizeAnswer:
    """The answer to a question of size."""

    question: str
    """Question in words, with its numbers."""
    axis: str
    """What ``CurvePoint.x`` counts: ``devices``, ``samples a device``, ``bytes/s`` or ``offer``."""
    measure: str
    """What the rule is about: ``time``, ``memory``, ``money``, ``device hours`` or ``loss``."""
    limit: float | None
    """Limit of ``CurvePoint.quantity``; None where the best is asked for."""
    curve: tuple[CurvePoint, ...]
    """Points that were tried, in order."""
    best: CurvePoint | None
    """The answer by expected values; None where no point holds."""
    sure: CurvePoint | None = None
    """The answer at the unfavourable end of the 80 % intervals; None where none of the points tried holds there."""
    failing: tuple[CurvePoint, ...] = ()
    """The two nearest points beyond the boundary, the nearest first."""
    pace: Pace | None = None
    """What sets the pace at the answer, or at the point that comes nearest."""
    failing_pace: Pace | None = None
    """What sets the pace at the nearest failing point."""
    notes: tuple[str, ...] = ()
    interrupted: bool = False
    """True if the search was ended before it had its answer: ``best`` is the best of the points on the curve."""

    def values(self) -> dict[str, Any]:
        """Return the answer as plain values."""
        return {
            **_chosen(self, "question axis measure limit"),
            "best": self.best and self.best.values(),
            "sure": self.sure and self.sure.values(),
            "failing": [each.values() for each in self.failing],
            "pace": self.pace and _chosen(self.pace, "sentence left remedy setters"),
            **_chosen(self, "notes interrupted"),
            "curve": [each.values() for each in self.curve],
        }
