"""The k best strategies of Eq. 1 of a model; transfers are priced only as far as they can matter."""

import math
from collections.abc import Sequence
from functools import partial

import numpy as np

from hwprofiles import Bools
from planner.cost import CostModel
from planner.elimination import Ranked, k_best
from planner.parallel import ConfigSpace, Configuration
from planner.search.layerwise import BOUND_SAMPLES, price_within
from planner.search.search_tables import search_problem

__all__ = ["near_best"]

MARGINS = (0.002, 0.02, 0.2, math.inf)
"""How far above the optimum the strategies wanted are looked for, until there are enough."""


def near_best(model: CostModel, least_s: float, count: int) -> list[dict[str, Configuration]]:
    """Return the ``count`` strategies of least additive cost on ``model.all_configurations()``, cheapest first.

    Args:
        model: Prices of a model on a cluster.
        least_s: Eq. 1 of the optimum.
        count: Strategies wanted, >= 1; fewer come back where there are fewer.

    Raises:
        InfeasiblePlanError: The graph is too wide for exact elimination.
    """
    spaces = model.all_configurations()
    bounds = search_problem(model, spaces, partial(model.transfer_times.table, samples=BOUND_SAMPLES))
    for margin in MARGINS:
        upper_s = least_s * (1 + margin)
        problem, kept = price_within(model, spaces, bounds, upper_s)
        ranked = k_best(problem, count)
        if len(ranked) == count and ranked[-1].cost_s <= upper_s:
            break
    return [_strategy(model, spaces, kept, row) for row in ranked]


def _strategy(
    model: CostModel, spaces: Sequence[ConfigSpace], kept: Sequence[Bools], row: Ranked
) -> dict[str, Configuration]:
    chosen = zip(model.graph.layers, spaces, kept, row.choice, strict=True)
    return {layer.name: space.configuration(int(np.flatnonzero(mask)[c])) for layer, space, mask, c in chosen}
