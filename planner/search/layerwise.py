"""Layer-wise search: the strategy of least additive cost (Eq. 1), found exactly.

Few of the thousands of configurations of a layer can be in a strategy that is as fast as one that is known.  Lower
bounds rule out the others, the cheapest bounds first:

1. the arithmetic of a layer's parts, beside the least arithmetic of all other layers;
2. with it the least that any all-reduce takes between as many replicas;
3. with these the least that any device receives, along the graph (``planner.elimination.bounds``);
4. what a few devices send and receive over the links at their ends (``planner.cost.transfer_bounds``).

**Theorem.**  Let U be the cost of some strategy, and let the bound of each configuration not exceed the cost of any
strategy that has it.  Then a strategy of least cost is left when all configurations whose bounds exceed U are dropped:
it costs at most U, so no configuration of it has a bound above U.

What is left is priced as elimination asks for it (``planner.search.priced_problem``).  A strategy that is found so
among few configurations of each layer is the first U.  Graphs that are too wide for this, with many long branches side
by side, are searched among the most promising configurations.

What fits on some devices is searched on more devices too (``strides_of``): one more never makes the optimum worse.

Source:
    Jia et al., "Exploring Hidden Dimensions in Parallelizing Convolutional Neural Networks", ICML 2018, Sec. 5.
"""

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from groundwork.array_types import Floats
from planner.cost.cost_model import CostModel
from planner.elimination.bounds import SLACK, relax
from planner.elimination.eliminate_nodes import eliminate
from planner.elimination.elimination_state import GraphTooWideError
from planner.elimination.search_problem import SearchProblem, Solution, TensorCost, restrict, strategy_cost
from planner.elimination.wide_search import WIDE_LIMIT_SUMS, FoundStrategy, search_wide
from planner.layouts.configurations import ConfigSpace, Configuration, Strategy
from planner.search.priced_problem import DIRECT_VISITS, PairBounds, PricedProblem, least_problem, unbounded_problem
from planner.search.search_tables import search_problem

