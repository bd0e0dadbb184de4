"""Iterations that an engine replays: several in a row, or one for all where each begins when the one before has ended.

Where no task of an iteration runs beside one of another, all iterations take the times of the first from when they
begin.  That is checked on the tasks of two iterations: each of the second that waits for none of its own waits for one
that ends last in the first::

    iteration 1    ------|  ---------|
                   ----------------->|          the last end
    iteration 2                      |------|  ---------|
                                     |----------------->|
"""

from dataclasses import replace
from time import perf_counter
from typing import NamedTuple

import numpy as np

from groundwork.array_types import Floats
from groundwork.sparse_rows import row_owners
from planner.simulation.execution_models import ProgramGraph
from simulator.engines.engine import simulate
from simulator.graph.graph_checks import check_task_graph
from simulator.graph.task_graph import Schedule, TaskGraph
from simulator.timelines.last_causes import before_in_streams

_ROUNDING = 1e-12
"""Share of a time that rounding explains."""


class Played(NamedTuple):
    """Iterations, and when an engine ran their tasks."""

    program_graph: ProgramGraph
    schedule: Schedule
    engine_s: float
    """Wall time of the engine."""


def all_in_a_row(program_graph: ProgramGraph, engine: str) -> Played:
    """Replay all iterations of a graph by an engine."""
    begin, graph = perf_counter(), program_graph.graph
    # Tasks of later iterations also wait for tasks of the one before, so that no cycle can pass through several.
    check_task_graph(_first_tasks(graph, graph.size // len(program_graph.task_of)))
    return Played(program_graph, simulate(graph, engine=engine, checked=True), perf_counter() - begin)


def first_alone(both: ProgramGraph, engine: str) -> Played | None:
    """Replay the first of two iterations alone; None if the second would begin before it has ended."""
    size = both.graph.size // 2
    first = ProgramGraph(
        _first_tasks(both.graph, size),
        both.task_of[:1],
        both.unit_bytes,
        None if both.launches is None else both.launches[:size],
        None if both.inputs is None else both.inputs[:1],
    )
    played = all_in_a_row(first, engine)
    return played if _follows(both.graph, played.schedule.end_s) else None


def _follows(both: TaskGraph, end_s: Floats) -> bool:
    """Return whether all tasks of the second of two iterations begin when the first has ended.

    Args:
        both: Both iterations.
        end_s: Ends of the tasks of the first.
    """
    size, queued = len(end_s), before_in_streams(both.stream)[len(end_s) :]
    start, second = both.after_start[size:], np.flatnonzero(queued >= 0)
    late = np.append(row_owners(start - start[0]), second)
    early = np.append(both.after[start[0] :], queued[second])
    # what waits for a task of the second iteration begins behind those that do not
    ends_s, begins_s = np.append(end_s, np.full(size, np.inf)), np.zeros(size)
    np.maximum.at(begins_s, late, ends_s[early])
    return bool((begins_s >= end_s.max(initial=0.0) * (1 - _ROUNDING)).all())


def _first_tasks(graph: TaskGraph, count: int) -> TaskGraph:
    """Return the graph of the first tasks, which wait for none of the others."""
    uses, waits = graph.use_start[count], graph.after_start[count]
    columns = ("work", "latency_s", "start_s", "rate_limit", "priority", "stream")
    return replace(
        graph,
        **{name: getattr(graph, name)[:count] for name in columns},
        use_start=graph.use_start[: count + 1],
        use_resource=graph.use_resource[:uses],
        use_weight=graph.use_weight[:uses],
        own_weight=None if graph.own_weight is None else graph.own_weight[:uses],
        after_start=graph.after_start[: count + 1],
        after=graph.after[:waits],
    )
