"""Plans lowered as they are run, and checks that they can be run."""

from hwprofiles import ConfigError
from hwprofiles.catalogue import load_cluster
from planner.lowering import Program
from planner.models import load_model
from planner.operations import Loss, Mapped
from planner.plan import Plan, lower_plan

__all__ = ["check_program", "program_of"]


def program_of(plan: Plan) -> Program:
    """Lower a plan on its model and cluster, with collectives as activities.

    Raises:
        ConfigError: The plan was made for another model.
        InfeasiblePlanError: The plan does not fit in memory.
    """
    graph = load_model(plan.model, batch=plan.batch, element_bytes=plan.element_bytes)
    return lower_plan(plan, graph, load_cluster(plan.cluster))


def check_program(program: Program, ranks: int) -> None:
    """Check that a program can be run.

    Args:
        program: The program.
        ranks: Number of processes.

    Raises:
        ConfigError: There are fewer ranks than devices in the plan, the elements have another size than 4 or 8 bytes,
            the network does not end in a loss, parameters lie on servers, a parameter is not split with its layer's
            channels, or an imported layer is of a kind that is planned only.
    """
    devices = 1 + max(int(space.devices.max()) for space in program.spaces)
    if devices > ranks:
        raise ConfigError(f"processes must be at least the plan's {devices} devices, got {ranks}")
    if program.host_copies:
        raise ConfigError(
            f"framework must not be ps to be run: no rank serves parameters, got {program.framework.text!r}"
        )
    graph = program.graph
    if graph.element_bytes not in (4, 8):
        raise ConfigError(f"dtype must be of 4 or 8 bytes to be run, got one of {graph.element_bytes}")
    for i, layer in enumerate(graph.layers):
        if isinstance(layer.operation, Mapped):
            names = getattr(layer.operation, "steps", None) or (getattr(layer.operation, "function", ""),)
            kind = f"{layer.operation.kind} {' '.join(names)}".strip()
            raise ConfigError(f"layer {layer.name} of {graph.name} is planned only and cannot be run: {kind}")
        if not graph.consumers[i] and not isinstance(layer.operation, Loss):
            raise ConfigError(f"layer {layer.name} of {graph.name} must be read by another or be a loss to be run")
        if any(not parameter.split for parameter in layer.parameters):
            raise ConfigError(f"parameters of {layer.name} must be split with its channels to be run")
