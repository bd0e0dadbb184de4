"""Pages of decisions: questions of size, and scenarios side by side; each with the answer, why, and every point."""

from reports.figures.decisions import size_figure, whatif_figure
from reports.pages.page_template import plain_figure, rendered
from reports.style.units import plain_unit, time_unit
from reports.tables.size_text import size_columns, size_headline, size_lines, training_unit
from reports.tables.whatif_tables import (
    sensitivity_cells,
    whatif_cells,
    whatif_extremes,
    whatif_finding,
    whatif_headers,
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


def _tiles(answer: SizeAnswer) -> list[tuple[str, str, str]]:
    """Return key numbers of the answer: label, number, unit."""
    best = answer.best
    if best is None:
        return []
    iteration = time_unit([best.point.expected_s])
    tiles = [
        ("devices", f"{best.point.devices:,}", ""),
        ("batch", f"{best.point.batch:,}", ""),
        ("expected iteration", iteration.text(best.point.expected_s), iteration.name),
        ("samples/s", plain_unit([best.point.samples_per_s]).text(best.point.samples_per_s), ""),
    ]
    cost = best.cost
    if cost is not None:
        factor, unit = training_unit(cost.total_s)
        numbers = {"training": (cost.total_s / factor, unit), "device hours": (cost.device_hours, "")}
        if cost.money is not None:
            numbers["money"] = cost.money, ""
        if cost.energy_kwh is not None:
            numbers["energy"] = cost.energy_kwh, "kWh"
        tiles += [(label, plain_unit([value]).text(value), unit) for label, (value, unit) in numbers.items()]
    return tiles


def whatif_html(result: WhatIf) -> str:
    """Return the page as HTML."""
    today = [row for row in result.rows if row.scenario == "today" and row.pace is not None]
    paces = [(row.strategy, row.pace) for row in today if row.pace is not None]
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
        headers=whatif_headers(result),
        rows=[
            {"cells": cells, "why": row.reason or row.why, "detour": row.detour, "first": row.scenario == "today"}
            for row, cells in zip(result.rows, whatif_cells(result), strict=True)
        ],
        changes=[
            (scenario.name, scenario.changes, scenario.batch) for scenario in result.scenarios if scenario.changes
        ],
        sensitivities=[
            (strategy, *sensitivity_cells(row)) for strategy, rows in result.sensitivities.items() for row in rows
        ],
        data={"change": plain_figure(whatif_figure(result))},
    )


def _change_tiles(result: WhatIf) -> list[tuple[str, str, str]]:
    """Return what the extreme scenarios bring and cost: label, number, and the interval."""
    tiles = []
    for row in whatif_extremes(result):
        if row:
            between = row.likely_against_today
            interval = f", {between[0] - 1:+z.0%} to {between[1] - 1:+z.0%}" if between else ""
            tiles.append((f"{row.scenario}, {row.strategy}", f"{row.against_today - 1:+z.1%}", f"samples/s{interval}"))
    return tiles
