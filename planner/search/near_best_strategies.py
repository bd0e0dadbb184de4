"""Strategies of least additive cost, the k best of a network; only transfers that can matter are priced."""

import math
from collections.abc import Sequence

import numpy as np

from groundwork.array_types import Bools
from planner.cost.cost_model import CostModel
from planner.elimination.best_strategies import Ranked, k_best
from planner.layouts.configurations import ConfigSpace, Configuration
from planner.search.priced_problem import unbounded_problem

MARGINS = (0.002, 0.02, 0.2, math.inf)
"""Relative margins above the optimum within which strategies are searched, one after another until enough are there."""


def near_best(model: CostModel, least_s: float, count: int) -> list[dict[str, Configuration]]:
    """Return the ``count`` strategies of least additive cost on ``model.all_configurations()``, cheapest first.

    Args:
        model: Costs of a network on a cluster.
        least_s: Additive cost of the optimum, or of a strategy that is better.
        count: Number of strategies, >= 1.

    Returns:
        ``count`` strategies, or all if there are fewer.

    Raises:
        InfeasiblePlanError: The graph is too wide for exact elimination.
    """
    spaces = model.all_configurations()
    problem = unbounded_problem(model, spaces)
    for margin in MARGINS:
        upper_s = least_s * (1 + margin)
        kept = problem.within(upper_s)
        if not all(mask.any() for mask in kept):
            continue
        ranked = k_best(problem.priced(kept), count)
        if len(ranked) == count and ranked[-1].cost_s <= upper_s:
            break
    return [_strategy(model, spaces, kept, row) for row in ranked]


def _strategy(
    model: CostModel, spaces: Sequence[ConfigSpace], kept: Sequence[Bools], row: Ranked
) -> dict[str, Configuration]:
    """Return a ranked choice among the kept configurations as a strategy."""
    chosen = zip(model.graph.layers, spaces, kept, row.choice, strict=True)
    return {layer.name: space.configuration(int(np.flatnonzero(mask)[c])) for layer, space, mask, c in chosen}
