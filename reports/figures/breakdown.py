"""Parts of an iteration: compute, exposed communication and idle time."""

import plotly.graph_objects as go

from planner.plan.comparison import Comparison, StrategyResult
from reports.figures.look import styled
from reports.style.palette import COMMUNICATION, COMPUTE, IDLE, MARK, PLAIN
from reports.style.plan_names import plan_ticks
from reports.style.units import Unit, time_unit

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
