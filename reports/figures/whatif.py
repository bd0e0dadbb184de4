"""What-if by hand: every scenario against today."""

import plotly.graph_objects as go

from reports.figures.look import styled
from reports.style import MARK, SERIES
from studies.whatif import WhatIf

__all__ = ["whatif_figure"]


def whatif_figure(found: WhatIf) -> go.Figure:
    """Draw images a second of every scenario, relative to the same strategy today; what cannot be had has no bar."""
    scenarios = list(dict.fromkeys(row.scenario for row in found.rows))
    figure = go.Figure()
    for i, strategy in enumerate(dict.fromkeys(row.strategy for row in found.rows)):
        rows = [row for row in found.rows if row.strategy == strategy and row.against_today == row.against_today]
        figure.add_bar(
            y=[row.scenario for row in rows],
            x=[100 * (row.against_today - 1) for row in rows],
            orientation="h",
            name=strategy,
            marker={"color": SERIES[i % len(SERIES)]},
            hovertemplate=f"%{{y}}: {strategy} %{{x:+.1f}} %<extra></extra>",
        )
    figure.add_vline(x=0, line={"color": MARK, "width": 1.5})
    return styled(
        figure,
        barmode="group",
        height=110 + 20 * len(scenarios) * max(len(figure.data), 1),
        xaxis={"title": "images a second against today [%]", "automargin": True},
        yaxis={"categoryorder": "array", "categoryarray": scenarios[::-1], "automargin": True},
    )
