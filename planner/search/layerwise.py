"""Layer-wise search: the strategy of least additive cost (Eq. 1), found exactly.

On large clusters most of the time goes into pricing transfers, so elimination runs on lower bounds of them first.  The
resulting strategy is then priced: if its price equals the bound, it is optimal.  If not, that price is an upper bound,
which rules out most pairs of configurations; only the others are priced, and elimination runs once more.  Graphs that
are too wide for this, with many long branches side by side, are searched among the most promising configurations.

Layers are packed on the first devices, or spread over all.  What lies well when it is spread over 8 devices may lie
askew over 11, so the first devices are also searched as if there were no others: up to 33 devices one more never makes
the optimum worse, up to 65 one more node does not.

Source:
    Jia et al., "Exploring Hidden Dimensions in Parallelizing Convolutional Neural Networks", ICML 2018, Sec. 5.
"""

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import TypeVar

import numpy as np

from groundwork.array_types import Bools, Floats
from planner.cost.cost_model import CostModel
from planner.elimination.bounds import SLACK, edge_bounds, keep_within, relax
from planner.elimination.eliminate_nodes import eliminate
from planner.elimination.elimination_state import GraphTooWideError
from planner.elimination.search_problem import SearchProblem, TensorCost, restrict, strategy_cost
from planner.elimination.wide_search import WIDE_LIMIT_SUMS, FoundStrategy, search_wide, whole_choice
from planner.graph.computation_graph import Edge
from planner.layouts.configurations import ConfigSpace, Configuration, Strategy
from planner.search.search_tables import search_problem

_R = TypeVar("_R")

DIRECT_PAIRS = 60_000
"""Most pairs of configurations that are all priced at once: about 0.05 s."""
BOUND_SAMPLES = 1
"""Regions and parts that the lower bound of a transfer samples; more take longer and rule out no more strategies."""
FEW_DEVICES = 32
"""Most of the first devices that are searched as if there were no others."""
FEW_NODES_DEVICES = 64
"""Most of the first devices that are, where they fill whole nodes."""


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
    """Return the best of all strategies that ``model.all_configurations()`` allows, for all devices or the first few.

    Where the graph is not too wide, the first devices alone are searched in any number up to ``FEW_DEVICES``, and in
    whole nodes up to ``FEW_NODES_DEVICES``.

    Args:
        model: Costs of a network on a cluster.
        known: Strategies whose costs may be good upper bounds; those with other configurations are ignored.

    Source:
        Jia et al., "Exploring Hidden Dimensions in Parallelizing Convolutional Neural Networks", ICML 2018, Sec. 5.
    """
    began, every = time.perf_counter(), model.all_configurations()
    configurations = sum(space.size for space in every)
    known = [strategy for strategy in known if _choices(every, model, [strategy])]
    known_s = [_price(model, model.spaces_of(strategy), [0] * len(every)) for strategy in known]
    # What no strategy as fast as a known one has needs no transfer times.
    most_s = min(known_s, default=math.inf) * (1 + SLACK)
    spaces = _affordable(model, cheaper_configurations(model, every, most_s) or every, most_s)
    problem, samples = _problem(model, spaces)
    starts = _choices(spaces, model, known)
    try:
        found, searched_s = _exact(model, spaces, problem, starts, bounds=samples > 0)
        fewer = _fewer(model, every, found.cost_s)
    except GraphTooWideError:
        priced = [(choice, _price(model, spaces, choice)) for choice in starts]
        found, searched_s = _timed(partial(search_wide, problem, partial(_price_among, model, spaces), priced))
        fewer = []
    for count in fewer:
        some = cheaper_configurations(model, model.all_configurations(count), found.cost_s)
        if some is not None:
            problem, samples = _problem(model, some)
            other, more_s = _exact(model, some, problem, (), bounds=samples > 0, below_s=found.cost_s)
            searched_s += more_s
            if other.cost_s < found.cost_s * (1 - SLACK):
                found, spaces = other, some
    chosen = zip(model.graph.layers, spaces, found.choice, strict=True)
    return LayerwiseResult(
        strategy={layer.name: space.configuration(index) for layer, space, index in chosen},
        cost_s=found.cost_s,
        least_s=found.least_s,
        exact=math.isclose(found.least_s, found.cost_s, rel_tol=1e-12),
        tables_s=time.perf_counter() - began - searched_s,
        search_s=searched_s,
        width=found.width,
        configurations=configurations,
        pairs_priced=model.transfer_times.pairs_priced,
    )


