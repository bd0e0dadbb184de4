"""A plan for people: first its time, then what it is made of, then its layers in runs of equal ones."""

from collections.abc import Mapping
from itertools import groupby
from typing import TYPE_CHECKING, Any

from orrery.terminal.views import print_pairs, print_table, printed_values

if TYPE_CHECKING:
    from planner.plan import Plan

__all__ = ["configuration_rows", "plan_headline", "print_plan"]


def print_plan(plan: "Plan", values: Mapping[str, Any]) -> None:
    """Print a plan, the answer first.

    Args:
        plan: The plan.
        values: As of ``plan_values``, with what was typed.
    """
    print(plan_headline(plan, values))
    print_pairs(printed_values(values, plan.compressed))
    print_table(configuration_rows(plan))


def plan_headline(plan: "Plan", values: Mapping[str, Any]) -> str:
    """Return the time of an iteration with its interval, and what it is of, in one sentence."""
    from reports.style import time_unit
    from reports.tables import likely_range

    unit, interval = time_unit([plan.simulated_s]), values.get("likely_s")
    likely = f" (80 % interval {likely_range(interval)})" if interval else ""
    rate = f"{float(f'{plan.batch / plan.simulated_s:.3g}'):,g} samples/s"
    subject = f"{plan.model} on {plan.cluster}, batch {plan.batch:,}, {plan.request.strategy}"
    return f"{subject}: {plan.simulated_s / unit.factor:.3g} {unit.name} an iteration{likely}, {rate}."


def configuration_rows(plan: "Plan") -> list[dict[str, Any]]:
    """Return degrees and devices of the layers, in few words; neighbours that have the same share a row."""
    from reports.style import compact_devices

    rows = []
    texts = {
        name: (configuration.describe(), compact_devices(configuration.devices))
        for name, configuration in plan.configurations.items()
    }
    for (degrees, devices), run in groupby(texts, key=texts.__getitem__):
        names = list(run)
        layers = names[0] if len(names) == 1 else f"{names[0]} to {names[-1]}"
        rows.append({"layer": layers, "layers": len(names), "degrees": degrees, "devices": devices})
    return rows
