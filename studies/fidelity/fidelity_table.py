"""Summaries of judged rows: the errors of each comparison and of each measure, and the worst rows with reasons."""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from groundwork.array_types import Floats
from planner.expected.likely_times import PartError
from studies.fidelity.error_quantiles import Coverage, coverages, part_errors
from studies.fidelity.error_summary import ErrorSummary, WorstRow, held_out_measure
from studies.fidelity.judged_row import CALIBRATED_MEASURE, MEASURES, JudgedRow, Measure

_SLIGHTLY = 0.01
"""Growth of a median error that counts as none."""
_CLOSE = 0.1
"""Largest absolute error of rows that count as close."""
_WORST = 3
_LEAST_RANKED = 5
"""Plans of a comparison from which on their ranks say something."""


_MEDIUM_BYTES = 2**24
_Rule = tuple[Callable[[JudgedRow], bool], str]


def _has(*words: str) -> Callable[[JudgedRow], bool]:
    """Return a test whether a row's comparison or label has all of some words."""
    return lambda row: all(word in f"{row.comparison} {row.label}" for word in words)


_RULES: tuple[_Rule, ...] = (
    (_has("cuDNN 4."), "cuDNN 4, before its Winograd kernels"),
    (_has("Nervana"), "Nervana's own kernels, which were faster than cuDNN's of that time"),
    (_has("CuDNN[R4]"), "cuDNN 4, before its Winograd kernels"),
    (
        lambda row: row.group == "polaris" and row.nodes > 1 and row.size <= _MEDIUM_BYTES,
        "medium messages between nodes: the same machine takes up to four times as long by other settings of its "
        "network's plugin, or another release of NCCL",
    ),
    (
        lambda row: row.group == "alps" and row.nodes > 1 and row.size <= _MEDIUM_BYTES,
        "medium messages between nodes: measured times fall to a seventh from 1 to 2 MiB; the network's plugin",
    ),
    (_has("vtrain-v100"), "the machine's wiring is not stated: a DGX-1 is assumed"),
    (_has("convnet", "TensorFlow"), "TensorFlow of early 2016, with cuDNN 4"),
    (
        lambda row: row.measure.startswith("training") and "batch" in row.label and _batch(row) <= 4,
        "bound by the host's launches, which are not modelled",
    ),
)
"""Tests and reasons; the first that holds counts.  A paper's row has its note as its reason."""


def _batch(row: JudgedRow) -> int:
    """Return the batch in the label of a training row."""
    return int(row.label.split("batch ")[1].split(",")[0])


@dataclass(frozen=True, slots=True, kw_only=True)
class FidelityTable:
    """All comparisons, their sums by measure, and how often intervals hold."""

    measures: tuple[ErrorSummary, ...]
    """One for each measure and, where both are there, for rows that were fitted to and rows that were not."""
    comparisons: tuple[ErrorSummary, ...]
    coverages: tuple[Coverage, ...]
    """Shares of rows that lie in 80 % intervals made without their device or system."""
    errors: Mapping[str, PartError]
    notes: tuple[str, ...] = ()


def summarised(rows: Iterable[JudgedRow], held_out: Iterable[ErrorSummary] = ()) -> FidelityTable:
    """Return the summaries of judged rows, in the order of ``MEASURES``."""
    everything, left_out = list(rows), list(held_out)
    measures, comparisons = list[ErrorSummary](), list[ErrorSummary]()
    for measure in MEASURES:
        own = [row for row in everything if row.measure == measure.name]
        for name, part in _by_fit(measure, own):
            measures.append(_summary(name, measure, part))
        others = [each for each in left_out if measure.counts(each.kind, each.name.partition(",")[0])]
        if others:
            measures.append(held_out_measure(measure, others))
            comparisons += others
            left_out = [each for each in left_out if each not in others]
        for name in dict.fromkeys(row.comparison for row in own):
            comparisons.append(_summary(name, measure, [row for row in own if row.comparison == name], bars=False))
    return FidelityTable(
        measures=tuple(measures),
        comparisons=tuple(comparisons),
        coverages=tuple(coverages(everything)),
        errors=part_errors(everything),
        notes=(*_against_linear(everything), *_against_unfitted(everything), *_ranks(everything)),
    )


def _against_linear(rows: Sequence[JudgedRow]) -> Iterator[str]:
    """Yield, for each measure of several GPUs, whether it beats predicting no loss, over rows not fitted to."""
    for measure in (each for each in MEASURES if each.kind == "many-gpu"):
        own = [row for row in rows if row.measure == measure.name and row.is_predicted and not row.fitted]
        losses = np.log([(row.measured, row.predicted) for row in own])
        if len(own) > 2 and losses.std(axis=0).min() > 0:
            together = np.corrcoef(losses.T)[0, 1]
            linear = np.median([abs(1 / row.measured - 1) for row in own])
            yield (
                f"{measure.name}: predicted losses of {len(own)} rows correlate with measured ones by {together:.2f}; "
                f"predicting no loss at all errs by {linear:.1%} in the median".replace("%", " %")
            )


