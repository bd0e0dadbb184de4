"""Result of a study: losses and accuracies of every training, and data types that differ significantly from float32."""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

import numpy as np

from executor.accuracy.accuracy_request import FLOAT32, AccuracyRequest
from executor.validation.spread import CONFIDENCE
from groundwork.errors import ConfigError


@dataclass(frozen=True, slots=True, kw_only=True)
class Training:
    """Losses and accuracies of one network that was trained once."""

    mode: str
    type: str
    seed: int
    losses: Sequence[float]
    """Mean loss over the samples of each epoch, as they were trained on."""
    accuracies: Sequence[float]
    """Share of the samples held out that are classified right, after each epoch."""


@dataclass(frozen=True, slots=True)
class Interval:
    """Mean, and the interval that holds the estimated value in 95 of 100 studies."""

    mean: float
    low: float
    high: float

    def within(self, low: float, high: float) -> "Interval":
        """Return the interval bounded to the values that the mean can have at all."""
        return Interval(self.mean, max(self.low, low), min(self.high, high))


def mean_interval(values: Sequence[float]) -> Interval:
    """Return Student's t interval of the mean of independent values that are about normal.

    Raises:
        ConfigError: SciPy is missing.

    Source:
        Student, "The probable error of a mean", Biometrika 6 (1), 1908.
    """
    try:
        from scipy.stats import t
    except ImportError as error:
        raise ConfigError("accuracy must have SciPy, which the extra orrery-training[accuracy] brings") from error
    numbers = np.asarray(values, dtype=np.float64)
    mean, error_of_mean = float(numbers.mean()), float(numbers.std(ddof=1)) / math.sqrt(len(numbers))
    half = float(t.ppf((1 + CONFIDENCE) / 2, len(numbers) - 1)) * error_of_mean
    return Interval(mean, mean - half, mean + half)


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """Accuracies of a type in a mode after the last epoch, beside those of float32."""

    mode: str
    type: str
    accuracy: Interval
    """Mean share of samples classified right; the interval ends at 0 and 1."""
    difference: Interval
    """Difference from float32 with the same seeds, seed by seed; zeros for float32 itself."""
    within: bool
    """True where the mean accuracy lies in the interval of float32."""

    @property
    def conclusion(self) -> str:
        """Conclusion from the differences, in words."""
        if self.type == FLOAT32:
            return ""
        if self.difference.low > 0:
            return "better than float32"
        if self.difference.high < 0:
            return "worse than float32"
        return "no significant difference from float32"


@dataclass(frozen=True, kw_only=True, eq=False)
class AccuracyResult:
    """Trainings of a study, and their comparison."""

    request: AccuracyRequest
    trainings: Sequence[Training]
    trained: int
    tested: int

    @cached_property
    def rows(self) -> list[Compared]:
        """Comparison of every case with float32, in the order of the cases."""
        rows = []
        for case in self.request.cases():
            plain = self.accuracies(case.mode, FLOAT32)
            own = self.accuracies(case.mode, case.type)
            of_plain, mean = mean_interval(plain), float(np.mean(own))
            rows.append(
                Compared(
                    mode=case.mode,
                    type=case.type,
                    accuracy=mean_interval(own).within(0.0, 1.0),
                    difference=mean_interval([a - b for a, b in zip(own, plain, strict=True)]),
                    within=of_plain.low <= mean <= of_plain.high,
                )
            )
        return rows

    def accuracies(self, mode: str, kind: str) -> list[float]:
        """Return the accuracies of a case after the last epoch, by seed."""
        return [row.accuracies[-1] for row in self.trainings if (row.mode, row.type) == (mode, kind)]

    def values(self) -> dict[str, Any]:
        """Return the whole result, for JSON."""
        return {
            "model": self.request.model,
            "data": self.request.data or "digits",
            "trained": self.trained,
            "tested": self.tested,
            "seeds": self.request.seeds,
            "epochs": self.request.epochs,
            "batch": self.request.batch,
            "processes": self.request.processes,
            "optimizer": self.request.optimizer_spec,
            "confidence": CONFIDENCE,
            "left_out": self.request.left_out(),
            "compared": [asdict(row) | {"verdict": row.conclusion} for row in self.rows],
            "trainings": self.trainings,
        }
