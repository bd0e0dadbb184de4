"""Lower bounds of the cost of every strategy that uses a given configuration.

Every producer keeps the edge to one of its consumers, the one on the path with the largest sum of least node costs,
and pays for no other: transfers are >= 0, and a shared one is paid once at least, so this never costs more.  The
rest is a forest whose edges point to the last layers::

    layers           a -> b -> d        kept        a -> b -> d
                     a -> c -> d                         c -> d

Two sweeps of messages, to the last layers and back, give the exact least cost of every strategy of the forest that
uses a configuration (its min-marginal), in C^2 operations an edge.

Source:
    Two sweeps on a tree: Pearl, "Probabilistic Reasoning in Intelligent Systems", 1988, Ch. 4, in (min,+) algebra.
"""

import math
from dataclasses import dataclass

import numpy as np

from groundwork.array_types import Bools, Floats
from planner.elimination.minplus import fold_columns, fold_rows
from planner.elimination.search_problem import SearchProblem

SLACK = 1e-9
"""Relative tolerance for rounding: a bound rules out only costs that it exceeds by more than this."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Relaxation:
    """The forest that bounds a problem, and its messages."""

    kept: tuple[tuple[int, int] | None, ...]
    """Edge that every node keeps, as (tensor, position among its consumers); None for the last nodes."""
    below_s: tuple[Floats, ...]
    """Least cost of each node and of the trees that lead to it, without the rest, shapes (C_i,)."""
    beyond_s: tuple[Floats, ...]
    """Least cost of everything else, by the configuration of the node that ``kept`` leads to; for the last nodes the
    cost of the other trees, by their own configuration."""
    node_s: tuple[Floats, ...]
    """Lower bound of every strategy that uses the configuration, shapes (C_i,); ``inf`` where there is none."""


def relax(problem: SearchProblem) -> Relaxation:
    """Reduce the graph to a forest and bound every configuration."""
    kept = _kept_edges(problem)
    below = [np.array(cost, dtype=np.float64) for cost in problem.node_cost_s]
    messages: dict[int, Floats] = {}
    # Forward: every node passes the least cost of itself and of all before it on to its consumer.
    for node, (edge, cost) in enumerate(zip(kept, below, strict=True)):
        if edge is not None:  # consumers come later, so the messages of all producers of this node are in its cost
            target, table = _edge(problem, edge)
            messages[node] = fold_rows(cost, table)
            below[target] += messages[node]
    roots = {node: float(below[node].min()) for node, edge in enumerate(kept) if edge is None}
    beyond: list[Floats] = [np.zeros(0)] * len(below)
    bound: list[Floats] = [np.zeros(0)] * len(below)
    # Back: what is beyond a node is its consumer's bound, less what the node itself has put into it.
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
    """Return the consuming edge of every node that starts its longest path to the end."""
    heavy = [float(cost.min()) for cost in problem.node_cost_s]
    ahead: list[float] = [0.0] * len(heavy)
    kept: list[tuple[int, int] | None] = [None] * len(heavy)
    for index, tensor in sorted(enumerate(problem.tensors), key=lambda pair: -pair[1].producer):
        u = tensor.producer
        for position, consumer in enumerate(tensor.consumers):
            path = heavy[consumer] + ahead[consumer]
            if kept[u] is None or path > ahead[u]:
                kept[u], ahead[u] = (index, position), path
    return tuple(kept)


def _edge(problem: SearchProblem, edge: tuple[int, int]) -> tuple[int, Floats]:
    """Return the consumer of an edge and its cost table, C-contiguous."""
    tensor = problem.tensors[edge[0]]
    return tensor.consumers[edge[1]], np.ascontiguousarray(tensor.cost_s[edge[1]])


def _without(bound: Floats, message: Floats) -> Floats:
    """Return a sum without one of its terms; ``inf`` where the sum is ``inf``, for then no strategy has that bound."""
    rest: Floats = np.subtract(bound, message, out=np.full(len(bound), np.inf), where=bound < np.inf)
    return rest


def edge_bounds(problem: SearchProblem, relaxation: Relaxation) -> tuple[tuple[Floats, ...], ...]:
    """Return a lower bound of the cost of every strategy that uses a pair of configurations.

    Edges of the forest get their min-marginal.  The pairs of other edges are bounded by both ends, plus the transfer
    where the consumer has no layout in common with the consumer that the forest keeps, which may pay for it.

    Returns:
        For every tensor and consuming edge an array of shape (C_producer, C_consumer).
    """
    return tuple(
        tuple(_edge_bound(problem, relaxation, index, position) for position in range(len(tensor.consumers)))
        for index, tensor in enumerate(problem.tensors)
    )


def _edge_bound(problem: SearchProblem, relaxation: Relaxation, index: int, position: int) -> Floats:
    """Return the lower bounds of the pairs of one edge; see ``edge_bounds``."""
    tensor = problem.tensors[index]
    u, v, cost = tensor.producer, tensor.consumers[position], tensor.cost_s[position]
    kept = relaxation.kept[u]
    if kept == (index, position):
        total: Floats = relaxation.below_s[u][:, None] + cost + relaxation.beyond_s[u]
        return total
    ends: Floats = np.maximum(relaxation.node_s[u][:, None], relaxation.node_s[v])
    # The pair pays for its transfer unless the consumer that the forest keeps may have paid for the same layout.
    apart = kept is None or kept[0] != index or not np.isin(tensor.layout[position], tensor.layout[kept[1]]).any()
    return ends + cost if apart else np.where(cost < np.inf, ends, np.inf)


def keep_within(bounds_s: tuple[Floats, ...], upper_bound_s: float) -> tuple[Bools, ...]:
    """Return where the bounds of the nodes do not exceed a cost, with tolerance for rounding."""
    return tuple(bound <= upper_bound_s * (1 + SLACK) for bound in bounds_s)
