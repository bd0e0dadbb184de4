"""The validation as one HTML file: predictions set beside measurements, strategy by strategy and task by task."""

import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from reports.drawings import pack_timeline, side_by_side
from reports.figures import measured_ladder_figure, task_figure
from reports.pages.page_file import write_page
from reports.pages.page_template import plain_figure, rendered
from reports.style import byte_unit, kind_colours, plain_unit, time_unit

if TYPE_CHECKING:
    from executor.validation import StrategyValidation, Validation

__all__ = ["validation_headline", "validation_html", "write_validation_page"]

_MOST_SHOWN = 15


def write_validation_page(validation: "Validation", path: Path) -> None:
    """Write the page; a reader of ``path`` sees the old file or the whole new one, never a part.

    Raises:
        OSError: The folder does not exist or cannot be written; ``path`` is then untouched.
    """
    write_page(validation_html(validation), path)


def validation_headline(validation: "Validation") -> str:
    """Answer in one sentence how far the predictions can be trusted."""
    found = validation.strategies
    where = f"{validation.model} on {validation.cluster}, batch {validation.batch:,}"
    worst = validation.worst
    if len(found) == 1:
        return f"The simulation is {_signed(worst.error)} off the measured iteration of {worst.name} for {where}."
    order = "in their measured order" if validation.order_right else "but not in their measured order"
    return (
        f"The simulation predicts {len(found)} strategies for {where} within {abs(worst.error):.1%} of measured, "
        f"{order}."
    )


def validation_html(validation: "Validation") -> str:
    """Render the page."""
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
            "figures": {"ladder": plain_figure(measured_ladder_figure(strategies))},
            "strategies": [_strategy_data(s, validation.devices) for s in strategies],
        },
    )


def _signed(share: float) -> str:
    return f"{share:+.1%}".replace("-", "−") if math.isfinite(share) else "–"


def _tiles(validation: "Validation") -> list[tuple[str, str, str]]:
    """Key numbers: label, number, unit."""
    errors = sorted(abs(s.error) for s in validation.strategies)
    counted = sum(len(s.iterations_s) for s in validation.strategies)
    correlation = validation.rank_correlation
    return [
        ("largest error", f"{100 * errors[-1]:.1f}", "%"),
        ("median error", f"{100 * errors[len(errors) // 2]:.1f}", "%"),
        ("rank correlation", plain_unit([correlation]).text(correlation), ""),
        ("iterations counted", f"{counted:,}", ""),
        ("bytes of transfers", "equal" if all(s.bytes_equal for s in validation.strategies) else "differ", ""),
    ]


def _compared(validation: "Validation") -> dict[str, Any]:
    """Rows of the table of strategies: every cell a value and its text."""
    strategies = validation.strategies
    unit = time_unit([value for s in strategies for value in s.ladder_s.values()])
    rows = []
    for s in strategies:
        times = [*s.ladder_s.values(), *s.quartiles_s]
        half = (s.interval_s[1] - s.interval_s[0]) / 2 / s.measured_s
        cells = [(value, unit.text(value)) for value in times]
        cells.append((half, f"± {half:.1%}" if math.isfinite(half) else "–"))
        cells.append((float(len(s.iterations_s)), f"{len(s.iterations_s)} in {s.rounds}"))
        cells.append((s.error, _signed(s.error)))
        rows.append((s.name, cells))
    return {"unit": unit.name, "readings": list(strategies[0].ladder_s), "rows": rows}


def _speedups(validation: "Validation") -> list[tuple[str, str, str, list[tuple[float, str]]]]:
    """Strategy, what is compressed, over which, and cells; none where nothing is compressed."""
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
    """Rows of a table of predicted and measured sums."""
    columns = [f"{prefix}{key}" for prefix in prefixes for key in ("predicted_s", "measured_s")]
    times_s = rows[columns].to_numpy().ravel()
    unit = time_unit([float(np.median(times_s[times_s > 0]))] if (times_s > 0).any() else [])
    found = []
    for row in rows.to_dict("records"):
        cells = []
        for prefix in prefixes:
            cells += [
                (row[f"{prefix}{key}"], unit.text(row[f"{prefix}{key}"])) for key in ("predicted_s", "measured_s")
            ]
            cells.append((row[f"{prefix}error"], _signed(row[f"{prefix}error"])))
        name = str(row[label]).replace("_", " ") if label == "kind" else row[label]
        found.append((name, row.get("tasks"), cells))
    return {"unit": unit.name, "rows": found}


def _differences(strategy: "StrategyValidation") -> dict[str, Any]:
    """Tasks whose durations differ most."""
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
    """What was assumed, and what the reader must know of the measurement."""
    loss = validation.loss_difference
    notes = [
        "Measured times are medians of whole iterations, from end to end, after the first two of every turn. "
        "Strategies took turns in shuffled order, so that what changes with time meets all of them alike.",
        "A task's measured duration is its median. A transfer lasts from its sending to its arrival; a collective from "
        "its last rank's arrival to its end. Gradient exchanges run one after another and join small layers, up to the "
        "size named below, where the simulation sums every layer by itself, side by side: their sums of durations "
        "differ, their ends need not.",
        _stood_in(validation)
        if validation.stand_in
        else "Arithmetic is predicted by samples of the parts of layers, taken between the turns by the ranks that "
        "hold them, at once.",
    ]
    if all(s.bytes_equal for s in validation.strategies):
        notes.append("Every tensor moved exactly the bytes that the cost model prices; exchanges by the back end's own "
                     "ring are not counted.")  # fmt: skip
    else:
        notes.append("The bytes moved differ from those priced: see the table of tensors in the JSON output.")
    if validation.lab:
        notes.append("Messages crossed real queues between network namespaces; rates are those of payload.")
    if math.isfinite(loss):
        notes.append(
            "All strategies that compress nothing computed the same network: their losses differ by at most "
            f"{loss:.1e} of themselves."
        )
    return [*notes, *validation.notes]


def _stood_in(validation: "Validation") -> str:
    waits = "Arithmetic was stood in for by waits of the predicted length: only messages were real"
    if not validation.speedups:
        return f"{waits}."
    if validation.stand_in_codes:
        return f"{waits}; encoding and decoding were waits, too."
    return (
        f"{waits}, and what encodes and decodes them, on this machine's processor; that is predicted by samples of the "
        "data types, taken between the turns by all ranks at once."
    )


def _strategy_data(strategy: "StrategyValidation", devices: tuple[str, ...]) -> dict[str, Any]:
    """What the page draws on demand: tasks as points, and both timelines, simulated above measured."""
    known, names = side_by_side(strategy.simulated, strategy.measured, devices)
    return {
        "name": strategy.name,
        "tasks_figure": plain_figure(task_figure(strategy)),
        "colours": kind_colours(str(kind) for kind in known["kind"].unique()),
        "timeline": pack_timeline(known, names, ids=True),
    }
