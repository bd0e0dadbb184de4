"""What no schedule of a program's tasks can beat, however they are ordered."""

import numpy as np
from numpy.typing import NDArray

from planner.program import KINDS, Program
from planner.readings import read
from simulator.task_graph import TaskGraph

__all__ = ["iteration_bound"]


def iteration_bound(program: Program) -> tuple[float, str]:
    """Lower bound of the steady-state iteration time, and what sets it.

    Either the work of one iteration on its busiest resource, or a path that every iteration walks again: from
    the forward task of a trained part to its update, which the next forward task waits for.

    Returns:
        Seconds and a phrase for the reader.
    """
    graph = read(program).graph
    load = np.zeros(len(graph.capacity))
    tasks = np.repeat(np.arange(graph.size), np.diff(graph.use_start))
    np.add.at(load, graph.use_resource, graph.work[tasks] * graph.use_weight)
    busy = load / graph.capacity
    busiest = int(busy.argmax())
    path_s, layer = _cycle(program, graph)
    if path_s > busy[busiest]:
        return path_s, f"dependencies through {layer}"
    return float(busy[busiest]), f"work on {graph.resource_names[busiest]}"


def _fastest_s(graph: TaskGraph) -> NDArray[np.float64]:
    """Time of every task alone, shape (T,)."""
    per_use = graph.use_weight / graph.capacity[graph.use_resource]
    tasks = np.repeat(np.arange(graph.size), np.diff(graph.use_start))
    slowest = np.zeros(graph.size)
    np.maximum.at(slowest, tasks, per_use)
    return graph.latency_s + graph.work * slowest


def _cycle(program: Program, graph: TaskGraph) -> tuple[float, str]:
    """Longest way from the forward task of the first trained part to its update."""
    updates = np.flatnonzero(program.kind == KINDS.index("update"))
    if not len(updates):
        return 0.0, ""
    # the first trained layer ends the backward pass: its way is the longest or nearly so
    last = int(updates[program.layer[updates] == program.layer[updates].min()][0])
    same = (program.kind == 0) & (program.layer == program.layer[last]) & (program.part == program.part[last])
    first = int(np.flatnonzero(same)[0])
    fastest, start, after = _fastest_s(graph).tolist(), program.after_start.tolist(), program.after.tolist()
    reach = [-np.inf] * program.size
    reach[first] = fastest[first]
    for task in range(first + 1, last + 1):  # what a task waits for has a smaller id
        before = max((reach[other] for other in after[start[task] : start[task + 1]]), default=-np.inf)
        reach[task] = before + fastest[task]
    return float(max(reach[last], 0.0)), program.graph.layers[program.layer[last]].name
