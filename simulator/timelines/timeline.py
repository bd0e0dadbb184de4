"""Use of resources under a schedule, and lower bounds on the length of any schedule."""

from dataclasses import dataclass, replace

import numpy as np

from groundwork.array_types import Floats, Ints
from simulator.engines.engine import simulate
from simulator.graph.task_graph import Schedule, TaskGraph


@dataclass(frozen=True, slots=True, kw_only=True)
class Bound:
    """A lower bound on the length of every schedule of a task graph."""

    seconds: float
    reason: str
    """Reason for the bound, in words: the longest path, or the busiest resource."""


def alone_s(graph: TaskGraph) -> Floats:
    """Return the seconds of work of each task if it ran alone, also without those for which it stands, shape (T,)."""
    if graph.own_weight is not None:
        graph = replace(graph, use_weight=graph.own_weight, own_weight=None)
    return np.asarray(graph.work / graph.alone_rates, dtype=np.float64)


def longest_path_s(graph: TaskGraph) -> float:
    """Return the length of the longest path of dependencies and streams, with each task at the rate it has alone.

    It is the makespan of the same tasks on resources without limits.
    """
    free = replace(
        graph,
        work=alone_s(graph),
        rate_limit=np.full(graph.size, np.inf),
        use_start=np.zeros(graph.size + 1, dtype=np.int64),
        use_resource=np.zeros(0, dtype=np.int64),
        use_weight=np.zeros(0),
        own_weight=None,
    )
    return simulate(free).makespan_s


def busiest_resource(graph: TaskGraph) -> tuple[int, float]:
    """Return the resource with the most work, and the least time that the work takes; (-1, 0) without resources.

    A fair resource serves at its capacity at best; an exclusive one is held for as long as each task lasts
    at the rate that it has alone.
    """
    if len(graph.capacity) == 0:
        return -1, 0.0
    owner = graph.use_owners
    served_s = graph.use_weight * graph.work[owner] / graph.capacity[graph.use_resource]
    least_s = np.where(graph.exclusive[graph.use_resource], alone_s(graph)[owner], served_s)
    total_s = np.bincount(graph.use_resource, least_s, minlength=len(graph.capacity))
    busiest = int(np.argmax(total_s))
    return busiest, float(total_s[busiest])


def lower_bound(graph: TaskGraph) -> Bound:
    """Return the greater of two bounds: the longest path and the busiest resource."""
    path_s = longest_path_s(graph)
    resource, resource_s = busiest_resource(graph)
    if path_s >= resource_s:
        return Bound(seconds=path_s, reason="longest path of dependencies and streams")
    return Bound(seconds=resource_s, reason=f"busiest resource: {graph.resource_names[resource]}")


def resource_use(graph: TaskGraph, schedule: Schedule, edges_s: Floats, resources: Ints | None = None) -> Floats:
    """Return the share of each resource's capacity in use, averaged over bins of time.

    The work of a task counts as spread evenly from its start to its end: the total is exact, and so is
    every bin in which no rate changes.

    Args:
        graph: Task graph.
        schedule: Its times, as an engine returned them.
        edges_s: Edges of the bins, rising, shape (B + 1,).
        resources: Resources that are asked for, shape (R,); None: all.

    Returns:
        Shares, shape (R, B).
    """
    rows = np.arange(len(graph.capacity)) if resources is None else resources
    row = np.full(len(graph.capacity), -1)
    row[rows] = np.arange(len(rows))
    row, owner = row[graph.use_resource], graph.use_owners
    start_s, end_s = (np.clip(times, edges_s[0], edges_s[-1])[owner] for times in (schedule.start_s, schedule.end_s))
    visible = (end_s > start_s) & (row >= 0)
    owner, row, start_s, end_s = owner[visible], row[visible], start_s[visible], end_s[visible]
    slope = graph.use_weight[visible] * graph.work[owner] / (schedule.end_s - schedule.start_s)[owner]
    first = np.searchsorted(edges_s, start_s, side="right") - 1
    last = np.searchsorted(edges_s, end_s, side="left") - 1
    width_s = np.diff(edges_s)
    # A use covers the bins between its outer two in full: differences of slopes, summed up once for all uses.
    # Its share of the outer two bins is added for each use.
    whole = np.zeros((len(rows), len(edges_s)))
    np.add.at(whole, (row, first + 1), np.where(first < last, slope, 0.0))
    np.add.at(whole, (row, last), np.where(first < last, -slope, 0.0))
    moved = np.cumsum(whole, axis=1)[:, :-1] * width_s
    np.add.at(moved, (row, first), slope * (np.minimum(end_s, edges_s[first + 1]) - start_s))
    np.add.at(moved, (row, last), np.where(first < last, slope * (end_s - edges_s[last]), 0.0))
    return np.asarray(moved / (graph.capacity[rows, None] * width_s), dtype=np.float64)


def union(start_s: Floats, end_s: Floats) -> tuple[Floats, Floats]:
    """Return the union of intervals as disjoint intervals in order: their starts and ends.  Empty ones are left out."""
    lasts = end_s > start_s
    order = np.argsort(start_s[lasts], kind="stable")
    start_s, end_s = start_s[lasts][order], end_s[lasts][order]
    reached_s = np.maximum.accumulate(end_s)
    first = np.ones(len(start_s), dtype=bool)
    first[1:] = start_s[1:] > reached_s[:-1]
    last = np.ones(len(start_s), dtype=bool)
    last[:-1] = first[1:]
    return start_s[first], reached_s[last]