def _fewer(model: CostModel, spaces: Sequence[ConfigSpace], most_s: float) -> list[int]:
    """Return the numbers of first devices to search alone, the largest first.

    Those of equal devices whose arithmetic alone takes ``most_s`` are left out.

    Args:
        model: Costs of a network on a cluster.
        spaces: Configurations of every layer on all devices.
        most_s: Cost of a strategy that is known.
    """
    nodes = model.cluster.devices.node.tolist()
    most = min(len(nodes) - 1, FEW_NODES_DEVICES)
    counts = [count for count in range(most, 0, -1) if count <= FEW_DEVICES or nodes[count - 1] != nodes[count]]
    if len(model.cluster.devices.kinds) > 1:
        return counts
    least_s = np.zeros(len(nodes) + 1)  # with at most so many parts
    for i, space in enumerate(spaces):
        of_parts_s = np.full(len(least_s), math.inf)
        np.minimum.at(of_parts_s, space.parts, _arithmetic_s(model, i, space))
        least_s += np.minimum.accumulate(of_parts_s)
    return [count for count in counts if least_s[count] < most_s]


def _arithmetic_s(model: CostModel, index: int, space: ConfigSpace) -> Floats:
    """Return the time of a layer's arithmetic under every configuration of a space."""
    return np.asarray(sum(model.compute_times.slowest_part_s(index, space).values()))


def _node_s(model: CostModel, index: int, space: ConfigSpace) -> Floats:
    """Return the time of a layer but for its transfers under every configuration of a space."""
    return model.node_costs(index, space).total_s


def _problem(model: CostModel, spaces: Sequence[ConfigSpace]) -> tuple[SearchProblem, int]:
    """Return the search problem over spaces, and how many samples bound its transfer times; 0 where they are exact."""
    pairs = sum(spaces[edge.producer].size * spaces[edge.consumer].size for edge in model.graph.edges)
    samples = 0 if pairs <= DIRECT_PAIRS else BOUND_SAMPLES
    return search_problem(model, spaces, partial(model.transfer_times.table, samples=samples)), samples


def cheaper_configurations(model: CostModel, spaces: Sequence[ConfigSpace], most_s: float) -> list[ConfigSpace] | None:
    """Return the configurations that strategies below a cost may have, as if transfers were free; None if none may.

    Layers with one space still share one.
    """
    rows = list(spaces)
    for cost_of in (_arithmetic_s, _node_s):  # arithmetic alone rules out most, and takes no rounds of all-reduces
        costs = [cost_of(model, i, space) for i, space in enumerate(rows)]
        spare_s = most_s - sum(float(cost.min()) for cost in costs)
        if spare_s <= 0:
            return None
        rows = _only(rows, [cost - cost.min() <= spare_s for cost in costs])
    return rows


def _affordable(model: CostModel, spaces: Sequence[ConfigSpace], most_s: float) -> list[ConfigSpace]:
    """Return the configurations that strategies of at most a cost may have, by cheap bounds of transfers."""
    if most_s == math.inf:
        return list(spaces)
    tables: dict[tuple[object, ...], Floats] = {}

    def least_s(edge: Edge, producer: ConfigSpace, consumer: ConfigSpace) -> Floats:
        """Return the bounds of an edge; the same object for equal edges."""
        key = model.transfer_times.key(edge, producer, consumer)
        if key not in tables:
            tables[key] = model.transfer_times.least_s(edge, producer, consumer)
        return tables[key]

    return _only(spaces, keep_within(relax(search_problem(model, spaces, least_s)).node_s, most_s))


def _only(spaces: Sequence[ConfigSpace], masks: Sequence[Bools]) -> list[ConfigSpace]:
    """Return the masked configurations of spaces; those of one space are what any of its layers keeps."""
    keep: dict[ConfigSpace, Bools] = {}
    for space, mask in zip(spaces, masks, strict=True):
        keep[space] = keep.get(space, False) | mask
    only = {space: space if mask.all() else space.only(np.flatnonzero(mask)) for space, mask in keep.items()}
    return [only[space] for space in spaces]


