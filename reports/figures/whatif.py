"""Scenarios of a changed cluster compared with today's cluster."""

from collections.abc import Sequence
from typing import Any

import plotly.graph_objects as go

from reports.figures.look import styled
from reports.style.palette import MARK, SERIES
from studies.whatif.scenarios import WhatIf, WhatIfRow


def whatif_figure(result: WhatIf) -> go.Figure:
    """Draw samples per second of every scenario, relative to the same strategy today; impossible points have no bar."""
    scenarios = list(dict.fromkeys(row.scenario for row in result.rows))
    figure = go.Figure()
    for i, strategy in enumerate(dict.fromkeys(row.strategy for row in result.rows)):
        rows = [row for row in result.rows if row.strategy == strategy and row.against_today == row.against_today]
        figure.add_bar(
            y=[row.scenario for row in rows],
            x=[100 * (row.against_today - 1) for row in rows],
            orientation="h",
            error_x=_whiskers(rows),
            name=strategy,
            marker={"color": SERIES[i % len(SERIES)]},
            hovertemplate=f"%{{y}}: {strategy} %{{x:+.1f}} %<extra></extra>",
        )
    figure.add_vline(x=0, line={"color": MARK, "width": 1.5})
    return styled(
        figure,
        barmode="group",
        height=110 + 20 * len(scenarios) * max(len(figure.data), 1),
        xaxis={"title": "samples/s, change from today [%]", "automargin": True},
        yaxis={"categoryorder": "array", "categoryarray": scenarios[::-1], "automargin": True},
    )


def _whiskers(rows: Sequence[WhatIfRow]) -> dict[str, Any]:
    """Return the intervals of rows as error bars, in per cent."""
    ends = [row.likely_against_today or (row.against_today, row.against_today) for row in rows]
    pairs = list(zip(rows, ends, strict=True))
    return {
        "type": "data",
        "symmetric": False,
        "array": [100 * max(high - row.against_today, 0.0) for row, (_, high) in pairs],
        "arrayminus": [100 * max(row.against_today - low, 0.0) for row, (low, _) in pairs],
        "thickness": 1,
    }
