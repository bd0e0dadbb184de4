"""Measured times with their spread, and the same of several ranks as one."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Protocol, TypeVar

import numpy as np

__all__ = ["ProbeRow", "TimeSamples", "over_ranks"]

Row = TypeVar("Row", bound="_Sampled")


@dataclass(frozen=True, slots=True)
class TimeSamples:
    """Times of the same thing, measured again and again; at least one."""

    seconds: tuple[float, ...]

    @property
    def quartiles_s(self) -> tuple[float, float, float]:
        """First quartile, median, third quartile."""
        low, middle, high = np.quantile(self.seconds, [0.25, 0.5, 0.75]).tolist()
        return low, middle, high

    @property
    def median_s(self) -> float:
        """The time that is taken for true."""
        return self.quartiles_s[1]

    @property
    def spread(self) -> float:
        """Half the distance between the quartiles, as a share of the median."""
        low, middle, high = self.quartiles_s
        return (high - low) / 2 / middle if middle else 0.0

    @property
    def uncertainty(self) -> float:
        """Standard error of the median of normal samples with these quartiles, as a share of the median.

        The quartiles lie 0.674 standard deviations from the median, whose own is sqrt(pi / 2 n) of them.
        """
        return float(self.spread / 0.6745 * np.sqrt(np.pi / 2 / len(self.seconds)))


class _Sampled(Protocol):
    """A dataclass with times of its own."""

    __dataclass_fields__: ClassVar[dict[str, Any]]

    @property
    def samples(self) -> TimeSamples: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeRow:
    """Times of one phase of one part, for all layers that are equal."""

    model: str
    """With its parameters."""
    layers: tuple[str, ...]
    sizes: tuple[int, ...]
    """Samples, channels, positions."""
    phase: str
    flop: float
    """Of matrix products; 0 for phases that only stream."""
    samples: TimeSamples


def over_ranks(ranks: Sequence[Sequence[Row]]) -> list[Row]:
    """The same rows of several ranks as one list: each sample the median over the ranks that took it together."""
    return [
        replace(row, samples=TimeSamples(tuple(np.median([r.samples.seconds for r in same], axis=0).tolist())))
        for same in zip(*ranks, strict=True)
        for row in same[:1]
    ]
