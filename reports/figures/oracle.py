"""Figures of the oracle: iterations in parts, epochs and memory over the number of devices."""

from collections.abc import Callable, Sequence

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from reports.figures.look import log_ticks, styled
from reports.style.palette import BLUE, GREEN, MARK, OLIVE, ORANGE, PLAIN, PURPLE, kind_colours
from reports.style.units import Unit, memory_unit, time_unit
from studies.oracle.oracle_request import STRATEGIES
from studies.oracle.oracle_table import OracleRow, OracleTable

_KINDS = kind_colours(("forward", "update", "collective", "transfer", "compress", "weight_gradient"))
_PARTS = (
    ("forward_backward_s", "forward and backward", _KINDS["forward"], ""),
    ("update_s", "update", _KINDS["update"], ""),
    ("gradient_sync_s", "gradients", _KINDS["collective"], "/"),
    ("activations_s", "activations", _KINDS["transfer"], "\\"),
    ("halo_s", "halos", _KINDS["compress"], "x"),
    ("pipeline_s", "between stages", _KINDS["weight_gradient"], "-"),
)
_LINES = dict(
    zip(
        STRATEGIES,
        (
            (PLAIN, "diamond", "dot"),
            (BLUE, "circle", "solid"),
            (GREEN, "square", "solid"),
            (PURPLE, "triangle-up", "solid"),
            (ORANGE, "x", "solid"),
            (OLIVE, "cross", "solid"),
            (ORANGE, "x", "dash"),
            (GREEN, "square", "dash"),
        ),
        strict=True,
    )
)
"""Colour, marker and dash of each strategy; a hybrid has those of its inner strategy, with a dashed line."""
_COLUMNS = 2
"""Panels beside each other: on a phone the numbers of more would lie on their neighbours' bars."""


