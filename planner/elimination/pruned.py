"""Elimination of what a bound cannot rule out: the same answer from smaller tables."""

import math

import numpy as np

from hwprofiles import Bools
from planner.elimination.bounds import Relaxation, keep_within, relax
from planner.elimination.eliminate_nodes import DEFAULT_LIMIT_BYTES, eliminate
from planner.elimination.search_problem import SearchProblem, Solution, restrict, strategy_cost

__all__ = ["eliminate_pruned", "forest_choice"]


def eliminate_pruned(
    problem: SearchProblem, *, upper_bound_s: float = math.inf, limit_bytes: float = DEFAULT_LIMIT_BYTES
) -> Solution:
    """Return a strategy of least cost, leaving out configurations that no such strategy can use.

    Equal to ``eliminate`` in cost; of several strategies that tie it may return another one.

    Args:
        problem: Cost tables.
        upper_bound_s: Cost of a known strategy (``inf`` for none); the best strategy of the relaxed graph is
            known in any case.
        limit_bytes: See ``eliminate``.

    Raises:
        InfeasiblePlanError: See ``eliminate``.
    """
    relaxation = relax(problem)
    known_s = min(upper_bound_s, strategy_cost(problem, forest_choice(problem, relaxation)))
    keep = _equal_for_equal_layers(problem, keep_within(relaxation.node_s, known_s))
    if all(mask.all() for mask in keep):
        return eliminate(problem, limit_bytes=limit_bytes)
    found = eliminate(restrict(problem, keep), limit_bytes=limit_bytes)
    choice = tuple(int(np.flatnonzero(mask)[c]) for mask, c in zip(keep, found.choice, strict=True))
    return Solution(
        choice=choice,
        cost_s=found.cost_s,
        width=found.width,
        core_nodes=found.core_nodes,
        candidates=found.candidates,
    )


def forest_choice(problem: SearchProblem, relaxation: Relaxation) -> tuple[int, ...]:
    """Return the best strategy of the relaxed graph, from the last nodes back to the first."""
    choice = [0] * len(relaxation.kept)
    for node in reversed(range(len(choice))):
        below, edge = relaxation.below_s[node], relaxation.kept[node]
        if edge is not None:
            tensor = problem.tensors[edge[0]]
            below = below + tensor.cost_s[edge[1]][:, choice[tensor.consumers[edge[1]]]]
        choice[node] = int(below.argmin())
    return tuple(choice)


def _equal_for_equal_layers(problem: SearchProblem, keep: tuple[Bools, ...]) -> tuple[Bools, ...]:
    """Keep for layers with one cost object what any of them keeps: ``eliminate`` then still solves them once."""
    joined: dict[int, Bools] = {}
    for cost, mask in zip(problem.node_cost_s, keep, strict=True):
        joined[id(cost)] = joined.get(id(cost), False) | mask
    return tuple(joined[id(cost)] for cost in problem.node_cost_s)
