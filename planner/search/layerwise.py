"""Layer-wise search: the strategy of least additive cost (Eq. 1), found exactly.

On large clusters most of the time goes into pricing transfers, so elimination runs on lower bounds of them first.  The
resulting strategy is then priced: if its price equals the bound, it is optimal.  If not, that price is an upper bound,
which rules out most pairs of configurations; only the others are priced, and elimination runs once more.

Source:
    Jia et al., "Exploring Hidden Dimensions in Parallelizing Convolutional Neural Networks", ICML 2018, Sec. 5.
"""

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from hwprofiles import Bools, Floats
from planner.cost import CostModel
from planner.elimination import (
    SearchProblem,
    Solution,
    TensorCost,
    edge_bounds,
    eliminate,
    keep_within,
    relax,
    restrict,
    strategy_cost,
)
from planner.graph import Edge
from planner.parallel import ConfigSpace, Configuration, Strategy
from planner.search.search_tables import search_problem

__all__ = ["BOUND_SAMPLES", "LayerwiseResult", "price_within", "search_layerwise"]


DIRECT_PAIRS = 60_000
"""Most pairs of configurations that are all priced at once: about 0.05 s."""
BOUND_SAMPLES = 1
"""Regions and parts that the lower bound of a transfer samples; more take longer and rule out no more strategies."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerwiseResult:
    """Strategy of least additive cost, with the effort of the search."""

    strategy: dict[str, Configuration]
    """Configuration of each layer, by the layer's name."""
    cost_s: float
    """Additive cost (Eq. 1), exact; a tensor that several consumers read in one layout is transferred once."""
    tables_s: float
    """Time spent on cost tables and bounds."""
    search_s: float
    """Time spent on elimination."""
    width: int
    """Most layers that one layer was joined with when it was eliminated."""
    configurations: int
    """Configurations to choose from, all layers together."""
    pairs_priced: int
    """Pairs of configurations whose transfer was priced exactly, equal edges counted once."""


def search_layerwise(model: CostModel, *, known: Sequence[Strategy] = ()) -> LayerwiseResult:
    """Return the best of all strategies that ``model.all_configurations()`` allows.

    Args:
        model: Costs of a network on a cluster.
        known: Strategies whose costs may be good upper bounds; those with other configurations are ignored.

    Raises:
        InfeasiblePlanError: The graph is too wide for exact elimination.

    Source:
        Jia et al., "Exploring Hidden Dimensions in Parallelizing Convolutional Neural Networks", ICML 2018, Sec. 5.
    """
    began, spaces, searched = time.perf_counter(), model.all_configurations(), 0.0
    pairs = sum(spaces[edge.producer].size * spaces[edge.consumer].size for edge in model.graph.edges)
    samples = 0 if pairs <= DIRECT_PAIRS else BOUND_SAMPLES
    problem = search_problem(model, spaces, partial(model.transfer_times.table, samples=samples))
    solution, seconds = _eliminated(problem)
    choice, cost_s, searched = solution.choice, solution.cost_s, searched + seconds
    if samples and (price := _price(model, spaces, choice)) > cost_s:
        upper_s = min([price, *(_price(model, spaces, known) for known in _choices(spaces, model, known))])
        problem, keep = price_within(model, spaces, problem, upper_s)
        solution, seconds = _eliminated(problem)
        choice = tuple(int(np.flatnonzero(mask)[c]) for mask, c in zip(keep, solution.choice, strict=True))
        cost_s, searched = solution.cost_s, searched + seconds
    chosen = zip(model.graph.layers, spaces, choice, strict=True)
    return LayerwiseResult(
        strategy={layer.name: space.configuration(index) for layer, space, index in chosen},
        cost_s=cost_s,
        tables_s=time.perf_counter() - began - searched,
        search_s=searched,
        width=solution.width,
        configurations=sum(space.size for space in spaces),
        pairs_priced=model.transfer_times.pairs_priced,
    )


def _eliminated(problem: SearchProblem) -> tuple[Solution, float]:
    """Return the solution of a search problem, and the seconds that it took."""
    began = time.perf_counter()
    return eliminate(problem), time.perf_counter() - began


