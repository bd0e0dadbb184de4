"""Measured times with their spread, and the joining of those of several ranks."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Protocol, TypeVar

import numpy as np

Row = TypeVar("Row", bound="_Sampled")


@dataclass(frozen=True, slots=True)
class TimeSamples:
    """Times of one thing that was measured repeatedly, in seconds; at least one."""

    seconds: tuple[float, ...]

    @property
    def quartiles_s(self) -> tuple[float, float, float]:
        """First quartile, median, third quartile."""
        low, middle, high = np.quantile(self.seconds, [0.25, 0.5, 0.75]).tolist()
        return low, middle, high

    @property
    def median_s(self) -> float:
        """Median, which is used as the time."""
        return self.quartiles_s[1]

    @property
    def spread(self) -> float:
        """Half the distance between the quartiles, as a share of the median."""
        low, middle, high = self.quartiles_s
        return (high - low) / 2 / middle if middle else 0.0

    @property
    def uncertainty(self) -> float:
        """Standard error of the median of normal samples with these quartiles, as a share of the median.

        The quartiles of a normal distribution lie 0.6745 standard deviations from its median, and the standard error
        of the median of n samples is sqrt(pi / (2 n)) standard deviations.
        """
        return float(self.spread / 0.6745 * np.sqrt(np.pi / 2 / len(self.seconds)))


class _Sampled(Protocol):
    """Dataclass with samples."""

    __dataclass_fields__: ClassVar[dict[str, Any]]

    @property
    def samples(self) -> TimeSamples: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeRow:
    """Times of one phase of one part, for all layers that are equal to it."""

    model: str
    layers: tuple[str, ...]
    sizes: tuple[int, ...]
    """Sizes of the part: samples, channels, positions."""
    phase: str
    """One of ``planner.graph.computation_graph.LAYER_PHASES``."""
    flop: float
    """Operations of matrix products; 0 for phases that only read and write memory."""
    samples: TimeSamples


def over_ranks(ranks: Sequence[Sequence[Row]]) -> list[Row]:
    """Join the rows of several ranks: each sample becomes the median over the ranks that took it at the same time.

    Args:
        ranks: Rows of every rank, the same rows in the same order.
    """
    return [
        replace(row, samples=TimeSamples(tuple(np.median([r.samples.seconds for r in same], axis=0).tolist())))
        for same in zip(*ranks, strict=True)
        for row in same[:1]
    ]
