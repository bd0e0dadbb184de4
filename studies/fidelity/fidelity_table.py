"""Summaries of judged rows: the errors of each comparison and of each measure, and the worst rows with reasons."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from studies.fidelity.error_quantiles import Coverage, coverages, part_errors
from studies.fidelity.judged_row import MEASURES, JudgedRow, Measure
from studies.fidelity.known_reasons import reason_of
from studies.fidelity.likely_times import PartError

__all__ = ["ErrorSummary", "FidelityTable", "WorstRow", "summarised"]

_CLOSE = 0.1
"""Largest absolute error of rows that count as close."""
_WORST = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class WorstRow:
    """One of the rows with the largest errors."""

    label: str
    measured_s: float
    predicted_s: float
    error: float
    reason: str
    """Why it is so far off, where that is known; else empty."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorSummary:
    """The errors of a comparison: predicted over measured time, minus 1."""

    name: str
    kind: str
    fitted: str
    """``no``, ``yes``, or ``part`` where some of the rows were fitted to."""
    rows: int
    """Rows with a prediction."""
    without: int
    """Rows without one."""
    without_reason: str
    """The most frequent reason of those."""
    median: float
    """Median of the absolute errors; NaN without rows, as the next ones."""
    p90: float
    worst: float
    bias: float
    """Mean of the logarithm of predicted over measured time: positive where predictions are too slow."""
    centre: float
    """Median of predicted over measured time."""
    low: float
    """10th percentile of predicted over measured time."""
    high: float
    """90th percentile of it."""
    close: float
    """Share of all rows, also those without a prediction, whose error is at most 10 %."""
    median_bar: float | None = None
    p90_bar: float | None = None
    worst_rows: tuple[WorstRow, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class FidelityTable:
    """All comparisons, their sums by measure, and how often intervals hold."""

    measures: tuple[ErrorSummary, ...]
    """One for each measure and, where both are there, for rows that were fitted to and rows that were not."""
    comparisons: tuple[ErrorSummary, ...]
    coverages: tuple[Coverage, ...]
    """Shares of rows that lie in 80 % intervals made without their device or system."""
    errors: Mapping[str, PartError]
    """Errors of the parts of predictions, from which intervals are made."""


def summarised(rows: Iterable[JudgedRow]) -> FidelityTable:
    """Return the summaries of judged rows, in the order of ``MEASURES``."""
    everything = list(rows)
    measures, comparisons = list[ErrorSummary](), list[ErrorSummary]()
    for measure in MEASURES:
        own = [row for row in everything if row.measure == measure.name]
        for name, part in _by_fit(measure, own):
            measures.append(_summary(name, measure, part))
        for name in dict.fromkeys(row.comparison for row in own):
            comparisons.append(_summary(name, measure, [row for row in own if row.comparison == name], bars=False))
    return FidelityTable(
        measures=tuple(measures),
        comparisons=tuple(comparisons),
        coverages=tuple(coverages(everything)),
        errors=part_errors(everything),
    )


def _by_fit(measure: Measure, rows: Sequence[JudgedRow]) -> list[tuple[str, list[JudgedRow]]]:
    """Divide rows into those that were not fitted to and those that were; rows without a prediction go first."""
    fitted = [row for row in rows if row.fitted and row.is_predicted]
    others = [row for row in rows if not (row.fitted and row.is_predicted)]
    parts = [(measure.name, others)] if others else []
    return parts + ([(f"{measure.name}, fitted to", fitted)] if fitted else [])


def _summary(name: str, measure: Measure, rows: Sequence[JudgedRow], *, bars: bool = True) -> ErrorSummary:
    """Return the summary of some rows."""
    known = [row for row in rows if row.is_predicted]
    ratios = np.array([row.predicted_s / row.measured_s for row in known])
    errors = np.abs(ratios - 1)
    without = [row.reason for row in rows if not row.is_predicted]
    flags = {row.fitted for row in known}
    return ErrorSummary(
        name=name,
        kind=measure.kind,
        fitted="part" if len(flags) > 1 else "yes" if True in flags else "no",
        rows=len(known),
        without=len(without),
        without_reason=max(sorted(set(without)), key=without.count, default=""),
        median=float(np.median(errors)) if known else math.nan,
        p90=float(np.quantile(errors, 0.9)) if known else math.nan,
        worst=float(errors.max()) if known else math.nan,
        bias=float(np.mean([row.log_ratio for row in known])) if known else math.nan,
        centre=float(np.median(ratios)) if known else math.nan,
        low=float(np.quantile(ratios, 0.1)) if known else math.nan,
        high=float(np.quantile(ratios, 0.9)) if known else math.nan,
        close=float(np.sum(errors <= _CLOSE) / len(rows)) if rows else math.nan,
        median_bar=measure.median_bar if bars else None,
        p90_bar=measure.p90_bar if bars else None,
        worst_rows=tuple(_worst_row(row) for row in sorted(known, key=lambda row: -abs(row.log_ratio))[:_WORST]),
    )


def _worst_row(row: JudgedRow) -> WorstRow:
    """Return a row with its reason."""
    return WorstRow(
        label=f"{row.comparison}: {row.label}",
        measured_s=row.measured_s,
        predicted_s=row.predicted_s,
        error=row.error,
        reason=reason_of(row),
    )
