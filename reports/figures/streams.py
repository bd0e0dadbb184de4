"""Figures of stream schedules: iteration times, timelines, and occupancy over time."""

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from reports.figures.look import styled
from reports.style.palette import COMMUNICATION, IDLE, MARK, RUNGS, kind_colours
from reports.style.units import time_unit
from studies.streams.schedule_comparison import ScheduleResult, StreamComparison

_KINDS = ("forward", "epilogue_gradient", "activation_gradient", "weight_gradient", "bias_gradient", "update")
_LINES = (IDLE, RUNGS[1], COMMUNICATION, MARK)
_ROW_HEIGHT, _PANEL_HEIGHT = 26, 64


def ladder_of_streams(comparison: StreamComparison) -> go.Figure:
    """Draw one bar for each schedule with its gain, and a mark at its lower bound."""
    unit = time_unit([row.iteration_s for row in comparison.results])
    names = [row.name for row in comparison.results]
    colours = [RUNGS[i % len(RUNGS)] for i in range(1, len(names) + 1)]
    longest = max(row.iteration_s for row in comparison.results) / unit.factor
    figure = go.Figure()
    figure.add_bar(
        y=names,
        x=[row.iteration_s / unit.factor for row in comparison.results],
        orientation="h",
        marker={"color": colours},
        text=[f"{unit.full(row.iteration_s)}<br>{comparison.gain(row):.2f}×" for row in comparison.results],
        textposition="outside",
        cliponaxis=False,
        showlegend=False,
        hovertemplate="%{y}: %{text}<extra></extra>",
    )
    figure.add_scatter(
        y=names,
        x=[row.bound_s / unit.factor for row in comparison.results],
        mode="markers",
        name="lower bound",
        marker={"symbol": "line-ns", "size": 22, "line": {"width": 3, "color": MARK}},
        hovertemplate=f"%{{y}}: not below %{{x:.3~g}} {unit.name}<extra></extra>",
    )
    return styled(
        figure,
        height=70 + 44 * len(names),
        yaxis={"autorange": "reversed", "automargin": True},
        xaxis={"title": f"iteration [{unit.name}]", "range": [0, 1.45 * longest], "automargin": True},
    )


def timelines_figure(comparison: StreamComparison) -> go.Figure:
    """Draw one panel for each schedule, with a row for each stream and a bar for each sub-task; gaps are waits."""
    unit = time_unit([float(row.timeline["end_s"].max()) for row in comparison.results])
    heights = [_PANEL_HEIGHT + _ROW_HEIGHT * len(_rows(row)) for row in comparison.results]
    figure = make_subplots(
        rows=len(comparison.results),
        cols=1,
        shared_xaxes=True,
        row_heights=[float(height) for height in heights],
        vertical_spacing=48 / sum(heights) if len(heights) > 1 else 0,
        subplot_titles=[
            f"{row.name}{f' ({row.method})' if row.method else ''} {comparison.gain(row):.2f}×"
            for row in comparison.results
        ],
    )
    colours = kind_colours(_KINDS)
    for panel, result in enumerate(comparison.results, start=1):
        for kind in _KINDS:
            tasks = result.timeline[result.timeline["kind"] == kind]
            if len(tasks):
                figure.add_bar(
                    y=tasks["stream"].tolist(),
                    base=(tasks["start_s"] / unit.factor).tolist(),
                    x=((tasks["end_s"] - tasks["start_s"]) / unit.factor).tolist(),
                    customdata=tasks["name"].tolist(),
                    orientation="h",
                    name=kind.replace("_", " "),
                    legendgroup=kind,
                    showlegend=panel == 1,
                    marker={"color": colours[kind], "line": {"width": 0}},
                    hovertemplate=f"%{{customdata}}: %{{x:,.3f}} {unit.name} from %{{base:,.3f}}<extra></extra>",
                    row=panel,
                    col=1,
                )
        figure.update_yaxes(categoryorder="array", categoryarray=_rows(result)[::-1], automargin=True, row=panel, col=1)
    figure.update_xaxes(title=f"time [{unit.name}]", row=len(comparison.results), col=1)
    height = 130 + sum(heights)
    margin = {"l": 8, "r": 16, "t": 8, "b": 48}
    legend = {"y": 1.0 + 40 / sum(heights)}
    figure.update_annotations(font_size=12)
    return styled(figure, height=height, margin=margin, barmode="overlay", bargap=0.25, legend=legend)


def _rows(result: ScheduleResult) -> list[str]:
    shown = set(result.timeline["stream"])
    return [label for label in (*result.labels, "updates") if label in shown]


def occupancy_figure(comparison: StreamComparison) -> go.Figure:
    """Draw the share of the device in use over an iteration, one line for each schedule."""
    unit = time_unit([float(row.edges_s[-1]) for row in comparison.results])
    figure = go.Figure()
    for i, row in enumerate(comparison.results):
        figure.add_scatter(
            x=(row.edges_s[:-1] / unit.factor).tolist(),
            y=row.use.tolist(),
            mode="lines",
            name=f"{row.name}, mean {row.occupancy:.0%}",
            line={"shape": "hv", "width": 1.6, "color": _LINES[i % len(_LINES)]},
            hovertemplate=f"{row.name}: %{{y:.0%}} at %{{x:,.2f}} {unit.name}<extra></extra>",
        )
    yaxis = {"title": "share of the device", "range": [0, 1.02], "tickformat": ".0%", "automargin": True}
    return styled(figure, height=300, yaxis=yaxis, xaxis={"title": f"time [{unit.name}]", "automargin": True})
