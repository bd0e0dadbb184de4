"""The answers of the commands as plain values (for ``--json``) and as tables (for people)."""

import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from shutil import get_terminal_size
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.table import Table

    from hwprofiles.catalogue import ClusterSummary
    from orrery.terminal.stored_plan import StoredPlan
    from planner.compression import Compressed
    from planner.plan import Comparison, Plan
    from planner.simulation import Replay
    from studies.reproduce import PaperRow

__all__ = [
    "cluster_row",
    "comparison_values",
    "configuration_rows",
    "model_values",
    "plan_values",
    "print_pairs",
    "print_rich",
    "print_table",
    "print_width",
    "replay_values",
    "row_values",
    "told",
]

_WIDTH = 160
"""Of tables that no terminal shows."""

_UNLESS_ZERO = ("tables_s", "search_s", "width", "compressed", "notes")
"""Of a plan: what is told only where there is something."""

STRATEGY_FIELDS = (
    "name", "additive_s", "simulated_s", "ladder_s", "images_per_s", "speedup", "moved_bytes", "compute_s",
    "exposed_communication_s", "idle_s", "peak_memory_bytes", "lower_bound_s", "bound_reason", "engine_s", "tasks",
)  # fmt: skip


def model_values(names: Iterable[str]) -> list[dict[str, Any]]:
    """Size of every named model: layers, trained numbers, operations forward per sample."""
    from planner.models import load_model

    graphs = [load_model(name, batch=1) for name in names]
    return [
        {
            "name": graph.name,
            "layers": len(graph.layers),
            "parameters": graph.parameter_count,
            "forward_flops": sum(layer.forward_flop() for layer in graph.layers),
        }
        for graph in graphs
    ]


def cluster_row(summary: "ClusterSummary") -> dict[str, Any]:
    """A cluster as one row of the table: its parameters as they are written after the colon, and a sentence."""
    parameters = ",".join(f"{parameter.name}={parameter.default:g}" for parameter in summary.parameters)
    row = {field: getattr(summary, field) for field in ("name", "devices", "nodes")}
    return {**row, "parameters": parameters, "description": summary.description.split(". ")[0]}


def plan_values(plan: "Plan") -> dict[str, Any]:
    """A plan: its costs, how long they took to find, and the configuration of every layer."""
    fields = ("tables_s", "search_s", "additive_s", "simulated_s", "width", "notes")
    configurations = {
        name: {"degrees": configuration.degrees, "devices": configuration.devices}
        for name, configuration in plan.configurations.items()
    }
    refinement = ("simulated_plans", "lower_bound_s", "gap", "origin") if plan.simulated_plans else ()
    values = {field: getattr(plan, field) for field in (*fields, *refinement)}
    return {**values, **_stage_values(plan), "compressed": asdict(plan.compressed), "configurations": configurations}


def _stage_values(plan: "Plan") -> dict[str, Any]:
    """Schedule, micro-batches and first layers of the stages of a pipeline; nothing of other plans."""
    layers = list(plan.configurations)
    if not plan.micro_batching.stages:
        return {}
    stages = [layers[first] for first in plan.micro_batching.stages]
    return {"schedule": plan.micro_batching.order, "micro_batches": plan.micro_batching.parts, "stages": stages}


def replay_values(replay: "Replay", *, plan: "StoredPlan") -> dict[str, Any]:
    """A replay: the iteration, the additive cost beside it, and what the engine took."""
    fields = {field: getattr(replay, field) for field in ("iteration_s", "engine_s", "tasks")}
    compressed = asdict(plan.program.compressed)
    return {**fields, "additive_s": plan.additive_s, "compressed": compressed, "notes": plan.notes}


def told(values: Mapping[str, Any], compressed: "Compressed") -> dict[str, Any]:
    """The same for people: what is compressed in words, no configurations, which have a table of their own.

    What says nothing is left out: nothing compressed, no notes, no search.
    """
    said: dict[str, Any] = {**values, "compressed": compressed.describe()}
    if "gap" in said:
        said["gap"] = f"{max(said['gap'], 0.0):.1%} above the lower bound"  # rounding can take it below zero
    unsaid = {"configurations", *(name for name in _UNLESS_ZERO if not said.get(name))}
    return {name: value for name, value in said.items() if name not in unsaid}


def comparison_values(comparison: "Comparison", *, page: Path) -> dict[str, Any]:
    """A comparison without its timelines."""
    fields = ("model", "cluster", "batch", "winner", "one_device_s", "rank_correlation", "refused", "notes")
    strategies = [{field: getattr(result, field) for field in STRATEGY_FIELDS} for result in comparison.strategies]
    return {**{field: getattr(comparison, field) for field in fields}, "page": str(page), "strategies": strategies}


def row_values(rows: "Sequence[PaperRow]") -> list[dict[str, Any]]:
    """Printed values beside ours."""
    return [asdict(row) for row in rows]


def configuration_rows(plan: "Plan") -> list[dict[str, Any]]:
    """Every layer with its degrees and devices, in few words."""
    from reports.style import compact_devices

    return [
        {"layer": name, "degrees": configuration.describe(), "devices": compact_devices(configuration.devices)}
        for name, configuration in plan.configurations.items()
    ]


def print_pairs(values: Mapping[str, Any]) -> None:
    """Print names and values below each other."""
    print_table([{"": _header(name), "value": _cell(value)} for name, value in values.items()])


def print_table(rows: Sequence[Mapping[str, Any]]) -> None:
    """Print rows of one form; numbers to four digits, right-aligned."""
    from rich.table import Table

    table = Table()
    for name, value in (rows[0] if rows else {}).items():
        justify: Any = "right" if isinstance(value, int | float) else "left"
        table.add_column(_header(name), justify=justify, overflow="fold")
    for row in rows:
        table.add_row(*(_cell(value) for value in row.values()))
    print_rich(table)


def print_rich(table: "Table") -> None:
    """Print a table: as wide as the terminal, and wide enough for all columns where there is none."""
    from rich.console import Console

    Console(markup=False, highlight=False, width=print_width()).print(table)


def print_width() -> int:
    """Characters of a line: the terminal's, and enough for wide tables where there is none."""
    return get_terminal_size().columns if sys.stdout.isatty() else _WIDTH


def _header(name: str) -> str:
    words, _, unit = name.rpartition("_")
    return f"{words} ({unit})".replace("_", " ") if unit in ("s", "bytes") else name.replace("_", " ")


def _cell(value: object) -> str:
    if isinstance(value, tuple | list):
        return "; ".join(str(item) for item in value)
    if isinstance(value, int):
        return f"{value:,}"
    return f"{value:.4g}" if isinstance(value, float) else str(value)
