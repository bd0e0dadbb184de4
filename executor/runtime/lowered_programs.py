"""Plans lowered as they are run."""

from hwprofiles.catalogue.cluster_catalogue import load_cluster
from planner.lowering.program import Program
from planner.models.registry import load_model
from planner.plan.lowered_plan import lower_plan
from planner.plan.plan import Plan


def program_of(plan: Plan) -> Program:
    """Lower a plan on its model and cluster, with collectives as activities.

    Raises:
        ConfigError: The plan was made for another model.
        InfeasiblePlanError: The plan does not fit in memory.
    """
    graph = load_model(plan.model, batch=plan.batch, element_bytes=plan.element_bytes)
    return lower_plan(plan, graph, load_cluster(plan.cluster))
