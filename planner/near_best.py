"""The k best strategies of Eq. 1 of a model; transfers are priced only as far as they can matter."""

import math
from collections.abc import Sequence
from functools import partial

import numpy as np

from planner.configurations import ConfigSpace, Configuration
from planner.costs import CostModel
from planner.graph import Edge
from planner.layerwise import SAMPLES
from planner.search.bounds import edge_bounds, keep_within, relax
from planner.search.k_best import Ranked, k_best
from planner.search.problem import Bools, Floats, SearchProblem, restrict

__all__ = ["near_best"]

MARGINS = (0.002, 0.02, 0.2, math.inf)
"""How far above the optimum the strategies wanted are looked for, until there are enough."""


def near_best(model: CostModel, least_s: float, count: int) -> list[dict[str, Configuration]]:
    """Return the ``count`` strategies of least additive cost that ``model.offered()`` allows, cheapest first.

    Args:
        model: Prices of a model on a cluster.
        least_s: Eq. 1 of the optimum.
        count: Strategies wanted, >= 1; fewer come back where there are fewer.

    Raises:
        InfeasiblePlanError: The graph is too wide for exact elimination.
    """
    spaces = model.offered()
    for margin in MARGINS:
        upper_s = least_s * (1 + margin)
        problem, kept = _within(model, spaces, upper_s)
        ranked = k_best(problem, count)
        if len(ranked) == count and ranked[-1].cost_s <= upper_s:
            break
    return [_strategy(model, spaces, kept, row) for row in ranked]


def _strategy(
    model: CostModel, spaces: Sequence[ConfigSpace], kept: Sequence[Bools], row: Ranked
) -> dict[str, Configuration]:
    chosen = zip(model.graph.layers, spaces, kept, row.choice, strict=True)
    return {layer.name: space.configuration(int(np.flatnonzero(mask)[c])) for layer, space, mask, c in chosen}


def _within(model: CostModel, spaces: Sequence[ConfigSpace], upper_s: float) -> tuple[SearchProblem, list[Bools]]:
    """The problem of all strategies of at most ``upper_s``, and which configurations of every layer it keeps."""
    bounds = model.problem(spaces, partial(model.transfer_table, samples=SAMPLES))
    relaxation = relax(bounds)
    kept = list(keep_within(relaxation.node_s, upper_s))
    wanted: dict[int, Bools] = {}
    for tensor, limits in zip(bounds.tensors, edge_bounds(bounds, relaxation), strict=True):
        for consumer, table, mask in zip(tensor.consumers, tensor.cost_s, keep_within(limits, upper_s), strict=True):
            pairs = mask & kept[tensor.producer][:, None] & kept[consumer]
            wanted[id(table)] = wanted.get(id(table), False) | pairs
    made: dict[int, Floats] = {}

    def exact(edge: Edge, producer: ConfigSpace, consumer: ConfigSpace) -> Floats:
        key = id(model.transfer_table(edge, producer, consumer, samples=SAMPLES))
        if key not in made:
            u, v = np.nonzero(wanted[key])
            made[key] = np.full(wanted[key].shape, math.inf)
            made[key][u, v] = model.transfer_s(edge, producer, consumer, u, v)
        return made[key]

    return restrict(model.problem(spaces, exact), kept), kept
