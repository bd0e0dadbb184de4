"""Predicted and measured times: iterations under every execution model, and durations of single tasks."""

from typing import TYPE_CHECKING

import numpy as np
import plotly.graph_objects as go

from reports.figures.look import add_equality, error_bars, log_ticks, styled
from reports.style.palette import COMMUNICATION, MARK, RUNGS, kind_colours
from reports.style.units import time_unit

if TYPE_CHECKING:
    from executor.validation.validation_result import StrategyValidation, Validation


BAND = 0.1
"""Half width of the band of tasks that are predicted well."""


def measured_ladder_figure(validation: "Validation") -> go.Figure:
    """Draw, for each strategy, one bar for each execution model and one for the measurement, with its quartiles."""
    strategies = validation.strategies
    unit = time_unit([value for s in strategies for value in s.ladder_s.values()])
    names, figure = [s.name for s in strategies], go.Figure()
    models = list(strategies[0].ladder_s)
    for model, colour in zip(models, [*RUNGS[: len(models) - 1], COMMUNICATION], strict=True):
        values_s = [s.ladder_s[model] for s in strategies]
        spread = None
        if model == "measured":
            spread = error_bars(values_s, [s.quartiles_s for s in strategies], unit.factor, thickness=1.5, color=MARK)
        figure.add_bar(
            y=names,
            x=[value / unit.factor for value in values_s],
            name=model,
            orientation="h",
            marker={"color": colour, "line": {"width": 0.5, "color": RUNGS[3]}},
            error_x=spread,
            customdata=[unit.full(value) for value in values_s],
            hovertemplate=f"%{{y}}: {model} %{{customdata}}<extra></extra>",
        )
    for s in strategies:
        figure.add_annotation(
            x=max(s.ladder_s["measured"], s.quartiles_s[1], s.ladder_s["contention"]) / unit.factor,
            y=s.name,
            text="<b>too noisy to judge</b>" if s.noisy else f"<b>{s.error:+z.1%}</b>".replace("-", "−"),
            showarrow=False,
            xanchor="left",
            xshift=10,
            yshift=-14,
        )
    longest = max(value for s in strategies for value in (*s.ladder_s.values(), *s.quartiles_s)) / unit.factor
    return styled(
        figure,
        barmode="group",
        bargap=0.25,
        height=110 + (16 * len(models) + 16) * len(strategies),
        xaxis={"title": f"time of one iteration [{unit.name}]", "range": [0, 1.12 * longest], "automargin": True},
        yaxis={"autorange": "reversed", "automargin": True, "ticksuffix": "  "},
    )


def task_figure(strategy: "StrategyValidation") -> go.Figure:
    """Draw the predicted duration of every task over the measured one, with a band of 10 % about equality."""
    tasks = strategy.tasks[(strategy.tasks["predicted_s"] > 0) & (strategy.tasks["measured_s"] > 0)]
    times_s = np.concatenate([tasks["predicted_s"], tasks["measured_s"]])
    unit, figure = time_unit([float(np.median(times_s)) if len(times_s) else 1.0]), go.Figure()
    low, high = ((times_s.min() / 1.5, times_s.max() * 1.5) if len(times_s) else (1.0, 10.0)) / np.array(unit.factor)
    add_equality(figure, float(low), float(high), band=BAND)
    for kind, colour in kind_colours(str(kind) for kind in tasks["kind"].unique()).items():
        mine = tasks[tasks["kind"] == kind]
        figure.add_scatter(
            x=mine["measured_s"] / unit.factor,
            y=mine["predicted_s"] / unit.factor,
            mode="markers",
            marker={"color": colour, "size": 7, "opacity": 0.75, "line": {"width": 0.5, "color": RUNGS[4]}},
            name=kind.replace("_", " "),
            text=mine["name"],
            customdata=[f"{error:+z.1%}" for error in mine["error"]],
            hovertemplate="%{text}<br>predicted %{y:.4~g}, measured %{x:.4~g} "
            + unit.name
            + "<br>%{customdata}<extra></extra>",
        )
    axis = {"type": "log", "automargin": True, "zeroline": False, **log_ticks(float(low), float(high))}
    powers = np.log10([low, high]).tolist()
    return styled(
        figure,
        height=420,
        xaxis={"title": f"measured, median [{unit.name}]", "range": powers, **axis},
        yaxis={"title": f"predicted [{unit.name}]", "range": powers, **axis},
    )
