"""Pages of decisions: questions of size, and scenarios side by side; each with the answer, why, and every point."""

from reports.figures.decisions import size_figure, whatif_figure
from reports.pages.page_template import plain_figure, rendered
from reports.style.units import Tile, three_digits, tile, time_unit
from reports.tables.size_text import size_columns, size_headline, size_lines, training_unit
from reports.tables.whatif_tables import (
    sensitivity_cells,
    whatif_columns,
    whatif_extremes,
    whatif_finding,
    whatif_reason_lines,
)
from studies.size.size_answer import SizeAnswer
from studies.whatif.scenarios import WhatIf


def size_html(answer: SizeAnswer) -> str:
    """Return the page as HTML."""
    marks = ["winner" if row is answer.best else "" if row.holds else "over" for row in answer.curve]
    return rendered(
        "size.html",
        headline=size_headline(answer),
        answer=answer,
        tiles=_tiles(answer),
        notes=size_lines(answer),
        columns=size_columns(answer),
        marks=marks,
        refusals=list(dict.fromkeys(row.point.refusal for row in answer.curve if row.point.refusal)),
        data={"curve": plain_figure(size_figure(answer))},
    )


def _tiles(answer: SizeAnswer) -> list[Tile]:
    """Return key numbers of the answer."""
    best = answer.best
    if best is None:
        return []
    tiles = [
        ("devices", f"{best.point.devices:,}", ""),
        ("batch", f"{best.point.batch:,}", ""),
        tile("expected iteration", best.point.expected_s, time_unit),
        ("samples/s", three_digits(best.point.samples_per_s), ""),
    ]
    cost = best.cost
    if cost is not None:
        factor, unit = training_unit(cost.total_s)
        tiles += [("training", three_digits(cost.total_s / factor), unit)]
        known = (("device hours", cost.device_hours, ""), ("money", cost.money, ""), ("energy", cost.energy_kwh, "kWh"))
        tiles += [(label, three_digits(value), unit) for label, value, unit in known if value is not None]
    return tiles


def whatif_html(result: WhatIf) -> str:
    """Return the page as HTML."""
    today = [row for row in result.rows if row.scenario == "today" and row.pace is not None]
    paces = [(row.strategy, row.pace) for row in today if row.pace is not None]
    columns = whatif_columns(result)
    return rendered(
        "whatif.html",
        headline=whatif_finding(result),
        result=result,
        tiles=_change_tiles(result),
        notes=[
            *(f"{row.scenario}, {row.strategy}: {row.why}" for row in whatif_extremes(result) if row),
            *(f"{name} today: {pace.sentence}; time left: {pace.left}; {pace.remedy}" for name, pace in paces),
            *whatif_reason_lines(result),
            *result.notes,
        ],
        headers=[head for head, _ in columns],
        rows=[
            {"cells": cells, "why": row.reason or row.why, "detour": row.detour, "first": row.scenario == "today"}
            for row, *cells in zip(result.rows, *(texts for _, texts in columns), strict=True)
        ],
        changes=[
            (scenario.name, scenario.changes, scenario.batch) for scenario in result.scenarios if scenario.changes
        ],
        sensitivities=[
            (strategy, *sensitivity_cells(row)) for strategy, rows in result.sensitivities.items() for row in rows
        ],
        data={"change": plain_figure(whatif_figure(result))},
    )


def _change_tiles(result: WhatIf) -> list[Tile]:
    """Return what the extreme scenarios bring and cost: label, number, and the interval."""
    tiles = []
    for row in whatif_extremes(result):
        if row:
            between = row.likely_against_today
            interval = f", {between[0] - 1:+z.0%} to {between[1] - 1:+z.0%}" if between else ""
            tiles.append((f"{row.scenario}, {row.strategy}", f"{row.against_today - 1:+z.1%}", f"samples/s{interval}"))
    return tiles
