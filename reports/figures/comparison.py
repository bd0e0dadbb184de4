"""Figures of compared strategies: parts of an iteration, execution models from additive to contention, and memory."""

import json
from collections.abc import Sequence
from functools import cache
from typing import Any

import plotly.graph_objects as go

from planner.plan.comparison import Comparison, StrategyResult
from reports.figures.look import styled
from reports.style.palette import COMMUNICATION, COMPUTE, IDLE, MARK, PLAIN, RUNGS
from reports.style.plan_names import plan_ticks
from reports.style.units import Unit, memory_unit, time_unit

_PARTS = (
    ("compute_s", "compute", COMPUTE, ""),
    ("exposed_communication_s", "exposed communication", COMMUNICATION, "/"),
    ("idle_s", "idle", IDLE, ""),
)


def breakdown_figure(comparison: Comparison) -> go.Figure:
    """Draw the simulated iteration of each strategy as compute, exposed communication and idle time.

    The three add up to ``simulated_s``.  Whiskers show the 80 % interval about the expected time, which is printed
    behind them, and a mark the lower bound.
    """
    strategies = comparison.strategies
    unit, names = time_unit([s.simulated_s for s in strategies]), [s.name for s in strategies]
    figure = go.Figure()
    for attribute, label, colour, shape in _PARTS:
        pattern = {"shape": shape, "size": 6, "solidity": 0.2, "bgcolor": colour, "fgcolor": "#fff"}
        values_s = [getattr(s, attribute) for s in strategies]
        figure.add_bar(
            y=names,
            x=[value / unit.factor for value in values_s],
            name=label,
            orientation="h",
            marker={"color": colour, "pattern": pattern},
            customdata=[unit.full(value) for value in values_s],
            hovertemplate=f"%{{y}}: {label} %{{customdata}}<extra></extra>",
        )
    _mark_bounds(figure, comparison, unit)
    ends_s = [s.simulated_s for s in strategies]
    for i, strategy in enumerate(strategies):
        if strategy.likely_s:
            _add_whiskers(figure, strategy, unit)
            ends_s[i] = max(ends_s[i], strategy.likely_s[1])
    for s, end_s in zip(strategies, ends_s, strict=True):
        end = {"x": end_s / unit.factor, "y": s.name, "text": f"<b>{unit.full(s.expected_s)}</b>"}
        figure.add_annotation(**end, showarrow=False, xanchor="left", xshift=8)
    longest = max(ends_s) / unit.factor
    return styled(
        figure,
        height=150 + 44 * len(strategies),
        barmode="stack",
        bargap=0.35,
        xaxis={"title": f"time of one iteration [{unit.name}]", "range": [0, 1.32 * longest], "automargin": True},
        yaxis={"autorange": "reversed", "automargin": True, "ticksuffix": "  ", **plan_ticks(names)},
    )


def _add_whiskers(figure: go.Figure, strategy: StrategyResult, unit: Unit) -> None:
    """Draw the expected time of a strategy as a point on a line between the ends of its interval."""
    low, high = (end / unit.factor for end in strategy.likely_s or ())
    median = strategy.expected_s / unit.factor
    figure.add_scatter(
        y=[strategy.name],
        x=[median],
        name="likely",
        mode="markers",
        marker={"color": PLAIN, "size": 7},
        error_x={"array": [high - median], "arrayminus": [median - low], "color": PLAIN, "thickness": 2, "width": 7},
        hovertemplate=f"%{{y}}: expected %{{x:.4g}}, 80 % likely {low:.4g} to {high:.4g} {unit.name}<extra></extra>",
        showlegend=False,
    )


def _mark_bounds(figure: go.Figure, comparison: Comparison, unit: Unit) -> None:
    """Mark lower bounds by a line with a light border, which is visible on every part of a bar."""
    strategies = comparison.strategies
    for width, colour in ((7, "#fff"), (3, MARK)):
        figure.add_scatter(
            y=[s.name for s in strategies],
            x=[s.lower_bound_s / unit.factor for s in strategies],
            name="lower bound",
            mode="markers",
            marker={"symbol": "line-ns", "size": 28, "line": {"width": width, "color": colour}},
            customdata=[f"{unit.full(s.lower_bound_s)} ({s.bound_reason})" for s in strategies],
            hovertemplate="%{y}: lower bound %{customdata}<extra></extra>",
            showlegend=colour == MARK,
        )


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


def memory_figure(strategy: StrategyResult, devices: Sequence[str], capacity_bytes: Sequence[float]) -> go.Figure:
    """Draw one bar for the peak memory of each device, and a line at the capacities; one bar for replicas alike."""
    peaks = strategy.peak_memory_bytes
    if strategy.alike:
        alike: dict[tuple[float, float], list[str]] = {}
        for name, *kind in zip(devices, peaks, capacity_bytes, strict=True):
            alike.setdefault((kind[0], kind[1]), []).append(name)
        peaks, capacity_bytes = zip(*alike, strict=True)
        devices = [names[0] + (f" and {len(names) - 1:,} alike" if names[1:] else "") for names in alike.values()]
    unit = memory_unit([*peaks, *capacity_bytes])
    shares = [peak / size for peak, size in zip(peaks, capacity_bytes, strict=True)]
    figure = go.Figure()
    figure.add_bar(
        x=list(devices),
        y=[peak / unit.factor for peak in peaks],
        name="peak",
        marker={"color": COMPUTE},
        customdata=[f"{unit.full(peak)}, {share:.1%} of capacity" for peak, share in zip(peaks, shares, strict=True)],
        hovertemplate="%{x}: %{customdata}<extra></extra>",
    )
    figure.add_scatter(
        x=list(devices),
        y=[size / unit.factor for size in capacity_bytes],
        name="capacity",
        mode="lines",
        line={"shape": "hvh", "width": 2, "color": MARK, "dash": "dot"},
        hovertemplate=f"%{{x}}: capacity %{{y:.3~g}} {unit.name}<extra></extra>",
    )
    yaxis = {"title": f"memory [{unit.name}]", "rangemode": "tozero", "automargin": True}
    return styled(figure, height=300, bargap=0.15, yaxis=yaxis, xaxis={"type": "category", "automargin": True})
