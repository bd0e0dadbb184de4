"""Figures of decisions: the curve of a question of size with its limit and answer, and scenarios beside today."""

import math
from typing import Any

import pandas as pd
import plotly.graph_objects as go

from groundwork.errors import ConfigError
from groundwork.units import GIB, GIGA, HOUR_S
from reports.figures.look import error_bars, log_ticks, spread_out, styled
from reports.style.palette import MARK, SERIES, SYMBOLS
from reports.tables.sweep_columns import column_label, column_unit
from studies.size.size_answer import CurvePoint, SizeAnswer
from studies.whatif.scenarios import WhatIf


def sweep_figure(
    frame: pd.DataFrame, *, x: str = "devices", y: str = "iteration_s", colour: str = "strategy"
) -> go.Figure:
    """Draw one column over another, with a line for each value of a third; of points at one x the fastest an image.

    Raises:
        ConfigError: A column does not exist, or no point has a value in both ``x`` and ``y``.
    """
    for option, name in (("x", x), ("y", y), ("colour", colour)):
        if name not in frame.columns:
            raise ConfigError(f"{option} must name one of {', '.join(frame.columns)}, got {name!r}")
    points = frame[frame[x].notna() & frame[y].notna()]
    if points.empty:
        raise ConfigError(f"no point has both {x} and {y}")
    # Iterations of different batches do not compare, times of a sample do.
    sample_s = points["iteration_s"] / points["batch"] if {"iteration_s", "batch"} <= set(points) else points[y]
    best = points.loc[sample_s.groupby([points[colour], points[x]]).idxmin()]
    unit, across = column_unit(best, y), best[x].nunique()
    figure = go.Figure()
    for i, (value, rows) in enumerate(best.groupby(colour)):
        figure.add_scatter(
            x=rows[x],
            y=rows[y] / unit.factor,
            name=str(value),
            mode="lines+markers",
            line={"color": SERIES[i % len(SERIES)], "dash": "solid" if i < len(SERIES) else "dash"},
            marker={"symbol": SYMBOLS[i % len(SYMBOLS)], "size": 8},
            hovertemplate=f"{value}: %{{y:.4~g}} {unit.name} at %{{x}}<extra></extra>",
        )
    values = (best[y] / unit.factor).tolist()
    yaxis: dict[str, Any] = {"type": "log", **log_ticks(min(values), max(values))} if spread_out(values) else {}
    xaxis = {"title": column_label(x).replace("_", " "), "automargin": True}
    if across <= 12:
        xaxis |= {"tickvals": sorted(best[x].unique().tolist())}
    title = f"{column_label(y).replace('_', ' ')} [{unit.name}]" if unit.name else column_label(y).replace("_", " ")
    return styled(figure, height=400, xaxis=xaxis, yaxis={"title": title, "automargin": True, **yaxis})


_SCALES = {"time": (HOUR_S, "time [h]"), "memory": (GIB, "memory [GiB]"), "loss": (0.01, "samples/s lost [%]")}
"""Unit and title of the vertical axis by measure."""
_AXES = {"bytes/s": (GIGA, "bandwidth [GB/s]"), "samples a device": (1, "samples a device"), "devices": (1, "devices")}
"""Unit and title of the horizontal axis."""


def size_figure(answer: SizeAnswer) -> go.Figure:
    """Draw the quantity over the axis of a question, with 80 % intervals, the limit, and the answer as a star."""
    rows = [row for row in answer.curve if math.isfinite(row.quantity)]
    factor, title = _SCALES.get(answer.measure, (1.0, answer.measure))
    if answer.measure == "time" and rows and max(row.quantity for row in rows) < HOUR_S:
        factor, title = 1.0, "time [s]"
    unit, across = _AXES.get(answer.axis, (1, "offer"))
    figure = go.Figure()
    bases = list(dict.fromkeys(row.point.sized.base for row in rows))
    for i, base in enumerate(bases):
        shown = [row for row in rows if row.point.sized.base == base]
        _add_curve(figure, answer, shown, base or across, SERIES[i % len(SERIES)], unit, factor)
    if answer.best is not None:
        at = _x(answer, answer.best, unit)
        figure.add_scatter(
            x=[at],
            y=[answer.best.quantity / factor],
            mode="markers",
            name="answer",
            marker={"symbol": "star", "size": 15, "color": MARK},
            hoverinfo="skip",
        )
    if answer.limit is not None:
        figure.add_hline(y=answer.limit / factor, line={"color": MARK, "width": 1.5, "dash": "dash"})
    limit = [] if answer.limit is None else [answer.limit]
    values = [value / factor for value in [*(row.quantity for row in rows), *limit]]
    xs = [row.x for row in rows]
    kind = "category" if answer.axis == "offer" else "log" if spread_out(xs) else "linear"
    tried = sorted({row.x / unit for row in rows})  # ticks stand at what was tried: devices and samples are whole
    across_ticks = {} if kind == "category" else {"tickvals": tried, "ticktext": [f"{x:,.4g}" for x in tried]}
    up_ticks = log_ticks(min(values), max(values)) if spread_out(values) else {}
    return styled(
        figure,
        height=400,
        xaxis={"title": across, "type": kind, "automargin": True, **across_ticks},
        yaxis={"title": title, "type": "log" if spread_out(values) else "linear", "automargin": True, **up_ticks},
    )


def _x(answer: SizeAnswer, row: CurvePoint, unit: float) -> float | str:
    """Return a point's place on the horizontal axis."""
    return row.point.cluster if answer.axis == "offer" else row.x / unit


def _add_curve(
    figure: go.Figure, answer: SizeAnswer, rows: list[CurvePoint], name: str, colour: str, unit: float, factor: float
) -> None:
    """Add the points of one cluster, with whiskers for their intervals."""
    ends = [row.likely or (row.quantity, row.quantity) for row in rows]
    figure.add_scatter(
        x=[_x(answer, row, unit) for row in rows],
        y=[row.quantity / factor for row in rows],
        error_y=error_bars([row.quantity for row in rows], ends, factor),
        mode="markers" if answer.axis == "offer" else "lines+markers",
        name=name,
        line={"color": colour},
        hovertemplate="%{x}: %{y:.4~g}<extra></extra>",
    )


def whatif_figure(result: WhatIf) -> go.Figure:
    """Draw samples per second of every scenario, relative to the same strategy today; impossible points have no bar."""
    scenarios = list(dict.fromkeys(row.scenario for row in result.rows))
    figure = go.Figure()
    for i, strategy in enumerate(dict.fromkeys(row.strategy for row in result.rows)):
        rows = [row for row in result.rows if row.strategy == strategy and row.against_today == row.against_today]
        ends = [row.likely_against_today or (row.against_today, row.against_today) for row in rows]
        figure.add_bar(
            y=[row.scenario for row in rows],
            x=[100 * (row.against_today - 1) for row in rows],
            orientation="h",
            error_x=error_bars([row.against_today for row in rows], ends, 0.01),
            name=strategy,
            marker={"color": SERIES[i % len(SERIES)]},
            hovertemplate=f"%{{y}}: {strategy} %{{x:+.1f}} %<extra></extra>",
        )
    figure.add_vline(x=0, line={"color": MARK, "width": 1.5})
    return styled(
        figure,
        barmode="group",
        height=110 + 20 * len(scenarios) * max(len(figure.data), 1),
        xaxis={"title": "samples/s, change from today [%]", "automargin": True},
        yaxis={"categoryorder": "array", "categoryarray": scenarios[::-1], "automargin": True},
    )
