"""What came of a study: losses and accuracies of every training, and which types can be told apart from float32."""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

import numpy as np

from executor.accuracy.accuracy_request import FLOAT32, AccuracyRequest
from executor.measurement import CONFIDENCE
from hwprofiles import ConfigError

__all__ = ["AccuracyResult", "Compared", "Interval", "Training", "mean_interval"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Training:
    """One network, trained once."""

    mode: str
    type: str
    seed: int
    losses: Sequence[float]
    """Mean over each epoch's samples, as they were trained on."""
    accuracies: Sequence[float]
    """On the samples that were not trained on, after each epoch: a share."""


@dataclass(frozen=True, slots=True)
class Interval:
    """A mean, and the interval that holds what it estimates in 95 of 100 studies."""

    mean: float
    low: float
    high: float

    def within(self, low: float, high: float) -> "Interval":
        """The part of it where the mean can lie at all."""
        return Interval(self.mean, max(self.low, low), min(self.high, high))


def mean_interval(values: Sequence[float]) -> Interval:
    """Student's t interval of the mean of independent, about normal values.

    Args:
        values: Two or more.

    Raises:
        ConfigError: SciPy is missing.
    """
    try:
        from scipy.stats import t
    except ImportError as error:
        raise ConfigError("accuracy must have SciPy, which the extra orrery[accuracy] brings") from error
    numbers = np.asarray(values, dtype=np.float64)
    mean, error_of_mean = float(numbers.mean()), float(numbers.std(ddof=1)) / math.sqrt(len(numbers))
    half = float(t.ppf((1 + CONFIDENCE) / 2, len(numbers) - 1)) * error_of_mean
    return Interval(mean, mean - half, mean + half)


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """The last accuracies of a type in a mode."""

    mode: str
    type: str
    accuracy: Interval
    """A share: the interval ends at 0 and 1."""
    difference: Interval
    """From float32 with the same seeds, seed by seed; zeros for float32 itself."""
    within: bool
    """Whether the mean accuracy lies in float32's interval."""

    @property
    def verdict(self) -> str:
        """In words what the differences say."""
        if self.type == FLOAT32:
            return ""
        if self.difference.low > 0:
            return "better than float32"
        if self.difference.high < 0:
            return "worse than float32"
        return "not told apart from float32"


@dataclass(frozen=True, kw_only=True, eq=False)
class AccuracyResult:
    """A study that was run."""

    question: AccuracyRequest
    trainings: Sequence[Training]
    trained: int
    tested: int
    """Samples."""

    @cached_property
    def rows(self) -> list[Compared]:
        """Every case, in order."""
        found = []
        for case in self.question.cases():
            plain = self.accuracies(case.mode, FLOAT32)
            own = self.accuracies(case.mode, case.type)
            of_plain, mean = mean_interval(plain), float(np.mean(own))
            found.append(
                Compared(
                    mode=case.mode,
                    type=case.type,
                    accuracy=mean_interval(own).within(0.0, 1.0),
                    difference=mean_interval([a - b for a, b in zip(own, plain, strict=True)]),
                    within=of_plain.low <= mean <= of_plain.high,
                )
            )
        return found

    def accuracies(self, mode: str, kind: str) -> list[float]:
        """After the last epoch, by seed."""
        return [row.accuracies[-1] for row in self.trainings if (row.mode, row.type) == (mode, kind)]

    def values(self) -> dict[str, Any]:
        """Everything, for JSON."""
        return {
            "model": self.question.model,
            "data": self.question.data or "digits",
            "trained": self.trained,
            "tested": self.tested,
            "seeds": self.question.seeds,
            "epochs": self.question.epochs,
            "batch": self.question.batch,
            "processes": self.question.processes,
            "optimizer": self.question.optimizer,
            "confidence": CONFIDENCE,
            "left_out": self.question.left_out(),
            "compared": [asdict(row) | {"verdict": row.verdict} for row in self.rows],
            "trainings": self.trainings,
        }
