"""Page of a validation: predictions compared with measurements, strategy by strategy and task by task."""

import math
from operator import attrgetter
from statistics import median
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from reports.drawings.timeline_layout import side_by_side, with_members
from reports.drawings.timeline_packing import pack_timeline
from reports.figures.validation import measured_ladder_figure, task_figure
from reports.pages.page_template import plain_figure, rendered
from reports.style.palette import kind_colours
from reports.style.units import byte_unit, plain_unit, time_unit

if TYPE_CHECKING:
    from executor.validation.validation_result import StrategyValidation, Validation


_MOST_SHOWN = 15


def validation_headline(validation: "Validation") -> str:
    """Return the finding in one sentence: the largest error, and whether the order of strategies is right."""
    where = f"{validation.model} on {validation.cluster}, batch {validation.batch:,}"
    judged = [s for s in validation.strategies if not s.noisy]
    noisy = [s.name for s in validation.strategies if s.noisy]
    if not judged:
        least = min(s.uncertainty for s in validation.strategies)
        return f"Too noisy to judge: the median of every measurement is known to ± {least:.0%} at best, for {where}."
    rest = f" Too noisy to judge: {', '.join(noisy)}." if noisy else ""
    worst = max(judged, key=lambda s: abs(s.error))
    if len(judged) == 1:
        return (
            f"The predicted iteration is {_signed(worst.error)} off the measured one: {worst.name} for {where}.{rest}"
        )
    names = [[s.name for s in sorted(judged, key=attrgetter(time))] for time in ("predicted_s", "measured_s")]
    order = "and in their measured order" if names[0] == names[1] else "but not in their measured order"
    return (
        f"Predictions are within {abs(worst.error):.1%} of measurements, {order}: {len(judged)} strategies for "
        f"{where}.{rest}"
    )


def validation_html(validation: "Validation") -> str:
    """Return the page as HTML."""
    strategies = validation.strategies
    return rendered(
        "validation.html",
        validation=validation,
        headline=validation_headline(validation),
        tiles=_tiles(validation),
        compared=_compared(validation),
        speedups=_speedups(validation),
        kinds=[_sums(s.kinds, "kind", ("",)) for s in strategies],
        layers=[_sums(s.layers, "layer", ("compute_", "communication_")) for s in strategies],
        differences=[_differences(s) for s in strategies],
        notes=_notes(validation),
        data={
            "figures": {"ladder": plain_figure(measured_ladder_figure(validation))},
            "strategies": [_strategy_data(s, validation.devices) for s in strategies],
        },
    )


def _signed(share: float) -> str:
    return f"{share:+z.1%}".replace("-", "−") if math.isfinite(share) else "–"


def _tiles(validation: "Validation") -> list[tuple[str, str, str]]:
    """Return key numbers: label, number, unit."""
    errors = [abs(s.error) for s in validation.strategies if not s.noisy]
    counted = sum(len(s.iterations_s) for s in validation.strategies)
    correlation = validation.rank_correlation
    return [
        ("largest error", f"{100 * max(errors):.1f}" if errors else "too noisy", "%" if errors else ""),
        ("median error", f"{100 * median(errors):.1f}" if errors else "too noisy", "%" if errors else ""),
        ("rank correlation", plain_unit([correlation]).text(correlation), ""),
        ("iterations counted", f"{counted:,}", ""),
        ("bytes of transfers", "equal" if all(s.bytes_equal for s in validation.strategies) else "differ", ""),
    ]


def _compared(validation: "Validation") -> dict[str, Any]:
    """Return the rows of the table of strategies; every cell is a value and its text."""
    strategies = validation.strategies
    unit = time_unit([value for s in strategies for value in s.ladder_s.values()])
    rows = []
    for s in strategies:
        times = [*s.ladder_s.values(), *s.quartiles_s]
        half = s.uncertainty
        cells = [(value, unit.text(value)) for value in times]
        cells.append((half, f"± {half:.1%}" if math.isfinite(half) else "–"))
        cells.append((float(len(s.iterations_s)), f"{len(s.iterations_s)} in {s.rounds}"))
        cells.append((s.error, "too noisy to judge" if s.noisy else _signed(s.error)))
        rows.append((s.name, cells))
    return {"unit": unit.name, "models": list(strategies[0].ladder_s), "rows": rows}


def _speedups(validation: "Validation") -> list[tuple[str, str, str, list[tuple[float, str]]]]:
    """Return rows of (strategy, what is compressed, strategy without, cells); none if nothing is compressed."""
    words = {s.name: s.compressed for s in validation.strategies}
    return [
        (
            row.name,
            words[row.name],
            row.plain,
            [
                (row.predicted, f"{row.predicted:.2f}"),
                (row.measured, f"{row.measured:.2f}"),
                (row.error, _signed(row.error)),
            ],
        )
        for row in validation.speedups
    ]


