"""Results of the commands: plain values for ``--json``, tables for people."""

import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from shutil import get_terminal_size
from typing import TYPE_CHECKING, Any

from groundwork.units import GIGA, TERA

if TYPE_CHECKING:
    from rich.table import Table

    from hwprofiles.catalogue.cluster_catalogue import ClusterSummary
    from hwprofiles.compute.profile_summary import ProfileSummary
    from orrery.terminal.stored_plan import StoredPlan
    from planner.compression.settings import CompressionSettings
    from planner.plan.comparison import Comparison
    from planner.plan.make_plan import SimulatedPlan
    from planner.plan.plan import Plan
    from planner.plan.training_rates import TrainingRates
    from planner.simulation.program_replay import Replay
    from reports.style.units import Unit


_WIDTH, _WIDEST = 160, 1_000
"""Characters of a line where no terminal shows the table, and of one whose numbers take more."""

_WORK = frozenset({"engine", "load", "search", "tables"})
_HELD = frozenset({"allocated", "held", "memory", "peak"})
"""Words of fields that tell this program's own time, and memory."""

_UNLESS_ZERO = (
    "tables_s search_s width compressed notes tokens_per_s hfu money_per_million_samples money_per_million_tokens"
)
"""Values of a plan that are printed only where they are not zero or empty."""

_STRATEGY_FIELDS = (
    "name additive_s simulated_s expected_s likely_s ladder_s speedup moved_bytes compute_s exposed_communication_s "
    "idle_s peak_memory_bytes memory_by_kind_bytes lower_bound_s bound_reason engine_s tasks"
)


def model_row(name: str) -> dict[str, Any]:
    """Return the size of a model: layers, parameters, forward operations for one sample."""
    from planner.models.registry import load_model

    graph = load_model(name, batch=1)
    return {
        "name": graph.name,
        "layers": len(graph.layers),
        "parameters": graph.parameter_count,
        "forward_flops": sum(layer.forward_flop() for layer in graph.layers),
    }


def cluster_row(summary: "ClusterSummary") -> dict[str, Any]:
    """Return a cluster as one row of the table: its parameters as they are typed after the colon, and a sentence."""
    from hwprofiles.catalogue.cluster_catalogue import assigned_text

    parameters = ",".join(assigned_text(parameter.name, parameter.default) for parameter in summary.parameters)
    row = {field: getattr(summary, field) for field in ("name", "devices", "nodes")}
    return {**row, "parameters": parameters, "description": summary.description.split(". ")[0]}


def profile_row(summary: "ProfileSummary") -> dict[str, Any]:
    """Return a compute profile as one row of the table, with the least and the largest error of its kinds of rows."""
    peaks = (f"{name} {float(f'{peak / TERA:.3g}'):g}" for name, peak in summary.peak_flop_per_s.items())
    return {
        "name": summary.name,
        "peaks (TFLOP/s)": ", ".join(peaks),
        "memory_bytes": summary.memory_bytes,
        "bandwidth (GB/s)": summary.memory_bytes_per_s / GIGA,
        "rows": summary.rows,
        "median error": _range([each.median for each in summary.errors]),
        "90th percentile": _range([each.p90 for each in summary.errors]),
        "relative": summary.transferred_from,
    }


def _range(shares: Sequence[float]) -> str:
    """Return the least and the largest of some shares, in percent; empty without any."""
    least, most = (f"{limit(shares):.0%}" if shares else "" for limit in (min, max))
    return least if least == most else f"{least.removesuffix('%')} to {most}"


def plan_values(planned: "SimulatedPlan") -> dict[str, Any]:
    """Return a plan's costs, its expected time and the interval, the time of the search, and all configurations."""
    from planner.memory.peak_memory import peak_by_kind_bytes

    plan, replayed = planned.plan, planned.replayed
    fields = ("tables_s", "search_s", "additive_s", "simulated_s", "width", "notes")
    configurations = {
        name: {"degrees": configuration.degrees, "devices": configuration.devices}
        for name, configuration in plan.configurations.items()
    }
    refinement = ("simulated_plans", "lower_bound_s", "gap", "origin") if plan.simulated_plans else ()
    values = {field: getattr(plan, field) for field in (*fields, *refinement)}
    values |= {"expected_s": replayed.expected_s, "likely_s": replayed.likely_s, **asdict(planned.rates)}
    values["memory_by_kind_bytes"] = peak_by_kind_bytes(replayed.program)
    return {**values, **_stage_values(plan), "compressed": asdict(plan.compressed), "configurations": configurations}


def _stage_values(plan: "Plan") -> dict[str, Any]:
    """Return schedule, micro-batches and first layers of the stages of a pipeline; nothing for other plans."""
    layers = list(plan.configurations)
    if not plan.micro_batching.stages:
        return {}
    stages = [layers[first] for first in plan.micro_batching.stages]
    return {"schedule": plan.micro_batching.order, "micro_batches": plan.micro_batching.parts, "stages": stages}


def replay_values(replay: "Replay", rates: "TrainingRates", *, plan: "StoredPlan") -> dict[str, Any]:
    """Return the simulated and the expected time of an iteration, its additive cost, and those of the engine."""
    names = ("iteration_s", "expected_s", "likely_s", "engine_s", "tasks")
    fields = {name: getattr(replay, name) for name in names}
    fields |= asdict(rates)
    compressed = asdict(plan.program.compressed)
    return {**fields, "additive_s": plan.additive_s, "compressed": compressed, "notes": plan.notes}


