"""Lower bounds of the iteration time, which no order of a program's tasks can beat."""

import numpy as np

from planner.cost.cost_model import CostModel
from planner.layouts.configurations import Strategy
from planner.lowering.program import KINDS, Program
from planner.simulation.execution_models import build_program_graph
from simulator.graph.task_graph import TaskGraph
from simulator.timelines.timeline import alone_s, busiest_resource


def arithmetic_s(model: CostModel, strategy: Strategy) -> float:
    """Return the compute time of the busiest device: a lower bound of any simulated iteration of the strategy.

    Args:
        model: Costs of a network on a cluster.
        strategy: A configuration for every layer.

    Returns:
        Seconds.
    """
    busy = np.zeros(len(model.cluster.devices))
    for i, space in enumerate(model.spaces_of(strategy)):
        busy[space.devices] += sum(model.compute_times.part_s(i, space).values())
    return float(busy.max())


def busiest_s(program: Program) -> float:
    """Return the work of one iteration on its busiest resource, seconds: a lower bound that takes little time."""
    return busiest_resource(build_program_graph(program).graph)[1]


def iteration_bound(program: Program) -> tuple[float, str]:
    """Return a lower bound of the steady-state iteration time, and the resource or path that sets it.

    The bound is either the work of one iteration on its busiest resource, or a path that every iteration repeats: from
    the forward task of a trained part to its update, which the next iteration's forward task waits for.

    Args:
        program: One iteration.

    Returns:
        Seconds, and the resource or path in words.
    """
    graph = build_program_graph(program).graph
    busiest, busy_s = busiest_resource(graph)
    path_s, layer = _cycle(program, graph)
    if path_s > busy_s:
        return path_s, f"dependencies through {layer}"
    return busy_s, f"work on {graph.resource_names[busiest]}"


def _cycle(program: Program, graph: TaskGraph) -> tuple[float, str]:
    """Return the length of the longest path from the forward task of the first trained part to its update.

    Returns:
        Seconds without contention, and the name of the part's layer.
    """
    updates = np.flatnonzero(program.kind == KINDS.index("update"))
    if not len(updates):
        return 0.0, ""
    # the first trained layer ends the backward pass, so its path is the longest or nearly so
    last = int(updates[program.layer[updates] == program.layer[updates].min()][0])
    same = (program.kind == 0) & (program.layer == program.layer[last]) & (program.part == program.part[last])
    first = int(np.flatnonzero(same)[0])
    fastest = (graph.latency_s + alone_s(graph)).tolist()
    start, after = program.after_start.tolist(), program.after.tolist()
    reach = [-np.inf] * program.size
    reach[first] = fastest[first]
    for task in range(first + 1, last + 1):  # a task waits only for tasks with smaller numbers
        before = max((reach[other] for other in after[start[task] : start[task + 1]]), default=-np.inf)
        reach[task] = before + fastest[task]
    return float(max(reach[last], 0.0)), program.graph.layers[program.layer[last]].name
