"""Errors of all comparisons: from the 10th to the 90th percentile of predicted over measured time."""

import math

import plotly.graph_objects as go

from reports.figures.look import log_ticks, styled
from reports.style import BLUE, GREEN, MARK, OLIVE, ORANGE, PLAIN, PURPLE
from studies.fidelity import ErrorSummary

__all__ = ["fidelity_figure"]

_COLOURS = {"kernels": BLUE, "one-gpu": ORANGE, "many-gpu": GREEN, "collectives": PURPLE, "papers": OLIVE}
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
        "title": "predicted over measured time", "type": "log", "automargin": True, "side": "top",
        "range": [math.log10(low * 0.9), math.log10(high * 1.1)], **log_ticks(low * 0.9, high * 1.1),
    }  # fmt: skip
    yaxis = {"range": [len(known) - 0.3, -0.7], "automargin": True, "ticksuffix": "  ", "dtick": 1}
    legend = {"orientation": "h", "y": -0.01, "yanchor": "top", "x": 0}
    return styled(figure, height=120 + _ROW_PIXELS * len(known), bargap=0.2, xaxis=xaxis, yaxis=yaxis, legend=legend)