RELAXED_PAIRS = 4_000_000
"""Most pairs whose cheapest bounds are looked at before a better strategy is known."""
_PRICED_PARTS = 20_000_000
"""Most parts, of all configurations together, whose all-reduces are all priced: what bounds leave open of them lets
many more pairs of configurations pass."""
_SOME, _FEW = 256, 12
"""Configurations of each layer with the smallest bounds, by the layer alone and along the graph, among which a strategy
is found that bounds the others."""
_FIRST_SHARE = 0.125
"""How far pairs of configurations are bounded first, from the least bound of all strategies to the cost of a known one:
few of them raise the bounds of all, so that most others need none of their own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerwiseResult:
    """Strategy of least additive cost, or on too wide a graph the best one found, with the effort of the search."""

    strategy: dict[str, Configuration]
    """Configuration of each layer, by the layer's name."""
    cost_s: float
    """Additive cost (Eq. 1), exact; a tensor that several consumers read in one layout is transferred once."""
    least_s: float
    """Lower bound of the additive costs of all strategies: ``cost_s`` unless the graph is too wide for exact search."""
    exact: bool
    """Whether no strategy has a smaller additive cost."""
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

    Source:
        Jia et al., "Exploring Hidden Dimensions in Parallelizing Convolutional Neural Networks", ICML 2018, Sec. 5.
    """
    began, every = time.perf_counter(), model.all_configurations()
    configurations = sum(space.size for space in every)
    known = [each for each in known if _choices(every, model, [each])]
    found, searched_s, spaces = _search(model, every, known, _least_price(model, known))
    return LayerwiseResult(
        strategy=_strategy(model, spaces, found.choice),
        cost_s=found.cost_s,
        least_s=found.least_s,
        exact=math.isclose(found.least_s, found.cost_s, rel_tol=1e-12),
        tables_s=time.perf_counter() - began - searched_s,
        search_s=searched_s,
        width=found.width,
        configurations=configurations,
        pairs_priced=model.transfer_times.pairs_priced,
    )


def _strategy(model: CostModel, spaces: Sequence[ConfigSpace], choice: Sequence[int]) -> dict[str, Configuration]:
    """Return a choice among spaces as a strategy."""
    chosen = zip(model.graph.layers, spaces, choice, strict=True)
    return {layer.name: space.configuration(index) for layer, space, index in chosen}


def _eliminated(problem: SearchProblem) -> tuple[FoundStrategy, float]:
    """Return the best strategy by complete tables, and the seconds that it took to find it."""
    began = time.perf_counter()
    try:
        found = _solution(eliminate(problem, limit_sums=WIDE_LIMIT_SUMS))
    except GraphTooWideError:
        found = search_wide(problem, partial(restrict, problem), ())
    return found, time.perf_counter() - began


def _search(
    model: CostModel, every: Sequence[ConfigSpace], known: Sequence[Strategy], most_s: float
) -> tuple[FoundStrategy, float, Sequence[ConfigSpace]]:
    """Return the best strategy, the seconds that elimination took, and the spaces that it is a choice among.

    Args:
        model: Costs of a network on a cluster.
        every: For every layer all configurations.
        known: Strategies among them.
        most_s: Least cost of these.
    """
    spaces: Sequence[ConfigSpace] = _cheaper(model, every, most_s)
    if _pairs(model, spaces) <= RELAXED_PAIRS:
        spaces = PairBounds(model, spaces).within(most_s).spaces
        if _pairs(model, spaces) * model.network.device_count <= DIRECT_VISITS and model.network.has_tables:
            return *_eliminated(search_problem(model, spaces, model.transfer_times.table)), spaces
    try:
        some = _first(model, spaces, [model.least_node_s(i, space) for i, space in enumerate(spaces)], _SOME)
        some = _first(model, some, relax(least_problem(model, some)).node_s, _FEW)
        few = unbounded_problem(model, some)
        first = few.solve([np.ones(space.size, dtype=np.bool_) for space in some])
        known, most_s = [*known, _strategy(model, some, first.choice)], min(most_s, first.cost_s)
        bounds = PairBounds(model, _cheaper(model, spaces, most_s)).within(most_s)
        for share, forks in ((_FIRST_SHARE, False), (1.0, False), (1.0, True)):
            bounds.tighten(most_s, share, forks=forks)
            bounds = bounds.within(most_s)
        spaces, problem = bounds.spaces, PricedProblem(bounds)
        best = _solution(problem.solve(problem.within(most_s)))
        return best, few.searched_s + problem.searched_s, spaces
    except GraphTooWideError:
        problem, began = unbounded_problem(model, spaces), time.perf_counter()
        starts = [(choice, _price(model, spaces, choice)) for choice in _choices(spaces, model, known)]
        best = search_wide(problem.problem, problem.priced, starts)
        return best, time.perf_counter() - began, spaces


def _pairs(model: CostModel, spaces: Sequence[ConfigSpace]) -> int:
    """Return the number of pairs of configurations of all edges."""
    return sum(spaces[edge.producer].size * spaces[edge.consumer].size for edge in model.graph.edges)


def _least_price(model: CostModel, known: Sequence[Strategy]) -> float:
    """Return the least additive cost of some strategies, of which those are priced whose bounds do not exceed it."""
    bounds = list[tuple[float, int]]()
    for number, each in enumerate(known):
        problem = least_problem(model, model.spaces_of(each))
        bounds.append((strategy_cost(problem, [0] * len(problem.node_cost_s)), number))
    least_s = math.inf
    for bound_s, number in sorted(bounds):
        if bound_s < least_s:
            spaces = model.spaces_of(known[number])
            least_s = min(least_s, _price(model, spaces, [0] * len(spaces)))
    return least_s


def _solution(solution: Solution) -> FoundStrategy:
    """Return the solution of an exact search as what a search of any graph returns."""
    cost_s = solution.cost_s
    return FoundStrategy(choice=solution.choice, cost_s=cost_s, least_s=cost_s, width=solution.width)


def _cheaper(model: CostModel, spaces: Sequence[ConfigSpace], most_s: float) -> list[ConfigSpace]:
    """Return the configurations that strategies of at most a cost may have, as if transfers were free."""
    rows = _below(model, spaces, most_s * (1 + SLACK), (_arithmetic_s, CostModel.least_node_s))
    assert rows is not None, "a strategy of that cost is known"
    if sum(int(space.parts.sum()) for space in dict.fromkeys(rows)) > _PRICED_PARTS:
        return rows
    return _below(model, rows, most_s * (1 + SLACK), (_node_s,)) or rows


def _first(model: CostModel, spaces: Sequence[ConfigSpace], bounds: Sequence[Floats], count: int) -> list[ConfigSpace]:
    """Return so many configurations of every layer, those of the smallest bounds and of equal ones."""
    most = [min(count, len(bound)) - 1 for bound in bounds]
    return model.restrict(spaces, [bound <= np.partition(bound, k)[k] for bound, k in zip(bounds, most, strict=True)])


def _arithmetic_s(model: CostModel, index: int, space: ConfigSpace) -> Floats:
    """Return the time of a layer's arithmetic under every configuration of a space."""
    return np.asarray(sum(model.compute_times.slowest_part_s(index, space).values()))


def _node_s(model: CostModel, index: int, space: ConfigSpace) -> Floats:
    """Return the time of a layer but for its transfers under every configuration of a space."""
    return model.node_costs(index, space).total_s


def cheaper_configurations(model: CostModel, spaces: Sequence[ConfigSpace], most_s: float) -> list[ConfigSpace] | None:
    """Return the configurations that strategies below a cost may have, as if transfers were free; None if none may.

    Layers with one space still share one.
    """
    return _below(model, spaces, most_s, (_arithmetic_s, _node_s))


def _below(
    model: CostModel,
    spaces: Sequence[ConfigSpace],
    most_s: float,
    costs: Sequence[Callable[[CostModel, int, ConfigSpace], Floats]],
) -> list[ConfigSpace] | None:
    """Return the configurations that strategies below a cost may have, by bounds of the layers alone; None if none may.

    Args:
        model: Costs of a network on a cluster.
        spaces: For every layer the configurations to choose from.
        most_s: The cost.
        costs: Lower bounds of a layer under every configuration of a space, the cheapest first.
    """
    rows = list(spaces)
    for cost_of in costs:
        each = [cost_of(model, i, space) for i, space in enumerate(rows)]
        spare_s = most_s - sum(float(cost.min()) for cost in each)
        if spare_s <= 0:
            return None
        rows = model.restrict(rows, [cost - cost.min() <= spare_s for cost in each])
    return rows


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
