"""Errors of all comparisons by percentiles, and the printed values of a paper beside ours."""

import math
from collections.abc import Sequence
from itertools import cycle

import plotly.graph_objects as go

from reports.figures.look import add_equality, log_ticks, styled
from reports.style.palette import BLUE, GREEN, MARK, OLIVE, ORANGE, PLAIN, PURPLE, SERIES, SYMBOLS
from reports.tables.reproduced_values import ReproducedValue
from studies.fidelity.error_summary import ErrorSummary

_BAND = 0.1
_COLOURS = {
    "kernels": BLUE,
    "one-gpu": ORANGE,
    "many-gpu": GREEN,
    "collectives": PURPLE,
    "transformers": SERIES[5],
    "papers": OLIVE,
}
_ROW_PIXELS = 19


def fidelity_figure(summaries: tuple[ErrorSummary, ...]) -> go.Figure:
    """Draw a bar for each comparison whose rows are known; predictions on the line are right."""
    figure, known = go.Figure(), [each for each in summaries if math.isfinite(each.low)]
    for kind, colour in _COLOURS.items():
        own = [each for each in known if each.kind == kind]
        if own:
            figure.add_bar(
                y=[each.name for each in own],
                base=[each.low for each in own],
                x=[each.high - each.low for each in own],
                name=kind,
                orientation="h",
                marker={"color": colour, "opacity": 0.75},
                width=0.62,
                customdata=[f"{each.low:.2f} to {each.high:.2f}, {each.rows} rows" for each in own],
                hovertemplate="%{y}<br>10th to 90th percentile: %{customdata}<extra></extra>",
            )
    figure.add_scatter(
        y=[each.name for each in known],
        x=[each.centre for each in known],
        name="median",
        mode="markers",
        marker={"color": PLAIN, "size": 6, "symbol": "diamond"},
        hovertemplate="%{y}<br>median %{x:.2f}<extra></extra>",
    )
    low = min([0.5, *(each.low for each in known)])
    high = max([2.0, *(each.high for each in known)])
    figure.add_vline(x=1.0, line={"color": MARK, "width": 2})
    xaxis = {
        "title": "predicted over measured",
        "type": "log",
        "automargin": True,
        "side": "top",
        "range": [math.log10(low * 0.9), math.log10(high * 1.1)],
        **log_ticks(low * 0.9, high * 1.1),
    }
    yaxis = {"range": [len(known) - 0.3, -0.7], "automargin": True, "ticksuffix": "  ", "dtick": 1}
    legend = {"orientation": "h", "y": -0.01, "yanchor": "top", "x": 0}
    return styled(figure, height=120 + _ROW_PIXELS * len(known), bargap=0.2, xaxis=xaxis, yaxis=yaxis, legend=legend)


def printed_figure(values: Sequence[ReproducedValue]) -> go.Figure:
    """Draw our value over the printed one for all numbers above 0, by table; the band is 10 % about equality."""
    points = [each for each in values if each.point is not None]
    numbers = [number for each in points if each.point for number in each.point]
    low, high = (min(numbers) / 1.6, max(numbers) * 1.6) if numbers else (0.1, 10.0)
    figure = go.Figure()
    add_equality(figure, low, high, band=_BAND)
    looks = cycle(zip(SERIES, SYMBOLS, strict=True))
    for table in dict.fromkeys(each.table for each in points):
        own, (colour, symbol) = [each for each in points if each.table == table], next(looks)
        figure.add_scatter(
            x=[each.point[0] for each in own if each.point],
            y=[each.point[1] for each in own if each.point],
            mode="markers",
            name=table,
            marker={"color": colour, "symbol": symbol, "size": 9, "opacity": 0.8},
            text=[f"{each.claim} [{each.unit}]<br>{each.difference}" for each in own],
            hovertemplate="%{text}<br>printed %{x:.4~g}, ours %{y:.4~g}<extra></extra>",
        )
    axis = {"type": "log", "range": [math.log10(low), math.log10(high)], **_ticks(low, high), "automargin": True}
    return styled(
        figure, height=480, xaxis={**axis, "title": "printed, each in its unit"}, yaxis={**axis, "title": "ours"}
    )


def _ticks(low: float, high: float) -> dict[str, object]:
    """Return ticks at 1, 2 and 5 of every power of ten, or at powers alone where there are many."""
    ticks = log_ticks(low, high)
    if len(ticks["tickvals"]) <= 12:
        return dict(ticks)
    kept = [i for i, value in enumerate(ticks["tickvals"]) if math.log10(value).is_integer()]
    return {key: [column[i] for i in kept] for key, column in ticks.items()}
