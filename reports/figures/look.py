"""Layout that all figures share; colours of text and grid come from the page's style sheet."""

import math
from collections.abc import Sequence
from typing import Any

import plotly.graph_objects as go


def styled(figure: go.Figure, *, height: int = 340, **layout: Any) -> go.Figure:
    """Set margins, fonts and a transparent background, so that the figure fits light and dark themes."""
    return (
        figure.update_layout(
            template="none",
            height=height,
            margin={"l": 8, "r": 16, "t": 8, "b": 8},
            paper_bgcolor="rgba(0,0,0,0)",
            plot_bgcolor="rgba(0,0,0,0)",
            font={"family": "system-ui, sans-serif", "size": 12.5},
            legend={"orientation": "h", "y": 1.02, "yanchor": "bottom", "x": 0, "traceorder": "normal"},
            xaxis={"automargin": True, "zeroline": False},
            yaxis={"automargin": True, "zeroline": False},
        )
        .update_layout(**layout)
        .update_xaxes(title_font_size=12.5)
        .update_yaxes(title_font_size=12.5, title_standoff=10)
    )


def spread_out(values: Sequence[float]) -> bool:
    """Return whether positive values span more than a factor of ten, so that they need a logarithmic axis."""
    return bool(values) and min(values) > 0 and max(values) > 10 * min(values)


def log_ticks(low: float, high: float) -> dict[str, list[Any]]:
    """Return ticks at 1, 2 and 5 times the powers of ten between two positive numbers, as Plotly takes them."""
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    values = [float(f"{digit}e{power}") for power in powers for digit in (1, 2, 5)]
    shown = [value for value in values if low <= value <= high]
    return {"tickvals": shown, "ticktext": [f"{value:,g}" for value in shown]}
