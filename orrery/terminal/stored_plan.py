"""Plans from files, lowered for the model and the cluster as they are now."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from hwprofiles.devices.device_graph import DeviceGraph
    from planner.cost.cost_model import CostModel
    from planner.lowering.program import Program
    from planner.plan.plan import Plan
    from reports.drawings.plan_view import PlanView


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredPlan:
    """Plan from a file, with its program and its price."""

    plan: "Plan"
    program: "Program"
    lower_on: "Callable[[DeviceGraph], Program]"
    """Lowers the plan on its cluster with faster or slower hardware."""
    costs: "CostModel"
    additive_s: float
    """Iteration time by Eq. 1, priced with the cluster and the profiles as they are now."""
    notes: tuple[str, ...]

    def view(self, notes: tuple[str, ...]) -> "PlanView":
        """Return the drawings of the plan, with notes below them."""
        from reports.drawings.plan_view import PlanView

        return PlanView(plan=self.plan, program=self.program, costs=self.costs, additive_s=self.additive_s, notes=notes)


def open_plan(path: Path, *, collectives: str = "activity", folded: bool = False) -> StoredPlan:
    """Read, lower and price a plan, with a note if its cluster or compute profiles changed since it was made.

    Args:
        path: Plan file.
        collectives: As for ``planner.lowering.lower_strategy.lower``.
        folded: Whether, on large clusters, one of several replicas that do the same may stand for all.

    Raises:
        ConfigError: The file breaks a rule, or was made for another model.
        InfeasiblePlanError: The plan does not fit in memory.
    """
    from hwprofiles.catalogue.cluster_catalogue import load_cluster
    from planner.models.registry import load_model
    from planner.plan.lowered_plan import cost_model_of, folds, plan_lowering
    from planner.plan.plan_file import load_plan
    from planner.simulation.additive_cost import additive_s

    plan = load_plan(path)
    graph = load_model(plan.model, batch=plan.batch, element_bytes=plan.element_bytes)
    cluster = load_cluster(plan.cluster)
    lower_on = plan_lowering(plan, graph, cluster, collectives=collectives, folded=folded and folds(cluster))
    program = lower_on(cluster)
    model = cost_model_of(plan.request, graph, cluster)
    as_lowered = program if collectives == "activity" and plan.gradient_sync_order == "end" else None
    priced_s = additive_s(model, plan.configurations, plan.micro_batching, plan.compressed, plan.recompute, as_lowered)
    inputs = {
        f"cluster {plan.cluster}": (plan.cluster_digest, cluster.digest),
        f"compute profile {', '.join(p.name for p in model.profiles)}": (plan.costs_digest, model.compute_times.digest),
    }
    changed = " and ".join(name for name, (then, now) in inputs.items() if then != now)
    note = f"{changed} changed since the plan was made: {plan.additive_s:.6g} s then, {priced_s:.6g} s now"
    notes = (*plan.notes, *((note,) if changed else ()))
    return StoredPlan(plan=plan, program=program, lower_on=lower_on, costs=model, additive_s=priced_s, notes=notes)
