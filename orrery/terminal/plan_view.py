"""A plan for people: first its time, then what it is made of, then its layers in runs of equal ones.

In place of a plan that does not fit: the command that works, printed whole, and tried before.
"""

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, fields, replace
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

from groundwork.errors import DeviceMemoryError, InfeasiblePlanError, OrreryError
from groundwork.progress import Progress
from orrery.terminal.views import print_pairs, print_table, printed_values

if TYPE_CHECKING:
    from hwprofiles.devices.device_graph import DeviceGraph
    from planner.plan.make_plan import SimulatedPlan
    from planner.plan.plan import Plan
    from planner.plan.plan_request import PlanRequest
    from planner.plan.training_rates import TrainingRates
    from planner.simulation.program_replay import Replay


def print_plan(planned: "SimulatedPlan", values: Mapping[str, Any]) -> None:
    """Print a plan, the answer first."""
    plan = planned.plan
    print(plan_headline(plan, planned.replayed, planned.rates))
    print_pairs(printed_values(values, plan.compressed))
    print_table(configuration_rows(plan))


def plan_headline(plan: "Plan", replay: "Replay", rates: "TrainingRates") -> str:
    """Return what an iteration of a plan is expected to take, with its interval, in one sentence."""
    from reports.style.units import three_digits
    from reports.tables.likely_text import expected_time, money_words

    samples_are = replay.program.graph.samples_are
    time = expected_time(replay.expected_s, replay.likely_s, replay.iteration_s)
    rate = f"{three_digits(rates.samples_per_s)} {samples_are}/s"
    rate += f", {three_digits(rates.tokens_per_s)} tokens/s" if rates.tokens_per_s else ""
    subject = f"{plan.model} on {plan.cluster}, batch {plan.batch:,}, {plan.strategy}, {plan.request.dtype}"
    money = [f"costs {three_digits(money)} a million {what}" for what, money in money_words(rates, samples_are)]
    return f"{subject}: {time}, {rate}, {', '.join([f'MFU {rates.mfu:.1%}', *money])}."


def configuration_rows(plan: "Plan") -> list[dict[str, Any]]:
    """Return degrees and devices of the layers, in few words.

    Neighbours that have the same share a row, and of blocks of rows that repeat all but the first do.
    """
    from reports.style.device_lists import compact_devices
    from reports.tables.layer_rows import degrees_letters, repeated_blocks

    texts = {
        name: (degrees_letters(configuration.degrees), compact_devices(configuration.devices))
        for name, configuration in plan.configurations.items()
    }
    runs = [(list(run), *same) for same, run in groupby(texts, key=texts.__getitem__)]
    rows = [
        {"layer": _span(names), "layers": len(names), "degrees": degrees, "devices": devices}
        for names, degrees, devices in runs
    ]
    for block in reversed(repeated_blocks([(names[0], (len(names), *same)) for names, *same in runs])):
        names = [name for names, *_ in runs[block.folded] for name in names]
        rows[block.folded] = [{"layer": _span(names), "layers": len(names), "degrees": block.words, "devices": ""}]
    return rows


def _span(names: Sequence[str]) -> str:
    """Return the first and the last of some names."""
    return names[0] if len(names) == 1 else f"{names[0]} to {names[-1]}"


def plan_command(request: "PlanRequest", out: Path | None) -> str:
    """Return the words of ``orrery plan`` that make a request: all of its fields that differ from the defaults."""
    written = ["--out", str(out)] if out else []
    return shlex.join(["orrery", "plan", request.model, *typed_options(request), *written])


def typed_options(request: Any) -> list[str]:
    """Return a request as words of a command: all of its options that differ from their defaults."""
    words = []
    for field in fields(request):
        value = getattr(request, field.name)
        said: dict[str, Any] = field.metadata.get("option", {})
        if not said or said["positional"] or (field.default is not MISSING and value == field.default):
            continue
        name = next(iter(said["names"]), f"--{field.name.replace('_', '-')}")
        if isinstance(value, bool):
            words.append(name if value else f"--no-{name.removeprefix('--')}")
        else:
            words += [name, ",".join(value) if isinstance(value, tuple) else str(value)]
    return words


def refusal_with_command(
    error: DeviceMemoryError,
    request: "PlanRequest",
    out: Path | None,
    cluster: "DeviceGraph",
    progress: Progress | None,
) -> InfeasiblePlanError:
    """Return the refusal of a plan with the first command that was found to work."""
    from planner.models.registry import load_model
    from planner.plan.make_plan import make_plan

    for done, change in enumerate(error.fitting):
        if progress:
            progress(f"trying {change.words}", done, len(error.fitting))
        try:
            changed = replace(request, **change.fields)
            graph = load_model(changed.model, batch=changed.batch, element_bytes=changed.element_bytes)
            make_plan(graph, cluster, changed)
        except OrreryError:
            continue
        return InfeasiblePlanError(f"{error}; this works: {plan_command(changed, out)}")
    return error
