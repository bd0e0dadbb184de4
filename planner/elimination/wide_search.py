"""Layer-wise search of graphs that are too wide for exact elimination: exact among the most promising configurations.

Every layer keeps the configurations with the smallest lower bounds, and those that cost least while all other layers
stay as they are in the best strategy so far.  Elimination finds the best strategy among them, which is the next start,
until one is no better.  Where the graph is too wide even so, layers outside a window stay as they are, and the window
moves over the graph.  The lower bound of all strategies says how far from the optimum the result can be.

Source:
    Large neighbourhood search: Shaw, "Using Constraint Programming and Local Search Methods to Solve Vehicle Routing
    Problems", CP 1998, with elimination as the exact method.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from groundwork.array_types import Bools, Floats
from planner.elimination.bounds import relax
from planner.elimination.eliminate_nodes import eliminate
from planner.elimination.elimination_state import GraphTooWideError
from planner.elimination.search_problem import SearchProblem, strategy_cost, whole_choice

WIDE_LIMIT_SUMS = 1e9
"""Sums of an elimination by width, about 3 s, after which a graph counts as too wide."""
_LIMIT_BYTES, _LIMIT_SUMS = 1e9, 2e8
"""Largest table, and most sums, of an elimination among the most promising configurations."""
_MOST_KEPT, _FEWEST_KEPT = 32, 8
"""Configurations that each layer keeps at first, and at least before the window becomes smaller."""
_ROUNDS = 8
"""Most times that the window moves over the graph."""
_WORTHWHILE = 1e-3
"""Relative improvement below which it does not move once more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundStrategy:
    """Best strategy of a search, and how good it is."""

    choice: tuple[int, ...]
    """Configuration of every layer."""
    cost_s: float
    """Its additive cost, exact."""
    least_s: float
    """Lower bound of the additive cost of every strategy."""
    width: int
    """Most layers that one layer was joined with when it was eliminated."""


def search_wide(
    bounds: SearchProblem,
    priced: Callable[[Sequence[Bools]], SearchProblem],
    starts: Sequence[tuple[tuple[int, ...], float]],
) -> FoundStrategy:
    """Return the best strategy that repeated elimination among few configurations of every layer finds.

    Args:
        bounds: Search problem with lower bounds as transfer times, all of them finite.
        priced: Returns the exact problem on some configurations of every layer, given as masks.
        starts: Strategies that are known, with their costs; the result is at most as expensive as any of them.
    """
    bound_s = relax(bounds).node_s
    promising = tuple(int(bound.argmin()) for bound in bound_s)
    alone = [np.arange(len(bound)) == c for bound, c in zip(bound_s, promising, strict=True)]
    best = min([*starts, (promising, strategy_cost(priced(alone), [0] * len(alone)))], key=lambda start: start[1])
    count, window, width, layers = _MOST_KEPT, len(bound_s), 1, len(bound_s)
    for _ in range(_ROUNDS):
        before_s, first = best[1], 0
        while first < layers:
            fixed = [layer for layer in range(layers) if not first <= layer < first + window]
            keep = _most_promising([bound_s, _single_changes(bounds, best[0])], count, best[0], fixed)
            try:
                solution = eliminate(priced(keep), limit_bytes=_LIMIT_BYTES, limit_sums=_LIMIT_SUMS)
            except GraphTooWideError:
                count, window = (count // 2, window) if count > _FEWEST_KEPT else (count, window // 2)
                continue
            width = max(width, solution.width)
            if solution.cost_s < best[1]:
                best = whole_choice(keep, solution.choice), solution.cost_s
            first += layers if window == layers else max(window // 2, 1)
        if best[1] >= before_s * (1 - _WORTHWHILE):
            break
    least_s = max(float(bound.min()) for bound in bound_s)
    return FoundStrategy(choice=best[0], cost_s=best[1], least_s=min(least_s, best[1]), width=width)


def _most_promising(
    ranks: Sequence[Sequence[Floats]], count: int, choice: Sequence[int], fixed: Sequence[int]
) -> list[Bools]:
    """Return masks of the configurations that the ranks put first.

    Args:
        ranks: Values of all configurations of every layer, small ones first, shapes (C_i,).
        count: Configurations of each layer, shared among the ranks.
        choice: Strategy whose configurations are kept.
        fixed: Layers that keep no others.
    """
    masks = []
    for values, chosen in zip(zip(*ranks, strict=True), choice, strict=True):
        mask = np.zeros(len(values[0]), dtype=bool)
        for value in values:
            mask[np.argsort(value, kind="stable")[: count // len(ranks)]] = True
        mask[chosen] = True
        masks.append(mask)
    for layer in fixed:
        masks[layer] = np.arange(len(masks[layer])) == choice[layer]
    return masks


def _single_changes(problem: SearchProblem, choice: Sequence[int]) -> list[Floats]:
    """Return what every configuration of a layer costs while all other layers stay as they are.

    Transfers that consumers share count once for each: the order matters here, not the value.
    """
    costs = [cost.copy() for cost in problem.node_cost_s]
    for tensor in problem.tensors:
        for consumer, table in zip(tensor.consumers, tensor.cost_s, strict=True):
            costs[tensor.producer] += table[:, choice[consumer]]
            costs[consumer] += table[choice[tensor.producer]]
    return costs
