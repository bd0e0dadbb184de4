"""Tables and sentences of ``orrery fidelity``, printed alike by the terminal, the page and the README."""

import math
from collections.abc import Iterable

from rich.table import Table

from reports.tables.text_table import text_table
from studies.fidelity.error_summary import ErrorSummary
from studies.fidelity.fidelity_table import FidelityTable

_LONGEST = 110
"""Characters of the longest reason in the terminal."""


def fidelity_headers() -> tuple[str, ...]:
    """Return the headings of the columns behind the name."""
    errors = ("median error", "90th percentile", "worst", "bias", "within 10 %")
    return "rows", "fitted to", *errors, "measured in"


def fidelity_cells(summary: ErrorSummary) -> tuple[str, ...]:
    """Return the cells of a comparison behind its name; bars stand beside what they are for."""
    return (
        f"{summary.rows:,}",
        summary.fitted if summary.rows else "–",
        _with_bar(summary.median, summary.median_bar),
        _with_bar(summary.p90, summary.p90_bar),
        _percent(summary.worst),
        _factor(summary.bias),
        _percent(summary.close),
        "; ".join(filter(None, (summary.arithmetic, summary.software))),
    )


def _percent(value: float) -> str:
    """Return a share in percent: a factor above 1,000 %."""
    if not math.isfinite(value):
        return "–"
    return f"{value:.0%}".replace("%", " %") if value < 10 else f"{1 + value:.0f} times"


def _with_bar(value: float, bar: float | None) -> str:
    """Return a share, and the bar that it is held to."""
    return _percent(value) if bar is None else f"{_percent(value)} (bar {bar:.0%})".replace("%)", " %)")


def _factor(bias: float) -> str:
    """Return a bias as predicted over measured value."""
    return f"{math.exp(bias):.2f} ×" if math.isfinite(bias) else "–"


def fidelity_headline(table: FidelityTable) -> str:
    """Return the finding in one sentence: how many rows, and how many bars are met."""
    measures = table.measures
    rows = sum(each.rows for each in measures)
    held = [(value, bar) for each in measures for value, bar in _held(each)]
    met = sum(value <= bar for value, bar in held)
    medians = [each.median for each in measures if math.isfinite(each.median) and each.fitted != "yes"]
    finding = f"{rows:,} measured values are compared with predictions"
    if len(medians) > 1:
        finding = (
            f"Predictions are off by {_percent(min(medians))} to {_percent(max(medians))}, the median errors of "
            f"{len(medians)} measures over {rows:,} measured values"
        )
    elif medians:
        finding = f"Predictions are off by {_percent(*medians)} in the median of {rows:,} measured values"
    return f"{finding}; {met} of {len(held)} errors are within their bars." if held else f"{finding}."


def _held(summary: ErrorSummary) -> list[tuple[float, float]]:
    """Return the errors of a measure that have a bar, each with it."""
    pairs = ((summary.median, summary.median_bar), (summary.p90, summary.p90_bar))
    return [(value, bar) for value, bar in pairs if bar is not None and math.isfinite(value)]


def coverage_rows(table: FidelityTable) -> list[tuple[str, str, str, str]]:
    """Return for each part of a prediction: rows, devices or systems, and the share inside its 80 % interval."""
    return [
        (each.part, f"{each.rows:,}", f"{each.groups:,}", f"{_percent(each.inside)} (bar 75 to 85 %)")
        for each in table.coverages
    ]


def fidelity_tables(table: FidelityTable) -> list[Table]:
    """Return every comparison, the measures with their bars, and how often intervals hold, as far as computed."""
    shown = [_table("Every comparison", table.comparisons), _table("By measure", table.measures)]
    if table.coverages:
        title = "80 % intervals, each device or system left out in turn"
        headers = ("part of a prediction", "rows", "devices or systems", "rows inside")
        shown.append(text_table(title, headers, coverage_rows(table)))
    return shown


def _table(title: str, summaries: Iterable[ErrorSummary]) -> Table:
    rows = [(each.name, *fidelity_cells(each)) for each in summaries]
    return text_table(title, ("comparison", *fidelity_headers()), rows, overflow="fold")


def fidelity_lines(table: FidelityTable) -> list[str]:
    """Return the worst rows of every measure with their reasons, then the headline."""
    lines = list[str]()
    for each in table.measures:
        for row in each.worst_rows:
            reason = row.reason if len(row.reason) <= _LONGEST else f"{row.reason[:_LONGEST]} ..."
            lines.append(f"{row.label}: {row.error:+z.0%}; {reason or 'reason not known'}")
        if each.without:
            lines.append(f"{each.name}: {each.without:,} rows without a prediction, most often: {each.without_reason}")
    return [*lines, *table.notes, fidelity_headline(table)]