def _sums(rows: pd.DataFrame, label: str, prefixes: tuple[str, ...]) -> dict[str, Any]:
    """Return the rows of a table of predicted and measured sums."""
    columns = [f"{prefix}{key}" for prefix in prefixes for key in ("predicted_s", "measured_s")]
    times_s = rows[columns].to_numpy().ravel()
    unit = time_unit([float(np.median(times_s[times_s > 0]))] if (times_s > 0).any() else [])
    table = []
    for row in rows.to_dict("records"):
        cells = []
        for prefix in prefixes:
            cells += [
                (row[f"{prefix}{key}"], unit.text(row[f"{prefix}{key}"])) for key in ("predicted_s", "measured_s")
            ]
            cells.append((row[f"{prefix}error"], _signed(row[f"{prefix}error"])))
        name = str(row[label]).replace("_", " ") if label == "kind" else row[label]
        table.append((name, row.get("tasks"), cells))
    return {"unit": unit.name, "rows": table}


def _differences(strategy: "StrategyValidation") -> dict[str, Any]:
    """Return the tasks whose durations differ most."""
    tasks = strategy.tasks.assign(difference=strategy.tasks["predicted_s"] - strategy.tasks["measured_s"])
    top = tasks.loc[tasks["difference"].abs().sort_values(ascending=False, kind="stable").index[:_MOST_SHOWN]]
    unit, size = time_unit(top[["predicted_s", "measured_s"]].to_numpy().ravel().tolist()), byte_unit(top["bytes"])
    rows = [
        (
            row["name"],
            str(row["kind"]).replace("_", " "),
            size.full(row["bytes"]) if row["bytes"] else "–",
            [(row[key], unit.text(row[key]).replace("-", "−")) for key in ("predicted_s", "measured_s", "difference")],
        )
        for row in top.to_dict("records")
    ]
    return {"unit": unit.name, "rows": rows}


def _notes(validation: "Validation") -> list[str]:
    """Return the conditions of the measurement and the assumptions of the prediction, in sentences."""
    loss = validation.loss_difference
    notes = [
        "Measured times are medians of whole iterations, from end to end, after the first two of every turn. "
        "Strategies took turns in shuffled order, so that changes of the machine affect all of them alike.",
        "A task's measured duration is its median. A transfer lasts from its sending to its arrival, a collective from "
        "the start of its last rank to its end. Gradient synchronisations run one after another and join small layers, "
        "up to the size named below; the simulation synchronises every layer separately and at the same time. Their "
        "sums of durations therefore differ, while their ends may agree.",
        _stood_in(validation)
        if validation.stand_in
        else "Computation is predicted by samples of the parts of layers, taken between the turns by all ranks that "
        "hold them at the same time.",
    ]
    if all(s.bytes_equal for s in validation.strategies):
        notes.append(
            "Every tensor moved exactly the bytes that the cost model prices; gradient synchronisation "
            "by the back end's own ring is not counted."
        )
    else:
        notes.append("The bytes moved differ from those priced: see the table of tensors in the JSON output.")
    if validation.lab:
        notes.append("Messages were sent between network namespaces over shaped links; rates are those of payload.")
    if math.isfinite(loss):
        notes.append(
            "All strategies without compression computed the same network: their losses differ by at most "
            f"{loss:.1e} relative to their size."
        )
    return [*notes, *validation.notes]


def _stood_in(validation: "Validation") -> str:
    waits = "Waits of the predicted length replaced computation: only messages were real"
    if not validation.speedups:
        return f"{waits}."
    if validation.stand_in_compression:
        return f"{waits}; compression and decompression were waits too."
    return (
        f"{waits}, and their compression and decompression on this machine's processor, which is predicted by samples "
        "of the data types, taken between the turns by all ranks at the same time."
    )


def _strategy_data(strategy: "StrategyValidation", devices: tuple[str, ...]) -> dict[str, Any]:
    """Return what the page draws when a strategy is chosen: tasks as points, and both timelines."""
    simulated, measured = (
        with_members(each, strategy.collective_devices) for each in (strategy.simulated, strategy.measured)
    )
    known, names = side_by_side(simulated, measured, devices)
    return {
        "name": strategy.name,
        "tasks_figure": plain_figure(task_figure(strategy)),
        "colours": kind_colours(str(kind) for kind in known["kind"].unique()),
        "timeline": pack_timeline(known, names, ids=True),
    }
