"""Timeline of one iteration on all devices: a bar for each task, or cells if there are too many tasks."""

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from groundwork.array_types import Ints
from planner.simulation.program_replay import Replay
from reports.drawings.timeline_layout import timeline_rows
from reports.figures.look import styled
from reports.style.palette import kind_colours
from reports.style.units import Unit, time_unit

_MOST_BARS = 6000
_CELLS = 1000


def timeline_figure(replay: Replay, *, most_bars: int = _MOST_BARS) -> go.Figure:
    """Draw the steady iteration with one row for each stream of a device; the title says if tasks are merged.

    Args:
        replay: Replay of a program.
        most_bars: Largest number of tasks that are drawn as bars.  With more tasks, each row is divided into cells,
            and a cell shows the kind that takes most of its time.
    """
    tasks = replay.timeline()
    rows, row = timeline_rows(tasks, list(replay.program.cluster.devices.names))
    unit = time_unit([float(tasks["end_s"].max())])
    exact = len(tasks) <= most_bars
    figure = _bars(tasks, row, unit) if exact else _cells(tasks, row, len(rows), unit)
    cell = time_unit([tasks["end_s"].max() / _CELLS]).full(tasks["end_s"].max() / _CELLS)
    said = "each a bar" if exact else f"cells of {cell} with the kind that takes most"
    step = max(1, len(rows) // 40)
    shown = list(range(0, len(rows), step))
    return styled(
        figure,
        height=min(900, 120 + 18 * len(rows)),
        barmode="overlay",
        title={"text": f"{len(tasks):,} tasks, {said}", "font": {"size": 13}},
        margin={"l": 8, "r": 16, "t": 40, "b": 8},
        xaxis={"title": f"time [{unit.name}]", "automargin": True, "zeroline": False},
        yaxis={
            "tickvals": shown,
            "ticktext": [rows[i] for i in shown],
            "range": [len(rows) - 0.5, -0.5],
            "automargin": True,
            "zeroline": False,
        },
    )


def _bars(tasks: pd.DataFrame, row: Ints, unit: Unit) -> go.Figure:
    figure = go.Figure()
    for kind, colour in kind_colours(tasks["kind"]).items():
        mine = (tasks["kind"] == kind).to_numpy()
        figure.add_bar(
            y=row[mine],
            base=tasks["start_s"][mine] / unit.factor,
            x=(tasks["end_s"] - tasks["start_s"])[mine] / unit.factor,
            orientation="h",
            name=kind.replace("_", " "),
            customdata=tasks["name"][mine],
            marker={"color": colour, "line": {"width": 0}},
            hovertemplate=f"%{{customdata}}<br>%{{x:.4~g}} {unit.name} from %{{base:.4~g}}<extra></extra>",
        )
    return figure


def _cells(tasks: pd.DataFrame, row: Ints, rows: int, unit: Unit) -> go.Figure:
    colours = kind_colours(tasks["kind"])
    kinds, end_s = list(colours), float(tasks["end_s"].max())
    busy = np.zeros((len(kinds), rows, _CELLS))
    code = tasks["kind"].map(kinds.index).to_numpy()
    edges = np.arange(_CELLS + 1)
    starts, ends = (tasks[key].to_numpy() / end_s * _CELLS for key in ("start_s", "end_s"))
    for kind, place, start, end in zip(code, row, starts, ends, strict=True):
        cells = slice(int(start), min(int(np.ceil(end)), _CELLS))
        busy[kind, place, cells] += np.minimum(edges[1:][cells], end) - np.maximum(edges[:-1][cells], start)
    most = np.where(busy.max(axis=0) > 0, busy.argmax(axis=0).astype(float), np.nan)
    steps = [(k / len(kinds), (k + 1) / len(kinds), colours[kind]) for k, kind in enumerate(kinds)]
    figure = go.Figure()
    figure.add_heatmap(
        z=most,
        x0=end_s / unit.factor / _CELLS / 2,
        dx=end_s / unit.factor / _CELLS,
        zmin=-0.5,
        zmax=len(kinds) - 0.5,
        colorscale=[[at, colour] for low, high, colour in steps for at in (low, high)],
        colorbar={"tickvals": list(range(len(kinds))), "ticktext": [kind.replace("_", " ") for kind in kinds]},
        hoverongaps=False,
    )
    return figure
