"""The ladder: the iteration time of one program under one execution model after the other, from the simplest on."""

import numpy as np

from groundwork.array_types import Bools, Floats
from groundwork.sparse_rows import row_owners
from planner.cost.conditions import Conditions
from planner.lowering.program import Program
from planner.simulation.execution_models import ITERATIONS
from planner.simulation.program_replay import (
    check_first_iteration,
    first_tasks,
    iteration_ends_s,
    replayed_graph,
    steady_window_s,
)
from simulator.engines.engine import simulate
from simulator.graph.task_graph import TaskGraph

_ABOVE = ("interference", "spread")
"""Rungs above contention."""
_SHARE = 8
"""Of the iteration behind those that count, one task in so many is replayed, the first ones."""


def ladder_s(
    program: Program, additive_s: float, full_s: float | None = None, conditions: Conditions | None = None
) -> dict[str, float]:
    """Return the iteration time of a program under each execution model.

    Args:
        program: One iteration.
        additive_s: Its additive cost.
        full_s: Its time with overlap and contention and nothing above, if it is known.
        conditions: Rungs above contention; None: those of the program.

    Returns:
        Seconds by rung: additive, overlap, contention, and those above that are on.
    """
    rungs = {"additive": additive_s, "overlap": steady_s(program, contention=False)}
    rungs["contention"] = steady_s(program, interference=False, spread=False) if full_s is None else full_s
    return rungs | upper_rungs_s(program, conditions or program.conditions)


def upper_rungs_s(program: Program, conditions: Conditions, last_s: float | None = None) -> dict[str, float]:
    """Return the iteration time of a program on the rungs above contention that are on, each with those below it.

    Args:
        program: One iteration.
        conditions: The rungs.
        last_s: Its time under all of them, if it is known.
    """
    on, rungs = [name for name in _ABOVE if getattr(conditions, name)], {}
    for count, rung in enumerate(on, 1):
        rung_s = last_s if count == len(on) else None
        if rung_s is None:
            rung_s = steady_s(program, interference="interference" in on[:count], spread="spread" in on[:count])
        rungs[rung] = rung_s
    return rungs


def steady_s(
    program: Program,
    *,
    overlap: bool = True,
    contention: bool = True,
    interference: bool | None = None,
    spread: bool | None = None,
) -> float:
    """Return ``replay(...).iteration_s``, to the last bit, in about three quarters of its time for most programs.

    A replay ends with an iteration that does not count: it only shares the cluster with the one before.  Tasks of it
    that wait for a task that ends with or behind the iteration before cannot delay that, so they are left out::

        iteration 2   ------------------|
        iteration 3                  ---------------------|
        iteration 4                                     ---- ...  replayed: the first eighth of its tasks
                                                            ^ all others begin behind iteration 3

    All is replayed where others than its first tasks could delay it.  That is known beforehand where the first layer
    computes micro-batches, as in pipelines: those wait for no task.  Of other programs it shows, and they take longer.

    Args:
        program: One iteration, lowered.
        overlap: As for ``replay``, as are the others.
        contention: See there.
        interference: See there.
        spread: See there.

    Raises:
        ConfigError: As for ``replay``.
    """
    built = replayed_graph(
        program, overlap=overlap, contention=contention, interference=interference, spread=spread, iterations=ITERATIONS
    )
    graph = built.graph
    check_first_iteration(graph, ITERATIONS)
    end_s = _ends_that_count(graph) if program.micro_batching.of(0) == 1 else None
    if end_s is None:
        end_s = simulate(graph, checked=True).end_s
    ends_s = iteration_ends_s(end_s, built.task_of[:-1])
    begin, end, count = steady_window_s(ends_s, ITERATIONS)
    return (end - begin) / count


def _ends_that_count(graph: TaskGraph) -> Floats | None:
    """Return the ends of all tasks but those that the last iteration leaves out; None where it cannot leave them out.

    Args:
        graph: ``ITERATIONS`` iterations.
    """
    counted = graph.size // ITERATIONS * (ITERATIONS - 1)
    kept = counted + (graph.size - counted) // _SHARE
    if not (graph.after[: graph.after_start[kept]] < kept).all():
        return None
    end_s = simulate(first_tasks(graph, kept), checked=True).end_s
    return end_s if _follow(graph, kept, end_s, float(end_s[:counted].max())).all() else None


def _follow(graph: TaskGraph, first: int, end_s: Floats, over_s: float) -> Bools:
    """Return which tasks from ``first`` on wait for one that ends at a time or later, or for one of themselves.

    Args:
        graph: The whole graph.
        first: Number of tasks that were replayed.
        end_s: Their ends, shape (first,).
        over_s: The time.
    """
    ends_s = np.append(end_s, np.full(graph.size - first, np.inf))
    start = graph.after_start[first:]
    late = ends_s[graph.after[start[0] :]] >= over_s
    follow = np.zeros(graph.size - first, dtype=np.bool_)
    follow[row_owners(start - start[0])[late]] = True
    return follow
