"""Layout that all figures share; colours of text and grid come from the page's style sheet."""

import copy
import math
from collections.abc import Mapping, Sequence
from typing import Any

import plotly.graph_objects as go

from reports.style.palette import IDLE


def styled(figure: go.Figure, *, height: int = 340, **layout: Any) -> go.Figure:
    """Set margins, fonts and a transparent background, so that the figure fits light and dark themes.

    The layout is put together from plain values and set once: each update of a figure's own takes milliseconds.
    """
    figure.layout.template = "none"
    made = figure.layout.to_plotly_json()
    _add(
        made,
        {
            "height": height,
            "margin": {"l": 8, "r": 16, "t": 8, "b": 8},
            "paper_bgcolor": "rgba(0,0,0,0)",
            "plot_bgcolor": "rgba(0,0,0,0)",
            "font": {"family": "system-ui, sans-serif", "size": 12.5},
            "legend": {"orientation": "h", "y": 1.02, "yanchor": "bottom", "x": 0, "traceorder": "normal"},
            "xaxis": {"automargin": True, "zeroline": False},
            "yaxis": {"automargin": True, "zeroline": False},
        },
    )
    _add(made, go.Layout(**layout).to_plotly_json())
    for name in made:
        if name.startswith(("xaxis", "yaxis")):
            _add(made[name], {"title": {"font": {"size": 12.5}}})
        if name.startswith("yaxis"):
            _add(made[name], {"title": {"standoff": 10}})
    figure.layout = made
    return figure


def _add(values: dict[str, Any], more: Mapping[str, Any]) -> None:
    """Add values to nested ones, in their places."""
    for name, value in more.items():
        if isinstance(value, Mapping) and isinstance(values.get(name), dict):
            _add(values[name], value)
        else:
            values[name] = copy.deepcopy(value)


def error_bars(
    values: Sequence[float], ends: Sequence[tuple[float, float]], factor: float, **style: Any
) -> dict[str, Any]:
    """Return the whiskers from values to the ends of their intervals, all in a unit, as Plotly takes them."""
    pairs = list(zip(values, ends, strict=True))
    up = [max(high - value, 0.0) / factor for value, (_, high) in pairs]
    down = [max(value - low, 0.0) / factor for value, (low, _) in pairs]
    return {"type": "data", "symmetric": False, "array": up, "arrayminus": down, "thickness": 1, **style}


def add_equality(figure: go.Figure, low: float, high: float, *, band: float = 0.0) -> None:
    """Draw the line on which both axes are equal, in a band of so large a share of it on both sides."""
    ends = [low, high]
    if band:
        edge = {"mode": "lines", "line": {"width": 0}, "hoverinfo": "skip"}
        fill = {"fill": "tonexty", "fillcolor": "rgba(154,163,173,.3)", "name": f"within {band:.0%}"}
        figure.add_scatter(x=ends, y=[end * (1 - band) for end in ends], showlegend=False, **edge)
        figure.add_scatter(x=ends, y=[end * (1 + band) for end in ends], **edge, **fill)
    style = {"width": 1.5, "dash": "dash", "color": IDLE}
    figure.add_scatter(x=ends, y=ends, mode="lines", line=style, name="equal", hoverinfo="skip")


def spread_out(values: Sequence[float]) -> bool:
    """Return whether positive values span more than a factor of ten, so that they need a logarithmic axis."""
    return bool(values) and min(values) > 0 and max(values) > 10 * min(values)


def log_ticks(low: float, high: float) -> dict[str, list[Any]]:
    """Return ticks at 1, 2 and 5 times the powers of ten between two positive numbers, as Plotly takes them."""
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    values = [float(f"{digit}e{power}") for power in powers for digit in (1, 2, 5)]
    shown = [value for value in values if low <= value <= high]
    return {"tickvals": shown, "ticktext": [f"{value:,g}" for value in shown]}