def _price(model: CostModel, spaces: Sequence[ConfigSpace], choice: Sequence[int]) -> float:
    """Return the additive cost of one strategy, summed in the order in which elimination sums."""
    priced: dict[tuple[object, ...], Floats] = {}
    tensors = []
    for i, edges in enumerate(model.graph.outgoing):
        costs, layouts = [], []
        for edge in edges:
            producer, consumer = spaces[i], spaces[edge.consumer]
            u, v = np.array([choice[i]]), np.array([choice[edge.consumer]])
            key = (*model.transfer_times.key(edge, producer, consumer), choice[i], choice[edge.consumer])
            if key not in priced:
                priced[key] = model.transfer_times.seconds(edge, producer, consumer, u, v).reshape(1, 1)
            costs.append(priced[key])
            layouts.append(model.transfer_times.layouts(edge, consumer)[v])
        if edges:
            consumers = tuple(edge.consumer for edge in edges)
            tensors.append(TensorCost(producer=i, consumers=consumers, cost_s=tuple(costs), layout=tuple(layouts)))
    nodes = [model.node_costs(i, space).total_s[[c]] for i, (space, c) in enumerate(zip(spaces, choice, strict=True))]
    return strategy_cost(SearchProblem(node_cost_s=tuple(nodes), tensors=tuple(tensors)), [0] * len(nodes))


def _choices(spaces: Sequence[ConfigSpace], model: CostModel, known: Sequence[Strategy]) -> list[tuple[int, ...]]:
    """Return the known strategies whose configurations are all in the spaces, as indices into these."""
    choices = []
    for strategy in known:
        indices = [_index(space, strategy[layer.name]) for space, layer in zip(spaces, model.graph.layers, strict=True)]
        choices.append(tuple(index for index in indices if index is not None))
    return [choice for choice in choices if len(choice) == len(spaces)]


def _index(space: ConfigSpace, wanted: Configuration) -> int | None:
    """Return the index of a configuration in a space; None if it is not there."""
    degrees = [wanted.degrees.get(dim, 1) for dim in space.output.dims]
    for index in np.flatnonzero((space.degrees == degrees).all(axis=1)).tolist():
        if space.configuration(index).devices == wanted.devices:
            return index
    return None


def price_within(
    model: CostModel, spaces: Sequence[ConfigSpace], bounds: SearchProblem, upper_s: float
) -> tuple[SearchProblem, list[Bools]]:
    """Price all pairs of configurations that a strategy of at most ``upper_s`` may use, and exclude the others.

    Args:
        model: Costs of a network on a cluster.
        spaces: For every layer the configurations to choose from.
        bounds: Search problem with lower bounds as transfer times.
        upper_s: Additive cost up to which strategies must remain.

    Returns:
        The problem on the configurations that remain, and a mask of these for every layer.
    """
    relaxation = relax(bounds)
    wanted: dict[int, Bools] = {}
    for tensor, limits in zip(bounds.tensors, edge_bounds(bounds, relaxation), strict=True):
        for table, mask in zip(tensor.cost_s, keep_within(limits, upper_s), strict=True):
            wanted[id(table)] = wanted.get(id(table), False) | mask
    priced: dict[int, Floats] = {}

    def exact(edge: Edge, producer: ConfigSpace, consumer: ConfigSpace) -> Floats:
        """Return the transfer times of the wanted pairs of configurations; infinity for the others."""
        key = id(model.transfer_times.table(edge, producer, consumer, samples=BOUND_SAMPLES))
        if key not in priced:
            u, v = np.nonzero(wanted[key])
            priced[key] = np.full(wanted[key].shape, math.inf)
            priced[key][u, v] = model.transfer_times.seconds(edge, producer, consumer, u, v)
        return priced[key]

    # Equal layers share a cost table.  They keep the configurations that any of them keeps, so that elimination still
    # solves them once.
    joined: dict[int, Bools] = {}
    for cost, mask in zip(bounds.node_cost_s, keep_within(relaxation.node_s, upper_s), strict=True):
        joined[id(cost)] = joined.get(id(cost), False) | mask
    keep = [joined[id(cost)] for cost in bounds.node_cost_s]
    return restrict(search_problem(model, spaces, exact), keep), keep