def _against_unfitted(rows: Sequence[JudgedRow]) -> Iterator[str]:
    """Yield, of collectives that were calibrated, what the same rows have without, and which comparisons are worse."""
    known = [row for row in rows if row.is_predicted]
    without = {_collective_key(row): row for row in known if row.measure != CALIBRATED_MEASURE}
    fitted = [row for row in known if row.measure == CALIBRATED_MEASURE]
    pairs = [(row, without[key]) for row in fitted if (key := _collective_key(row)) in without]
    if not pairs:
        return
    worse = []
    for name in dict.fromkeys(row.comparison for row, _ in pairs):
        now, before = np.median([[abs(each.error) for each in pair] for pair in pairs if pair[0].comparison == name], 0)
        if now > before + _SLIGHTLY:
            worse.append(f"{name} ({now:.0%}, {before:.0%})")
    now, before = np.median([[abs(each.error) for each in pair] for pair in pairs], axis=0)
    yield (
        f"{CALIBRATED_MEASURE}: the median error of {len(pairs)} rows is {now:.1%}, without calibration "
        f"{before:.1%}; worse than without: {'; '.join(worse) or 'none'}".replace("%", " %")
    )


def _collective_key(row: JudgedRow) -> tuple[str, str, float, float]:
    """Return what two predictions of one measured collective have in common."""
    return row.group, row.subject, row.size, row.measured


def _ranks(rows: Sequence[JudgedRow]) -> Iterator[str]:
    """Yield, for each comparison of plans, how their ranks by FLOP/s correlate, over rows not fitted to."""
    ranked = [row for row in rows if row.peak_s and row.is_predicted and not row.fitted]
    for name in dict.fromkeys(row.comparison for row in ranked):
        own = [row for row in ranked if row.comparison == name]
        if len(own) >= _LEAST_RANKED:
            speeds = np.array([[row.peak_s / row.measured, row.peak_s / row.predicted] for row in own])
            yield (
                f"{name}: ranks of {len(own)} plans by FLOP/s of a device, predicted and measured, correlate by "
                f"{kendall(*speeds.T):.2f} (Kendall)"
            )


def kendall(first: Floats, second: Floats) -> float:
    """Return Kendall's rank correlation of two rows of values, tau-b: 1 where they have one order, -1 for the reverse.

    Source:
        Kendall, "The treatment of ties in ranking problems", Biometrika 33, 1945.
    """
    order = [np.sign(values[:, None] - values[None]) for values in (first, second)]
    return float((order[0] * order[1]).sum() / np.sqrt((order[0] ** 2).sum() * (order[1] ** 2).sum()))


def _by_fit(measure: Measure, rows: Sequence[JudgedRow]) -> list[tuple[str, list[JudgedRow]]]:
    """Divide rows into those that were not fitted to and those that were; rows without a prediction go first."""
    fitted = [row for row in rows if row.fitted and row.is_predicted]
    others = [row for row in rows if not (row.fitted and row.is_predicted)]
    parts = [(measure.name, others)] if others else []
    return parts + ([(f"{measure.name}, fitted to", fitted)] if fitted else [])


def _summary(name: str, measure: Measure, rows: Sequence[JudgedRow], *, bars: bool = True) -> ErrorSummary:
    known = [row for row in rows if row.is_predicted]
    ratios = np.array([row.predicted / row.measured for row in known])
    errors = np.abs(ratios - 1)
    without = [row.reason for row in rows if not row.is_predicted]
    flags = {row.fitted for row in known}
    return ErrorSummary(
        name=name,
        kind=measure.kind,
        fitted="part" if len(flags) > 1 else "yes" if True in flags else "no",
        rows=len(known),
        arithmetic=_counted(row.arithmetic for row in known),
        software=_counted(row.software for row in known),
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
        worst_rows=tuple(
            WorstRow(
                label=f"{row.comparison}: {row.label}",
                measured=row.measured,
                predicted=row.predicted,
                error=row.error,
                reason=row.reason or next((reason for test, reason in _RULES if test(row)), ""),
            )
            for row in sorted(known, key=lambda row: -abs(row.log_ratio))[:_WORST]
        ),
    )


def _counted(names: Iterable[str]) -> str:
    """Return different names, the most frequent first, with how often each is there if there are several."""
    counts = Counter(name for name in names if name)
    several = len(counts) > 1
    return ", ".join(f"{name} ({count:,})" if several else name for name, count in counts.most_common())
