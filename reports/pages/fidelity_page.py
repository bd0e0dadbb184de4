"""Page of ``orrery fidelity``: how far predictions are from public measurements, and why."""

from dataclasses import asdict
from typing import Any

from reports.figures.fidelity import fidelity_figure
from reports.pages.page_template import plain_figure, rendered
from reports.style.units import memory_unit, time_unit
from reports.tables.fidelity_text import coverage_rows, fidelity_cells, fidelity_headers, fidelity_headline
from studies.fidelity.error_summary import ErrorSummary
from studies.fidelity.fidelity_table import FidelityTable


def fidelity_html(table: FidelityTable) -> str:
    """Return the page as HTML."""
    return rendered(
        "fidelity.html",
        headline=fidelity_headline(table),
        notes=[*table.notes, *(f"{each.name}: {_without(each)}" for each in table.measures if each.without)],
        headers=fidelity_headers(),
        measures=[_row(each) for each in table.measures],
        comparisons=[_row(each) for each in table.comparisons],
        worst=[
            (each.name, [_worst(each, i) for i in range(len(each.worst_rows))])
            for each in table.measures
            if each.worst_rows
        ],
        coverages=coverage_rows(table),
        data={"errors": plain_figure(fidelity_figure(table.comparisons))},
    )


def fidelity_values(table: FidelityTable) -> dict[str, Any]:
    """Return all summaries as plain values."""
    summaries = {name: [asdict(each) for each in getattr(table, name)] for name in ("measures", "comparisons")}
    intervals = [each._asdict() for each in table.coverages]
    return {**summaries, "coverages": intervals, "errors": {name: asdict(each) for name, each in table.errors.items()}}


def _without(summary: ErrorSummary) -> str:
    """Return how many rows have no prediction, and the most frequent reason."""
    return f"{summary.without:,} rows have no prediction; the most frequent reason: {summary.without_reason}."


def _row(summary: ErrorSummary) -> dict[str, Any]:
    """Return a row of a table: name, cells, and whether the bars are met."""
    held = ((summary.median, summary.median_bar), (summary.p90, summary.p90_bar))
    late = [bar is not None and value > bar for value, bar in held]
    first, cells = fidelity_headers().index("median error"), fidelity_cells(summary)
    return {"name": summary.name, "cells": cells, "late": dict(enumerate(late, start=first))}


def _worst(summary: ErrorSummary, index: int) -> dict[str, str]:
    """Return one of the worst rows as text."""
    row = summary.worst_rows[index]
    values = (row.measured, row.predicted)
    unit = memory_unit(values) if summary.kind == "memory" else time_unit(values)
    texts = [f"{value:.4g}" if summary.kind in ("many-gpu", "papers") else unit.full(value) for value in values]
    return {
        "label": row.label,
        "measured": texts[0],
        "predicted": texts[1],
        "error": f"{row.error:+z.0%}".replace("-", "−"),
        "reason": row.reason or "not known",
    }