def iteration_figure(table: OracleTable) -> go.Figure:
    """Draw one panel for each strategy: the parts of the iteration over the number of devices.

    Source:
        Kahira et al., "An Oracle for Guiding Large-Scale Model/Hybrid Parallel Training of Convolutional Neural
        Networks", Figure 1.
    """
    names = [name for name in STRATEGIES if any(row.strategy == name for row in table.rows)]
    columns = min(_COLUMNS, len(names))
    lines = -(-len(names) // columns)
    figure = make_subplots(
        rows=lines, cols=columns, subplot_titles=names, vertical_spacing=0.36 / lines, horizontal_spacing=0.2
    )
    unit = time_unit([row.iteration_s for row in table.rows])
    shown = [part for part in _PARTS if any(getattr(row, part[0]) > 0 for row in table.rows)]
    for panel, name in enumerate(names):
        rows = [row for row in table.rows if row.strategy == name]
        place = {"row": panel // columns + 1, "col": panel % columns + 1}
        for attribute, label, colour, shape in shown:
            pattern = {"shape": shape, "size": 5, "solidity": 0.2, "bgcolor": colour, "fgcolor": "#fff"}
            values_s = [getattr(row, attribute) for row in rows]
            figure.add_bar(
                x=[str(row.devices) for row in rows],
                y=[value / unit.factor for value in values_s],
                name=label,
                legendgroup=label,
                showlegend=panel == 0,
                marker={"color": colour, "pattern": pattern},
                customdata=[
                    [f"{row.strategy} on {row.devices:,}", unit.full(value), unit.full(row.iteration_s)]
                    for row, value in zip(rows, values_s, strict=True)
                ],
                hovertemplate=f"%{{customdata[0]}}: {label} %{{customdata[1]}} of %{{customdata[2]}}<extra></extra>",
                **place,
            )
        if table.simulates:
            _add_simulated(figure, rows, unit, legend=panel == 0, place=place)
        figure.update_yaxes(title=f"[{unit.name}]" if place["col"] == 1 else None, automargin=True, **place)
    figure.update_xaxes(type="category", tickangle=-45, automargin=True)
    figure.update_annotations(font_size=12)
    return styled(
        figure, height=110 + 190 * lines, barmode="stack", bargap=0.2, legend={"y": 1.1 if lines > 1 else 1.2}
    )


def _add_simulated(
    figure: go.Figure, rows: Sequence[OracleRow], unit: Unit, *, legend: bool, place: dict[str, int]
) -> None:
    """Add marks for the simulated iteration, and for the computation in it, over the bars of the closed forms."""
    known = [(row, row.simulated) for row in rows if row.simulated and not row.simulated.refused]
    marks = (("iteration_s", "simulated iteration", "diamond"), ("compute_s", "simulated compute", "line-ew"))
    for attribute, label, symbol in marks:
        values_s = [float(getattr(second, attribute)) for _, second in known]
        figure.add_scatter(
            x=[str(row.devices) for row, _ in known],
            y=[value / unit.factor for value in values_s],
            name=label,
            legendgroup=label,
            showlegend=legend,
            mode="markers",
            marker={"symbol": symbol, "size": 9, "color": MARK, "line": {"color": MARK, "width": 2}},
            customdata=[unit.full(value) for value in values_s],
            hovertemplate=f"{label} %{{customdata}}<extra></extra>",
            **place,
        )


def epoch_figure(table: OracleTable) -> go.Figure:
    """Draw the time of an epoch over the number of devices; hollow markers do not fit, stars mark the fastest."""
    unit = time_unit([row.epoch_s for row in table.rows])
    figure = _lines(table, lambda row: row.epoch_s, unit)
    won = [row for p, name in table.winners.items() if (row := table.row(name, p)) is not None]
    figure.add_scatter(
        x=[row.devices for row in won],
        y=[row.epoch_s / unit.factor for row in won],
        name="winner",
        mode="markers",
        marker={"symbol": "star", "size": 13, "color": MARK, "line": {"color": "#fff", "width": 1}},
        hoverinfo="skip",
    )
    return _logarithmic(figure, table, f"one epoch [{unit.name}]", [row.epoch_s / unit.factor for row in table.rows])


def oracle_memory_figure(table: OracleTable) -> go.Figure:
    """Draw the memory of the fullest device over the number of devices, with the capacity."""
    capacity = table.device_memory_bytes
    unit = memory_unit([capacity])
    figure = _lines(table, lambda row: row.memory_bytes, unit)
    figure.add_scatter(
        x=[min(table.counts), max(table.counts)],
        y=[capacity / unit.factor] * 2,
        name="capacity",
        mode="lines",
        line={"width": 2, "color": MARK, "dash": "dot"},
        hovertemplate=f"capacity {unit.full(capacity)}<extra></extra>",
    )
    sizes = [row.memory_bytes / unit.factor for row in table.rows]
    return _logarithmic(figure, table, f"fullest device [{unit.name}]", [*sizes, capacity / unit.factor])


def _lines(table: OracleTable, value: Callable[[OracleRow], float], unit: Unit) -> go.Figure:
    figure = go.Figure()
    for name, (colour, symbol, dash) in _LINES.items():
        rows = [row for row in table.rows if row.strategy == name]
        if not rows:
            continue
        figure.add_scatter(
            x=[row.devices for row in rows],
            y=[value(row) / unit.factor for row in rows],
            name=name,
            mode="lines+markers",
            line={"color": colour, "dash": dash, "width": 2},
            marker={"symbol": [symbol if row.fits else f"{symbol}-open" for row in rows], "size": 8},
            customdata=[
                [unit.full(value(row)), row.degrees or "whole", "" if row.fits else "<br>does not fit"] for row in rows
            ],
            hovertemplate=f"{name} on %{{x:,}} (%{{customdata[1]}}): "
            "%{customdata[0]}%{customdata[2]}<extra></extra>",
        )
    return figure


def _logarithmic(figure: go.Figure, table: OracleTable, title: str, values: Sequence[float]) -> go.Figure:
    counts = list(table.counts)
    ends = min(values) / 1.4, max(values) * 1.4
    return styled(
        figure,
        height=430,
        xaxis={"title": "devices", "type": "log", "tickvals": counts, "ticktext": [f"{p:,}" for p in counts]},
        yaxis={"title": title, "type": "log", "automargin": True, "zeroline": False, **log_ticks(*ends)},
    )
