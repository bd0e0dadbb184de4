"""Results of a sweep as lines."""

from typing import Any

import pandas as pd
import plotly.graph_objects as go

from groundwork.errors import ConfigError
from reports.figures.look import log_ticks, spread_out, styled
from reports.style.palette import SERIES, SYMBOLS
from reports.tables.sweep_columns import column_label, column_unit


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
