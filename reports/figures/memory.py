"""Peak memory of every device compared with its capacity."""

from collections.abc import Sequence

import plotly.graph_objects as go

from planner.plan.comparison import StrategyResult
from reports.figures.look import styled
from reports.style.palette import COMPUTE, MARK
from reports.style.units import memory_unit


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