def printed_values(values: Mapping[str, Any], compressed: "CompressionSettings") -> dict[str, Any]:
    """Return the values of a plan as they are printed: compression in words, nothing that is zero or empty."""
    from reports.style.units import time_unit
    from reports.tables.likely_text import likely_ends

    printed: dict[str, Any] = {**values, "compressed": compressed.describe()}
    if interval := printed.pop("likely_s", None):
        unit = time_unit(interval[:1])
        printed["likely"] = f"{likely_ends(interval, unit)} {unit.name}"
    by_kind = printed.pop("memory_by_kind_bytes", {})
    if by_kind:
        printed["peak_memory_bytes"] = sum(by_kind.values())
    for kind, size in by_kind.items():
        printed[f"memory_{kind}_bytes"] = size
    for name in ("mfu", "hfu"):
        if printed.get(name):
            printed[name] = f"{printed[name]:.1%}"
    if "gap" in printed:
        printed["gap"] = f"{max(printed['gap'], 0.0):.1%} above the lower bound"  # rounding can take it below zero
    dropped = {"configurations", *(name for name in _UNLESS_ZERO.split() if not printed.get(name))}
    return {name: value for name, value in printed.items() if name not in dropped}


def comparison_values(comparison: "Comparison", *, page: Path | None) -> dict[str, Any]:
    """Return the numbers of a comparison, without its timelines."""
    fields = "model cluster batch samples_are winner one_device_s rank_correlation refused notes"
    from reports.tables.likely_text import undecided_line

    strategies = [
        {
            **{field: getattr(result, field) for field in _STRATEGY_FIELDS.split()},
            **asdict(result.rates),
            "pace": None if result.pace is None else result.pace.sentence,
        }
        for result in comparison.strategies
    ]
    return {
        "undecided": undecided_line(comparison),
        **{field: getattr(comparison, field) for field in fields.split()},
        "page": page and str(page),
        "strategies": strategies,
    }


def print_pairs(values: Mapping[str, Any]) -> None:
    """Print names and values, one pair in a line; values of a kind share a unit, as times and amounts of data."""
    rows = []
    for name, value in values.items():
        unit = _unit(_kind(name), (other for field, other in values.items() if _kind(field) == _kind(name)))
        rows.append({"": _header(name, unit), "value": _cell(value, unit)})
    print_table(rows)


def print_table(rows: Sequence[Mapping[str, Any]]) -> None:
    """Print rows with the same columns; numbers to three digits, right-aligned, in one unit a column.

    Columns whose names end in ``_s`` or ``_bytes`` are times and amounts of data in SI units.
    """
    from rich.table import Table

    table, units = Table(), {}
    for name, value in (rows[0] if rows else {}).items():
        units[name] = _unit(_kind(name), (row[name] for row in rows))
        justify: Any = "right" if units[name] or isinstance(value, int | float) else "left"
        table.add_column(_header(name, units[name]), justify=justify, overflow="fold")
    for row in rows:
        table.add_row(*(_cell(value, units[name]) for name, value in row.items()))
    print_rich(table)


def print_rich(table: "Table") -> None:
    """Print a table as wide as the terminal, or wide enough for all columns where there is none."""
    from rich.console import Console

    console = Console(markup=False, highlight=False, width=print_width())
    options = console.options.update(width=_WIDEST)
    if not sys.stdout.isatty() and console.measure(table, options=options).maximum > console.width:
        for column in table.columns:
            if column.justify == "right":  # headings break between their words, numbers nowhere
                column.width = max(map(len, [*str(column.header).split(), *map(str, column.cells)]), default=0)
            elif column.no_wrap:
                column.min_width = max(
                    (len(line) for cell in column.cells for line in str(cell).splitlines()), default=0
                )
        console.width = max(console.width, console.measure(table, options=options).minimum)
    console.print(table)


def print_width() -> int:
    """Return the characters of a line: the terminal's, or enough for wide tables where there is none."""
    return get_terminal_size().columns if sys.stdout.isatty() else _WIDTH


def _kind(name: str) -> str:
    """Return what the numbers of a field are; empty for plain ones.

    ``work`` is time that this program takes, ``time`` is any other, ``memory`` is what is held, ``data`` what is sent.
    """
    if name.endswith("_per_s"):
        return ""
    words = {*name.split("_")}
    if words & {"s", "seconds"}:
        return "work" if words & _WORK else "time"
    return "" if "bytes" not in words else "memory" if name == "bytes" or words & _HELD else "data"


def _unit(kind: str, values: Iterable[object]) -> "Unit | None":
    """Return the unit that suits all numbers among values of a kind; None for plain ones."""
    from reports.style.units import byte_unit, memory_unit, time_unit

    choose = {"time": time_unit, "work": time_unit, "memory": memory_unit, "data": byte_unit}.get(kind)
    return choose(value for value in values if isinstance(value, int | float)) if choose else None


def _header(name: str, unit: "Unit | None") -> str:
    """Return the heading of a field: ``iteration_s`` becomes ``iteration (ms)``."""
    words, _, last = name.rpartition("_")
    if unit is None:
        return name.replace("_", " ")
    return f"{words or {'seconds': 'time', 'bytes': 'size'}[last]} ({unit.name})".replace("_", " ")


def _cell(value: object, unit: "Unit | None") -> str:
    """Return a value as text: numbers to three digits, counts whole, lists with semicolons."""
    from reports.style.units import three_digits

    if value is None and unit is not None:
        return "–"
    if isinstance(value, tuple | list):
        return "; ".join(str(item) for item in value)
    if isinstance(value, int | float) and unit is not None:
        return unit.text(value)
    if isinstance(value, int):
        return f"{value:,}"
    return three_digits(value) if isinstance(value, float) else str(value)
