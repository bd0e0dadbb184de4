"""The k best strategies of Eq. 1, exactly and in order.

The strategies that remain after the best one are divided into sets by the first node where they differ from it; each
of these sets is a problem of its own, and only sets whose lower bound comes next are solved.  With best strategy
(2, 0, 1)::

    set 1    node 0: not 2
    set 2    node 0: 2, node 1: not 0
    set 3    node 0: 2, node 1: 0, node 2: not 1

Source:
    Lawler, "A procedure for computing the K best solutions to discrete optimization problems and its application to
    the shortest path problem", Management Science 18, 1972; the bounds are the min-marginals of
    ``planner.elimination.bounds``.
"""

import heapq
import math
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from groundwork.array_types import Bools
from groundwork.errors import ConfigError, InfeasiblePlanError
from planner.elimination.bounds import SLACK, relax
from planner.elimination.eliminate_nodes import eliminate
from planner.elimination.search_problem import SearchProblem, restrict, strategy_cost, whole_choice


@dataclass(frozen=True, slots=True, order=True)
class Ranked:
    """A strategy with its cost, ordered by cost, then by choice."""

    cost_s: float
    choice: tuple[int, ...]
    """Configuration of every node."""


@dataclass(frozen=True, slots=True, order=True)
class _Set:
    """A set of strategies that are not ranked yet; sets are ordered as they are processed."""

    bound_s: float
    """Lower bound of the cost of its strategies; the exact least cost where ``best`` is known."""
    best: tuple[int, ...]
    """Best strategy of the set; () where it is not known, which sorts first, so that unsolved sets come before ties."""
    keep: tuple[Bools, ...] = field(compare=False)
    """Masks of the configurations of the set, shapes (C_i,)."""
    decided: int = field(compare=False)
    """Number of the first nodes that have one configuration left."""


def k_best(problem: SearchProblem, count: int) -> tuple[Ranked, ...]:
    """Return the ``count`` cheapest strategies, cheapest first; fewer where there are fewer of finite cost.

    Args:
        problem: Cost tables of N nodes.  About N eliminations a strategy at worst, few where one configuration of
            most nodes is much better than the others.
        count: Number of strategies to return, >= 1.

    Raises:
        ConfigError: ``count`` < 1.
        InfeasiblePlanError: See ``eliminate``; also where every strategy costs ``inf``.

    Source:
        Lawler, 1972.
    """
    if count < 1:
        raise ConfigError(f"count must be >= 1, got {count}")
    everything = tuple(np.ones(size, dtype=bool) for size in problem.counts)
    first = eliminate(problem)
    heap = [_Set(first.cost_s, first.choice, everything, 0)]
    ranked: list[Ranked] = []
    while heap and len(ranked) < count:
        strategies = heapq.heappop(heap)
        if strategies.best:
            ranked.append(Ranked(strategies.bound_s, strategies.best))
            for part in _split(problem, strategies):
                heapq.heappush(heap, part)
        elif (solved := _solved(problem, strategies)) is not None:
            heapq.heappush(heap, solved)
    return tuple(ranked)


def _split(problem: SearchProblem, parent: _Set) -> Iterator[_Set]:
    """Yield sets of all strategies of a set but its best, by the first node where they differ from it."""
    bounds = relax(restrict(problem, parent.keep)).node_s
    decided = [np.arange(len(mask)) == choice for mask, choice in zip(parent.keep, parent.best, strict=True)]
    for node in range(parent.decided, len(parent.best)):
        others = parent.keep[node] & ~decided[node]
        if others.any():
            bound = float(bounds[node][others[parent.keep[node]]].min())
            if bound < math.inf:
                keep = (*decided[:node], others, *parent.keep[node + 1 :])
                # Rounding may lift a bound above the cost that it bounds, and change the order of equal costs.
                yield _Set(max(parent.bound_s, bound * (1 - SLACK)), (), keep, node)


def _solved(problem: SearchProblem, strategies: _Set) -> _Set | None:
    """Return the set with its best strategy; None where all its strategies are forbidden."""
    try:
        solution = eliminate(restrict(problem, strategies.keep))
    except InfeasiblePlanError:
        return None  # the whole problem was not too wide, so this part of it is not
    choice = whole_choice(strategies.keep, solution.choice)
    return _Set(strategy_cost(problem, choice), choice, strategies.keep, strategies.decided)
