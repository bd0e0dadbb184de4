"""Lower bounds of what any strategy costs that uses a given configuration.

Every producer keeps one of its consumers, the one on the path with the largest sum of least node costs, and pays for
no other: transfers are >= 0, and a shared one is paid once at least, so this never costs more.  What is left is a
forest whose edges point to the last layers.  Two sweeps of messages give its exact min-marginals in C^2 per edge.
"""

import math
from dataclasses import dataclass

import numpy as np

from hwprofiles import Bools, Floats
from planner.elimination.minplus import fold_columns, fold_rows
from planner.elimination.search_problem import SearchProblem

__all__ = ["Relaxation", "edge_bounds", "keep_within", "prune", "relax", "tree_bounds"]

SLACK = 1e-9
"""Relative room for rounding: what a bound is to rule out, it must be above by more than this."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Relaxation:
    """The forest and its messages."""

    kept: tuple[tuple[int, int] | None, ...]
    """For every node the (tensor, place among its consumers) of the edge that it keeps; None for the last nodes."""
    below_s: tuple[Floats, ...]
    """Shapes (C_i,): least cost of a node and everything that flows into it, alone."""
    beyond_s: tuple[Floats, ...]
    """Shapes (C_i,): least cost of everything else, by the configuration of the node that ``kept`` leads to;
    for the last nodes the cost of the other trees, by their own configuration."""
    node_s: tuple[Floats, ...]
    """Shapes (C_i,): lower bound of every strategy that uses the configuration; ``inf`` where there is none."""


def relax(problem: SearchProblem) -> Relaxation:
    """Cut the graph to a forest and bound every configuration."""
    kept = _kept_edges(problem)
    below = [np.array(cost, dtype=np.float64) for cost in problem.node_cost_s]
    messages: dict[int, Floats] = {}
    for node, (edge, cost) in enumerate(zip(kept, below, strict=True)):
        if edge is not None:  # consumers come later, so this node has heard from all of its own producers
            target, table = _edge(problem, edge)
            messages[node] = fold_rows(cost, table)
            below[target] += messages[node]
    roots = {node: float(below[node].min()) for node, edge in enumerate(kept) if edge is None}
    beyond: list[Floats] = [np.zeros(0)] * len(below)
    bound: list[Floats] = [np.zeros(0)] * len(below)
    for node in reversed(range(len(below))):
        edge = kept[node]
        if edge is None:
            others = math.fsum(cost for root, cost in roots.items() if root != node)
            beyond[node] = np.full(len(below[node]), others)
            bound[node] = below[node] + beyond[node]
        else:
            target, table = _edge(problem, edge)
            beyond[node] = _without(bound[target], messages[node])
            bound[node] = below[node] + fold_columns(table, beyond[node])
    return Relaxation(kept=kept, below_s=tuple(below), beyond_s=tuple(beyond), node_s=tuple(bound))


def _kept_edges(problem: SearchProblem) -> tuple[tuple[int, int] | None, ...]:
    """The consuming edge of every node that starts the longest path to the end."""
    heavy = [float(cost.min()) for cost in problem.node_cost_s]
    ahead: list[float] = [0.0] * len(heavy)
    kept: list[tuple[int, int] | None] = [None] * len(heavy)
    for index, tensor in sorted(enumerate(problem.tensors), key=lambda pair: -pair[1].producer):
        u = tensor.producer
        for place, consumer in enumerate(tensor.consumers):
            path = heavy[consumer] + ahead[consumer]
            if kept[u] is None or path > ahead[u]:
                kept[u], ahead[u] = (index, place), path
    return tuple(kept)


def _edge(problem: SearchProblem, edge: tuple[int, int]) -> tuple[int, Floats]:
    tensor = problem.tensors[edge[0]]
    return tensor.consumers[edge[1]], np.ascontiguousarray(tensor.cost_s[edge[1]])


def _without(bound: Floats, message: Floats) -> Floats:
    """Take a message out of a sum; where it is ``inf``, no finite cost is left to bound."""
    rest: Floats = np.subtract(bound, message, out=np.full(len(bound), np.inf), where=bound < np.inf)
    return rest


def tree_bounds(problem: SearchProblem) -> tuple[Floats, ...]:
    """Return for every node, shape (C_i,), a lower bound of the cost of any strategy that uses the configuration."""
    return relax(problem).node_s


def edge_bounds(problem: SearchProblem, relaxation: Relaxation) -> tuple[tuple[Floats, ...], ...]:
    """Return for every tensor and consuming edge, shape (C_producer, C_consumer), a lower bound of any strategy
    that uses the pair.

    Edges of the forest get their min-marginal.  Of the others both ends bound the pair, and the transfer comes on
    top where the consumer never asks for a layout of the one that the forest keeps.
    """
    return tuple(
        tuple(_edge_bound(problem, relaxation, index, place) for place in range(len(tensor.consumers)))
        for index, tensor in enumerate(problem.tensors)
    )


def _edge_bound(problem: SearchProblem, relaxation: Relaxation, index: int, place: int) -> Floats:
    tensor = problem.tensors[index]
    u, v, cost = tensor.producer, tensor.consumers[place], tensor.cost_s[place]
    kept = relaxation.kept[u]
    if kept == (index, place):
        total: Floats = relaxation.below_s[u][:, None] + cost + relaxation.beyond_s[u]
        return total
    ends: Floats = np.maximum(relaxation.node_s[u][:, None], relaxation.node_s[v])
    apart = kept is None or kept[0] != index or not np.isin(tensor.layout[place], tensor.layout[kept[1]]).any()
    return ends + cost if apart else np.where(cost < np.inf, ends, np.inf)


def prune(problem: SearchProblem, upper_bound_s: float) -> tuple[Bools, ...]:
    """Return for every node, shape (C_i,), which configurations a strategy of at most ``upper_bound_s`` may use.

    ``restrict(problem, masks)`` keeps every such strategy, hence the best one where ``upper_bound_s`` is the cost of
    a known strategy.  A bound that no strategy meets may leave a node without configurations.
    """
    return keep_within(tree_bounds(problem), upper_bound_s)


def keep_within(bounds_s: tuple[Floats, ...], upper_bound_s: float) -> tuple[Bools, ...]:
    """Return where the bounds of the nodes do not exceed a cost, with room for rounding."""
    return tuple(bound <= upper_bound_s * (1 + SLACK) for bound in bounds_s)
