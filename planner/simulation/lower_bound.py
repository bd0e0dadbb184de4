"""Lower bounds of the iteration time, which no order of a program's tasks can beat."""

import numpy as np

from groundwork.array_types import Floats, Ints
from groundwork.sparse_rows import row_entries, row_owners
from planner.cost.cost_model import CostModel
from planner.layouts.configurations import Strategy
from planner.lowering.program import KINDS, Program
from planner.simulation.execution_models import build_program_graph
from simulator.graph.task_graph import TaskGraph
from simulator.timelines.last_causes import before_in_streams
from simulator.timelines.timeline import alone_s, busiest_resource

_MANY_WAITS = 4
"""Messages to a task, in the mean of a group, from which on what they load together is looked at."""


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


def exceeds(program: Program, most_s: float) -> bool:
    """Return whether lower bounds show, in little time, that an iteration takes longer than so many seconds."""
    graph = build_program_graph(program).graph
    return busiest_resource(graph)[1] > most_s or gathering_path_s(program, graph) > most_s


def gathering_path_s(program: Program, graph: TaskGraph) -> float:
    """Return a lower bound of what iterations repeat, from the first trained layer's forward tasks to its updates.

    From when the first of these tasks begins, tasks wait for others, for the one before in their stream, and for the
    messages of a group together: a task that reads what all devices send waits at least until the busiest link has
    carried all of it.  No update ends before the earliest of these bounds, and the next iteration waits for all.

    Args:
        program: One iteration.
        graph: Its task graph, of one iteration.

    Returns:
        Seconds; 0 where nothing is trained.
    """
    updates = np.flatnonzero(program.kind == KINDS.index("update"))
    if not len(updates):
        return 0.0
    layer = program.layer[updates].min()
    is_first = (program.kind == KINDS.index("forward")) & (program.layer == layer)
    served_s = graph.use_weight * graph.work[graph.use_owners] / graph.capacity[graph.use_resource]
    least_s, before = graph.latency_s + alone_s(graph), before_in_streams(graph.stream)
    begin_s, end_s = np.full(program.size, -np.inf), np.full(program.size + 1, -np.inf)  # -1 is before no task
    starts = np.flatnonzero(np.diff(program.group, prepend=-1))
    for first, stop in zip(starts.tolist(), [*starts[1:].tolist(), program.size], strict=True):
        begins = np.maximum(end_s[before[first:stop]], np.where(is_first[first:stop], 0.0, -np.inf))
        rows = slice(program.after_start[first], program.after_start[stop])
        late, early = row_owners(program.after_start[first : stop + 1]), program.after[rows]
        np.maximum.at(begins, late, end_s[early])
        reached = np.isfinite(begin_s[early])
        if len(early) > _MANY_WAITS * (stop - first):
            for group in np.unique(program.group[early[reached]]).tolist():
                of = reached & (program.group[early] == group)
                _await_together(graph, served_s, begins, late[of], early[of], begin_s)
        begin_s[first:stop], end_s[first:stop] = begins, begins + least_s[first:stop]
    return float(max(end_s[updates[program.layer[updates] == layer]].min(), 0.0))


def _await_together(
    graph: TaskGraph, served_s: Floats, begins: Floats, late: Ints, early: Ints, begin_s: Floats
) -> None:
    """Let tasks begin no earlier than the busiest resource has served all that they wait for.

    Args:
        graph: The task graph.
        served_s: Least time that each use takes of its resource.
        begins: Bounds of their begins, which rise.
        late: Index into these of the task that waits, pair by pair.
        early: Task that it waits for.
        begin_s: Bounds of the begins of all tasks.
    """
    since = np.full(len(begins), np.inf)
    np.minimum.at(since, late, begin_s[early])
    counts = np.diff(graph.use_start)[early]
    uses, size = row_entries(graph.use_start[early], counts), len(graph.capacity)
    pairs, of = np.unique(np.repeat(late, counts) * size + graph.use_resource[uses], return_inverse=True)
    total_s = np.bincount(of, served_s[uses], minlength=len(pairs))
    np.maximum.at(begins, pairs // size, since[pairs // size] + total_s)


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
