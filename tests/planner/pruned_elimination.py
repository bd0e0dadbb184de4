"""Elimination of the configurations that a bound cannot rule out: an oracle with smaller tables and the same result."""

import math

import numpy as np

from planner.elimination.bounds import keep_within, relax
from planner.elimination.eliminate_nodes import DEFAULT_LIMIT_BYTES, eliminate
from planner.elimination.search_problem import Solution, restrict, strategy_cost


def tree_bounds(problem):
    """Lower bounds of the cost of any strategy that uses a configuration, one array a node."""
    return relax(problem).node_s


def prune(problem, upper_bound_s):
    """Masks of the configurations that a strategy of at most ``upper_bound_s`` may use, one array a node.

    ``restrict(problem, masks)`` keeps every such strategy, hence the best one where ``upper_bound_s`` is the cost of
    a known strategy.  A bound that no strategy meets may leave a node without configurations.
    """
    return keep_within(tree_bounds(problem), upper_bound_s)


def eliminate_pruned(problem, *, upper_bound_s=math.inf, limit_bytes=DEFAULT_LIMIT_BYTES):
    """A strategy of least cost, without the configurations that no such strategy can use.

    Equal to ``eliminate`` in cost; of several strategies that tie it may return another one.  ``upper_bound_s`` is
    the cost of a known strategy; the best strategy of the relaxed graph is known in any case.
    """
    relaxation = relax(problem)
    known_s = min(upper_bound_s, strategy_cost(problem, forest_choice(problem, relaxation)))
    keep = equal_for_equal_layers(problem, keep_within(relaxation.node_s, known_s))
    if all(mask.all() for mask in keep):
        return eliminate(problem, limit_bytes=limit_bytes)
    solution = eliminate(restrict(problem, keep), limit_bytes=limit_bytes)
    choice = tuple(int(np.flatnonzero(mask)[c]) for mask, c in zip(keep, solution.choice, strict=True))
    return Solution(
        choice=choice,
        cost_s=solution.cost_s,
        width=solution.width,
        core_nodes=solution.core_nodes,
        candidates=solution.candidates,
    )


def forest_choice(problem, relaxation):
    """The best strategy of the relaxed graph, from the last nodes back to the first."""
    choice = [0] * len(relaxation.kept)
    for node in reversed(range(len(choice))):
        below, edge = relaxation.below_s[node], relaxation.kept[node]
        if edge is not None:
            tensor = problem.tensors[edge[0]]
            below = below + tensor.cost_s[edge[1]][:, choice[tensor.consumers[edge[1]]]]
        choice[node] = int(below.argmin())
    return tuple(choice)


def equal_for_equal_layers(problem, keep):
    """Masks that keep, for layers with one cost object, what any of them keeps: ``eliminate`` solves them once."""
    joined = {}
    for cost, mask in zip(problem.node_cost_s, keep, strict=True):
        joined[id(cost)] = joined.get(id(cost), False) | mask
    return tuple(joined[id(cost)] for cost in problem.node_cost_s)
