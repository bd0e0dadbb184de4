"""What no schedule of a program's tasks, or of a strategy's, can beat, however they are ordered."""

import numpy as np

from planner.cost import CostModel, applied
from planner.lowering import KINDS, Program
from planner.parallel import Strategy
from planner.simulation.execution_models import build_program_graph
from simulator.graph import TaskGraph
from simulator.timelines import alone_s, busiest_resource

__all__ = ["arithmetic_s", "iteration_bound"]


def arithmetic_s(model: CostModel, strategy: Strategy) -> float:
    """Arithmetic of the busiest device: no simulated iteration of the strategy is shorter."""
    model, spaces, _ = applied(model, strategy)
    busy = np.zeros(len(model.cluster.devices))
    for i, space in enumerate(spaces):
        busy[space.devices] += sum(model.compute_times.part_s(i, space).values())
    return float(busy.max())


def iteration_bound(program: Program) -> tuple[float, str]:
    """Lower bound of the steady-state iteration time, and what sets it.

    Either the work of one iteration on its busiest resource, or a path that every iteration walks again: from
    the forward task of a trained part to its update, which the next forward task waits for.

    Returns:
        Seconds and a phrase for the reader.
    """
    graph = build_program_graph(program).graph
    busiest, busy_s = busiest_resource(graph)
    path_s, layer = _cycle(program, graph)
    if path_s > busy_s:
        return path_s, f"dependencies through {layer}"
    return busy_s, f"work on {graph.resource_names[busiest]}"


def _cycle(program: Program, graph: TaskGraph) -> tuple[float, str]:
    """Longest way from the forward task of the first trained part to its update."""
    updates = np.flatnonzero(program.kind == KINDS.index("update"))
    if not len(updates):
        return 0.0, ""
    # the first trained layer ends the backward pass: its way is the longest or nearly so
    last = int(updates[program.layer[updates] == program.layer[updates].min()][0])
    same = (program.kind == 0) & (program.layer == program.layer[last]) & (program.part == program.part[last])
    first = int(np.flatnonzero(same)[0])
    fastest = (graph.latency_s + alone_s(graph)).tolist()
    start, after = program.after_start.tolist(), program.after.tolist()
    reach = [-np.inf] * program.size
    reach[first] = fastest[first]
    for task in range(first + 1, last + 1):  # what a task waits for has a smaller id
        before = max((reach[other] for other in after[start[task] : start[task + 1]]), default=-np.inf)
        reach[task] = before + fastest[task]
    return float(max(reach[last], 0.0)), program.graph.layers[program.layer[last]].name
