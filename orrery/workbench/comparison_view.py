"""A comparison for the browser, complete or as far as it has come: headline, table, ladder and one timeline."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd

from hwprofiles.devices.device_graph import DeviceGraph
from planner.graph.computation_graph import ComputationGraph
from planner.plan.comparison import Comparison, StrategyResult
from planner.simulation.link_use import LinkUse
from planner.simulation.program_replay import Replay
from reports.drawings.timeline_layout import with_members
from reports.drawings.timeline_packing import pack_timeline
from reports.figures.comparison import plain_ladder
from reports.style.palette import kind_colours
from reports.style.units import time_unit
from reports.tables.comparison_summary import comparison_columns, comparison_headline, pace_lines
from reports.tables.likely_text import undecided_line, winner_of


def partial_comparison(
    graph: ComputationGraph, cluster: DeviceGraph, results: Sequence[StrategyResult], order: Sequence[str]
) -> Comparison:
    """Return a comparison of the results that have arrived, in the order in which strategies were chosen."""
    rows = sorted(results, key=lambda result: order.index(result.name))
    return Comparison(
        model=graph.name,
        cluster=cluster.name,
        batch=graph.batch,
        devices=tuple(cluster.devices.names),
        device_memory_bytes=tuple(cluster.devices.of_each(lambda device: device.usable_bytes).tolist()),
        samples_are=graph.samples_are,
        one_device_s=rows[0].speedup * rows[0].expected_s if rows else float("nan"),
        strategies=tuple(rows),
        winner=min(rows, key=lambda result: (result.expected_s, result.name != "layerwise")).name if rows else "",
    )


def light_result(result: StrategyResult) -> StrategyResult:
    """Return a result without what is large: its timeline and its use of links."""
    use = result.link_use
    none = LinkUse(
        links=(), edges_s=use.edges_s[:0], share=use.share[:0], moved_bytes=use.moved_bytes[:0], like=use.like[:0]
    )
    return replace(result, timeline=pd.DataFrame(), link_use=none)


def has_timeline(result: StrategyResult) -> bool:
    """Return whether a result still has its whole timeline."""
    return "start_s" in result.timeline


def ladder_view(comparison: Comparison) -> dict[str, Any]:
    """Return what is known first after a change: the ladder, and the times of every strategy."""
    unit = time_unit([strategy.simulated_s for strategy in comparison.strategies])
    return {
        "winner": comparison.winner,
        "ladder": plain_ladder(comparison),
        "unit": unit.name,
        "times": {
            s.name: {"additive": unit.text(s.additive_s), "simulated": unit.text(s.simulated_s)}
            for s in comparison.strategies
        },
    }


def comparison_view(comparison: Comparison) -> dict[str, Any]:
    """Return everything that the workbench shows of a comparison but timelines."""
    from orrery.terminal.views import comparison_values

    winner = winner_of(comparison)
    columns = [
        {"title": each.title, "unit": each.unit.name, "meaning": each.meaning, "texts": each.texts}
        for each in comparison_columns(comparison)
    ]
    numbers = comparison_values(comparison, page=Path("index.html"))
    return {
        **ladder_view(comparison),
        "headline": comparison_headline(comparison),
        "winner": winner.name if winner else "",
        "strategies": [each.name for each in comparison.strategies],
        "columns": columns,
        "pace": pace_lines(comparison),
        "undecided": undecided_line(comparison),
        "refused": comparison.refused,
        "notes": comparison.notes,
        "numbers": {key: value for key, value in numbers.items() if key != "page"},
    }


def timeline_view(name: str, shown: Replay | StrategyResult, cluster: DeviceGraph) -> dict[str, Any]:
    """Return one steady iteration of a strategy, as pages draw it, and the mean use of every link in it."""
    if isinstance(shown, StrategyResult):
        timeline, use, members = shown.timeline, shown.link_use, shown.collective_devices
    else:
        timeline, use, members = shown.timeline(), shown.link_use(), shown.program.collective_devices
    mean = use.share.mean(axis=1).clip(0, 1).round(4)
    return {
        "name": name,
        "colours": kind_colours(str(kind) for kind in timeline["kind"].unique()),
        "timeline": pack_timeline(with_members(timeline, members), list(cluster.devices.names)),
        "use": dict(zip(cluster.links.names, mean[use.like].tolist(), strict=True)),
    }