def _exact(
    model: CostModel,
    spaces: Sequence[ConfigSpace],
    problem: SearchProblem,
    starts: Sequence[Sequence[int]],
    *,
    bounds: bool,
    below_s: float = math.inf,
) -> tuple[FoundStrategy, float]:
    """Return the strategy of least cost, and the seconds that elimination took.

    Args:
        model: Costs of a network on a cluster.
        spaces: For every layer the configurations to choose from.
        problem: Search problem over them.
        starts: Strategies whose costs are upper bounds.
        bounds: Whether the transfer times of the problem are lower bounds.
        below_s: Cost from which on strategies are of no use: then some bound may be returned as if it were one's cost.

    Raises:
        GraphTooWideError: The graph is too wide for elimination.
    """
    limited = partial(eliminate, limit_sums=WIDE_LIMIT_SUMS)
    solution, searched_s = _timed(partial(limited, problem))
    choice, cost_s = solution.choice, solution.cost_s
    if bounds and cost_s < below_s and (price := _price(model, spaces, choice)) > cost_s:
        upper_s = min([price, *(_price(model, spaces, start) for start in starts)])
        narrowed, keep = price_within(model, spaces, problem, upper_s)
        solution, again_s = _timed(partial(limited, narrowed))
        choice, cost_s, searched_s = whole_choice(keep, solution.choice), solution.cost_s, searched_s + again_s
    return FoundStrategy(choice=choice, cost_s=cost_s, least_s=cost_s, width=solution.width), searched_s


def _timed(function: Callable[[], _R]) -> tuple[_R, float]:
    """Call a function; return its result, and the seconds that it took."""
    began = time.perf_counter()
    return function(), time.perf_counter() - began


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
    pairs: list[tuple[Edge, Bools]] = []
    for tensor, limits in zip(bounds.tensors, edge_bounds(bounds, relaxation), strict=True):
        pairs.extend(zip(model.graph.outgoing[tensor.producer], keep_within(limits, upper_s), strict=True))
    # Equal layers share a cost table.  They keep the configurations that any of them keeps, so that elimination still
    # solves them once.
    joined: dict[int, Bools] = {}
    for cost, mask in zip(bounds.node_cost_s, keep_within(relaxation.node_s, upper_s), strict=True):
        joined[id(cost)] = joined.get(id(cost), False) | mask
    keep = [joined[id(cost)] for cost in bounds.node_cost_s]
    return _price_pairs(model, spaces, pairs, keep), keep


def _price_among(model: CostModel, spaces: Sequence[ConfigSpace], keep: Sequence[Bools]) -> SearchProblem:
    """Price all pairs of the configurations that ``keep`` masks, and exclude the others."""
    edges = chain.from_iterable(model.graph.outgoing)
    pairs = [(edge, np.logical_and.outer(keep[edge.producer], keep[edge.consumer])) for edge in edges]
    return _price_pairs(model, spaces, pairs, keep)


def _price_pairs(
    model: CostModel, spaces: Sequence[ConfigSpace], pairs: Sequence[tuple[Edge, Bools]], keep: Sequence[Bools]
) -> SearchProblem:
    """Return the search problem on the configurations that ``keep`` masks, with some pairs of configurations priced.

    Args:
        model: Costs of a network on a cluster.
        spaces: For every layer the configurations to choose from.
        pairs: Every edge with the pairs to price, shape (C_producer, C_consumer); others are forbidden.
        keep: Configurations of every layer that remain.
    """
    times = model.transfer_times
    wanted: dict[tuple[object, ...], Bools] = {}
    for edge, mask in pairs:
        key = times.key(edge, spaces[edge.producer], spaces[edge.consumer])
        wanted[key] = wanted.get(key, False) | mask
    priced: dict[tuple[object, ...], Floats] = {}

    def exact(edge: Edge, producer: ConfigSpace, consumer: ConfigSpace) -> Floats:
        """Return the transfer times of the wanted pairs of configurations; infinity for the others."""
        key = times.key(edge, producer, consumer)
        if key not in priced:
            u, v = np.nonzero(wanted[key])
            priced[key] = np.full(wanted[key].shape, math.inf)
            priced[key][u, v] = times.seconds(edge, producer, consumer, u, v)
        return priced[key]

    return restrict(search_problem(model, spaces, exact), keep)
