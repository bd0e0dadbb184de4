"""The command that works in place of a plan that does not fit: printed whole, and tried before."""

import shlex
from dataclasses import MISSING, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hwprofiles import DeviceMemoryError, InfeasiblePlanError, OrreryError, Progress

if TYPE_CHECKING:
    from hwprofiles.devices import DeviceGraph
    from planner.plan import PlanRequest

__all__ = ["plan_command", "refusal_with_command"]


def plan_command(request: "PlanRequest", out: Path) -> str:
    """Return the words of ``orrery plan`` that make a request: all of its fields that differ from the defaults.

    Args:
        request: The request.
        out: Plan file.
    """
    words = ["orrery", "plan", request.model]
    for field in fields(request):
        value = getattr(request, field.name)
        said: dict[str, Any] = field.metadata.get("option", {})
        if not said or said["positional"] or (field.default is not MISSING and value == field.default):
            continue
        name = next(iter(said["names"]), f"--{field.name.replace('_', '-')}")
        words += [name] if value is True else [name, ",".join(value) if isinstance(value, tuple) else str(value)]
    return shlex.join([*words, "--out", str(out)])


def refusal_with_command(
    error: DeviceMemoryError, request: "PlanRequest", out: Path, cluster: "DeviceGraph", progress: Progress | None
) -> InfeasiblePlanError:
    """Return the refusal of a plan with the first command that was found to work.

    Args:
        error: The refusal.
        request: The request that was refused.
        out: Plan file.
        cluster: Cluster of the request.
        progress: Called as ``progress(label, done, total)``.
    """
    from planner.models import load_model
    from planner.plan import make_plan

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
