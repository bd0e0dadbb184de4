"""The ladder: one program replayed under several execution models, from additive to contention."""

import plotly.graph_objects as go

from planner.plan import Comparison
from reports.figures.look import styled
from reports.style import RUNGS, time_unit

__all__ = ["ladder_figure", "ladder_models"]


def ladder_models(comparison: Comparison) -> list[str]:
    """Return the execution models that any strategy has a time for, in order."""
    return list(dict.fromkeys(model for s in comparison.strategies for model in s.ladder_s))


def ladder_figure(comparison: Comparison) -> go.Figure:
    """Draw, for each strategy, one bar for each execution model; a step shows what its model adds."""
    unit = time_unit([value for s in comparison.strategies for value in s.ladder_s.values()])
    figure = go.Figure()
    for model, colour in zip(ladder_models(comparison), _shades(len(ladder_models(comparison))), strict=True):
        values_s = [s.ladder_s.get(model, float("nan")) for s in comparison.strategies]
        figure.add_bar(
            y=[s.name for s in comparison.strategies],
            x=[value / unit.factor for value in values_s],
            name=model,
            orientation="h",
            marker={"color": colour, "line": {"width": 0.5, "color": RUNGS[3]}},
            text=[" " + unit.text(value) for value in values_s],
            textposition="outside",
            cliponaxis=False,
            customdata=[unit.full(value) for value in values_s],
            hovertemplate=f"%{{y}}: {model} %{{customdata}}<extra></extra>",
        )
    # room for the number behind the longest bar, on a narrow page too
    longest = max(value for s in comparison.strategies for value in s.ladder_s.values()) / unit.factor
    xaxis = {"title": f"time of one iteration [{unit.name}]", "range": [0, 1.22 * longest], "automargin": True}
    yaxis = {"autorange": "reversed", "automargin": True, "ticksuffix": "  "}
    height = 110 + (16 * len(figure.data) + 16) * len(comparison.strategies)
    return styled(figure, barmode="group", bargap=0.25, height=height, xaxis=xaxis, yaxis=yaxis)


def _shades(count: int) -> list[str]:
    return [RUNGS[min(i, len(RUNGS) - 1)] for i in range(count)]
