"""The ladder: one program replayed under several execution models, from additive to contention."""

import json
from functools import cache
from typing import Any

import plotly.graph_objects as go

from planner.plan.comparison import Comparison
from reports.figures.look import styled
from reports.style.palette import RUNGS
from reports.style.plan_names import plan_ticks
from reports.style.units import time_unit


def ladder_models(comparison: Comparison) -> list[str]:
    """Return the execution models that any strategy has a time for, in order."""
    return list(dict.fromkeys(model for s in comparison.strategies for model in s.ladder_s))


def ladder_figure(comparison: Comparison) -> go.Figure:
    """Draw, for each strategy, one bar for each execution model; a step shows what its model adds."""
    return go.Figure(plain_ladder(comparison))


def plain_ladder(comparison: Comparison) -> dict[str, Any]:
    """Return ``ladder_figure`` as plain values, in a hundredth of the time."""
    unit = time_unit([value for s in comparison.strategies for value in s.ladder_s.values()])
    bars, names = [], [s.name for s in comparison.strategies]
    for i, model in enumerate(ladder_models(comparison)):
        colour = RUNGS[min(i, len(RUNGS) - 1)]
        values_s = [s.ladder_s.get(model) for s in comparison.strategies]
        bars.append(
            {
                "type": "bar",
                "y": names,
                "x": [None if value is None else value / unit.factor for value in values_s],
                "name": model,
                "orientation": "h",
                "marker": {"color": colour, "line": {"width": 0.5, "color": RUNGS[3]}},
                "text": ["" if value is None else " " + unit.text(value) for value in values_s],
                "textposition": "outside",
                "cliponaxis": False,
                "customdata": ["" if value is None else unit.full(value) for value in values_s],
                "hovertemplate": f"%{{y}}: {model} %{{customdata}}<extra></extra>",
            }
        )
    layout = json.loads(_layout())
    layout["height"] = 110 + (16 * len(bars) + 16) * len(comparison.strategies)
    layout["yaxis"] |= plan_ticks(names)
    layout["xaxis"]["title"]["text"] = f"time of one iteration [{unit.name}]"
    # room for the number behind the longest bar, on a narrow page too
    longest = max(value for s in comparison.strategies for value in s.ladder_s.values()) / unit.factor
    layout["xaxis"]["range"] = [0, 1.22 * longest]
    return {"data": bars, "layout": layout}


@cache
def _layout() -> str:
    """Return the layout but for its height, unit and range, as JSON: Plotly takes long to check one."""
    yaxis = {"autorange": "reversed", "automargin": True, "ticksuffix": "  "}
    xaxis = {"title": "", "automargin": True}
    text: str = styled(go.Figure(), barmode="group", bargap=0.25, xaxis=xaxis, yaxis=yaxis).to_json()
    return json.dumps(json.loads(text)["layout"])
