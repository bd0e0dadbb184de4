"""Page of a comparison of strategies: table, ladder, timelines, links, memory and layers."""

import math
from typing import Any

from groundwork.input_files import AnyPath
from planner.plan.comparison import Comparison, StrategyResult
from reports.drawings.timeline_layout import with_members
from reports.drawings.timeline_packing import pack_timeline
from reports.figures.agreement import agreement_figure
from reports.figures.comparison import breakdown_figure, ladder_figure, ladder_models, memory_figure
from reports.pages.page_template import plain_figure, rendered, write_page
from reports.style.packing import pack_array, pack_json
from reports.style.palette import kind_colours
from reports.style.units import Tile, byte_unit, memory_unit, plain_unit, three_digits, tile, time_unit
from reports.tables.comparison_summary import comparison_columns, comparison_headline, fullest_device, pace_lines
from reports.tables.layer_rows import layer_table
from reports.tables.likely_text import rate_tiles, undecided_line, winner_of


def write_comparison_page(comparison: Comparison, path: AnyPath) -> None:
    """Write the page; a reader of ``path`` sees the old file or the whole new one.

    Raises:
        OSError: The folder does not exist or cannot be written; ``path`` is then untouched.
    """
    write_page(comparison_html(comparison), path)


def comparison_html(comparison: Comparison) -> str:
    """Return the page as HTML."""
    figures = (
        {
            "breakdown": plain_figure(breakdown_figure(comparison)),
            "ladder": plain_figure(ladder_figure(comparison)),
            "agreement": plain_figure(agreement_figure(comparison)),
        }
        if comparison.strategies
        else {}
    )
    return rendered(
        "comparison.html",
        draws=bool(comparison.strategies),
        comparison=comparison,
        winner=winner_of(comparison),
        headline=comparison_headline(comparison),
        tiles=_tiles(comparison),
        columns=comparison_columns(comparison),
        undecided=undecided_line(comparison),
        pace=pace_lines(comparison),
        ladder=_ladder_rows(comparison),
        models=ladder_models(comparison),
        correlation=plain_unit([comparison.rank_correlation]).text(comparison.rank_correlation),
        layers=[layer_table(strategy.layers) for strategy in comparison.strategies],
        fullest=[_fullest(strategy, comparison) for strategy in comparison.strategies],
        data={"figures": figures, "strategies": [_strategy_data(s, comparison) for s in comparison.strategies]},
    )


def _tiles(comparison: Comparison) -> list[Tile]:
    """Return key numbers of the winner."""
    winner = winner_of(comparison)
    if winner is None:
        return []
    hours = winner.rates.device_hours_per_million_samples
    above = max(100 * (winner.simulated_s / winner.lower_bound_s - 1), 0)
    peak = winner.peak_memory_bytes[fullest_device(winner, comparison.device_memory_bytes)]
    return [
        tile("expected iteration", winner.expected_s, time_unit),
        *rate_tiles(winner.rates, comparison.samples_are),
        (f"device hours per million {comparison.samples_are}", three_digits(hours), "h"),
        ("speedup over one device", f"{winner.speedup:.2f}", "×"),
        ("simulated above its lower bound", f"{above:.1f}", "%"),
        tile("moved per iteration", winner.moved_bytes, byte_unit),
        tile("peak memory", peak, memory_unit),
    ]


def _ladder_rows(comparison: Comparison) -> dict[str, Any]:
    """Return the time under each execution model, with the change from the model before."""
    unit = time_unit([value for s in comparison.strategies for value in s.ladder_s.values()])
    rows = []
    for strategy in comparison.strategies:
        before, cells = math.nan, []
        for model in ladder_models(comparison):
            value_s = strategy.ladder_s.get(model, math.nan)
            step = value_s / before - 1
            words = f"{step:+z.1%}".replace("-", "−") if math.isfinite(step) else ""
            cells.append((value_s, unit.text(value_s), words))
            before = value_s
        rows.append((strategy.name, cells))
    return {"unit": unit.name, "rows": rows}


def _fullest(strategy: StrategyResult, comparison: Comparison) -> str:
    device = fullest_device(strategy, comparison.device_memory_bytes)
    peak, size = strategy.peak_memory_bytes[device], comparison.device_memory_bytes[device]
    unit = memory_unit([peak, size])
    kinds = [f"{kind.replace('_', ' ')} {unit.text(held)}" for kind, held in strategy.memory_by_kind_bytes.items()]
    share = f"{unit.text(peak)} of {unit.full(size)} usable ({peak / size:.1%})"
    return f"The fullest is {comparison.devices[device]}: {share}; at its peak {', '.join(kinds)} {unit.name}"


def _strategy_data(strategy: StrategyResult, comparison: Comparison) -> dict[str, Any]:
    """Return what the page draws when a strategy is chosen."""
    use, devices = strategy.link_use, comparison.devices
    if strategy.alike:
        rows = zip(devices, strategy.alike, strict=True)
        devices = tuple(f"{name} (one of {count:,} alike)" if count > 1 else name for name, count in rows)
    return {
        "name": strategy.name,
        "memory": plain_figure(memory_figure(strategy, comparison.devices, comparison.device_memory_bytes)),
        "colours": kind_colours(str(kind) for kind in strategy.timeline["kind"].unique()),
        "timeline": pack_timeline(with_members(strategy.timeline, strategy.collective_devices), devices),
        "links": {
            "names": pack_json(list(use.links)),
            "classes": pack_json(list(use.classes) or ["link"] * len(use.links)),
            "edges_s": pack_array(use.edges_s),
            # Shares are stored to a hundredth of a percent: a colour shows fewer than these four digits.
            "share": pack_array((use.share.clip(0, 1) * 10_000).round().astype("int64")),
            "moved_bytes": pack_array(use.moved_bytes),
            "alike": pack_array(use.alike),
        },
    }
