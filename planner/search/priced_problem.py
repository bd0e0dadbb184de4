"""The search problem of a network whose costs are lower bounds until a strategy asks for them.

Most configurations are in no strategy that is worth a look: their all-reduces need no rounds, and their transfers no
regions.  What an elimination of the bounds chooses is priced, until it chooses what is priced already: that strategy is
optimal, for its cost is exact and no other's is below its bound.
"""

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import NamedTuple

import numpy as np

from groundwork.array_types import Bools, Floats, Ints
from planner.cost.cost_model import CostModel
from planner.elimination.bounds import SLACK, edge_bounds, keep_within, relax
from planner.elimination.eliminate_nodes import eliminate
from planner.elimination.search_problem import (
    SearchProblem,
    Solution,
    TensorCost,
    restrict,
    strategy_cost,
    whole_choice,
)
from planner.elimination.wide_search import WIDE_LIMIT_SUMS
from planner.graph.computation_graph import Edge
from planner.layouts.configurations import ConfigSpace

DIRECT_VISITS = 4_000_000
"""Most pairs of configurations, times devices, that are all priced at once: about 0.2 s."""
_ROUNDS = 20
"""Strategies that are priced one by one before all is priced that may cost no more than the last of them."""
_FEW_DEVICES = 32
"""Most devices between which all transfers are priced as fast as they are bounded."""


class PricedProblem:
    """Costs of a network over spaces, of which those that were asked for are exact; equal layers share them.

    Args:
        bounds: Lower bounds of transfer times; pairs of configurations of infinite time are forbidden.
    """

    def __init__(self, bounds: "PairBounds") -> None:
        model, spaces = bounds.model, bounds.spaces
        self._model, self._spaces, self._times = model, spaces, model.transfer_times
        times, tables, nodes = (
            model.transfer_times,
            dict[object, tuple[Floats, Bools]](),
            dict[object, tuple[Floats, Bools]](),
        )
        for i, space in enumerate(spaces):
            if (key := (model.compute_times.layer_key(i), space)) not in nodes:
                known = np.full(space.size, model.has_node_costs(i, space))
                nodes[key] = model.least_node_s(i, space).copy(), known
        self._nodes = [nodes[model.compute_times.layer_key(i), space] for i, space in enumerate(spaces)]
        self.searched_s = 0.0
        self._edges: list[list[tuple[Floats, Bools]]] = []
        self._layouts: list[list[Ints]] = []
        for edges in model.graph.outgoing:
            keys = [bounds.key(edge) for edge in edges]
            # a tensor with one reader is shared with none, so that its layouts need not be compared
            alone = [np.arange(spaces[edge.consumer].size) for edge in edges]
            shared = len(edges) > 1
            self._layouts.append([times.layouts(edge, spaces[edge.consumer]) for edge in edges] if shared else alone)
            if edges and (tuple(keys), 0) not in tables:
                self._add(tables, tuple(keys), [bounds.pairs(edge) for edge in edges], self._layouts[-1])
            self._edges.append([tables[tuple(keys), place] for place in range(len(edges))])
        self.problem = SearchProblem(
            node_cost_s=tuple(cost for cost, _ in self._nodes),
            tensors=tuple(
                TensorCost(
                    producer=i,
                    consumers=tuple(edge.consumer for edge in edges),
                    cost_s=tuple(cost for cost, _ in self._edges[i]),
                    layout=tuple(self._layouts[i]),
                )
                for i, edges in enumerate(model.graph.outgoing)
                if edges
            ),
        )

    @staticmethod
    def _add(
        tables: dict[object, tuple[Floats, Bools]],
        keys: tuple[object, ...],
        pairs: Sequence["_Pairs"],
        layouts: Sequence[Ints],
    ) -> None:
        """Add the tables of a tensor: equal layouts have one price, so the greatest of their bounds bounds it."""
        numbers, of = np.unique(np.concatenate(layouts), return_inverse=True)
        every = np.concatenate([each.cost_s for each in pairs], axis=1).T
        allowed = every < math.inf
        least, known = (np.zeros((len(numbers), every.shape[1]), dtype=kind) for kind in (np.float64, np.bool_))
        np.maximum.at(least, of, np.where(allowed, every, 0.0))
        np.logical_or.at(known, of, allowed & np.concatenate([each.exact for each in pairs], axis=1).T)
        ends = np.cumsum([*map(len, layouts)])[:-1]
        rows = np.split(np.where(allowed, least[of], math.inf), ends), np.split(known[of], ends)
        for place, (row, exact) in enumerate(zip(*rows, strict=True)):
            tables[keys, place] = np.ascontiguousarray(row.T), np.ascontiguousarray(exact.T)

    def price(self, choice: Sequence[int]) -> bool:
        """Price what a strategy costs; return whether any of it was a bound before."""
        model, spaces, new = self._model, self._spaces, False
        for i, c in enumerate(choice):
            cost_s, known = self._nodes[i]
            if not known[c]:
                cost_s[c], known[c], new = float(model.node_costs(i, spaces[i].alone(c)).total_s[0]), True, True
        for i, edges in enumerate(model.graph.outgoing):
            for place, edge in enumerate(edges):
                u, v = choice[i], choice[edge.consumer]
                if not self._edges[i][place][1][u, v]:
                    self._price_pair(edge, place, u, v)
                    new = True
        return new

    def _price_pair(self, edge: Edge, place: int, u: int, v: int) -> None:
        """Price a transfer, for all consumers of the tensor that read its layout."""
        ends = self._spaces[edge.producer].alone(u), self._spaces[edge.consumer].alone(v)
        self._note(edge.producer, u, self._layouts[edge.producer][place][v], self._times.table(edge, *ends)[0, 0])

    def _note(self, producer: int, u: int, layout: int, seconds: float) -> None:
        """Note the price of bringing what configuration ``u`` of a layer makes into a layout."""
        for (cost_s, known), layouts in zip(self._edges[producer], self._layouts[producer], strict=True):
            same = layouts == layout
            cost_s[u, same] = np.where(cost_s[u, same] < math.inf, seconds, math.inf)
            known[u, same] = True

    def priced(self, keep: Sequence[Bools]) -> SearchProblem:
        """Return the problem among the configurations that masks keep, shapes (C_i,), with all of it priced."""
        model, spaces = self._model, self._spaces
        for i, mask in enumerate(keep):
            cost_s, known = self._nodes[i]
            if len(left := np.flatnonzero(mask & ~known)):
                cost_s[left], known[left] = model.node_costs(i, spaces[i].only(left)).total_s, True
        for i, edges in enumerate(model.graph.outgoing):
            for place, edge in enumerate(edges):
                cost_s, known = self._edges[i][place]
                layouts = self._layouts[i][place]
                v = np.flatnonzero(keep[edge.consumer])
                v = v[np.unique(layouts[v], return_index=True)[1]]
                u, v = (each.ravel() for each in np.meshgrid(np.flatnonzero(keep[i]), v, indexing="ij"))
                wanted = ~known[u, v] & (cost_s[u, v] < math.inf)
                u, v = u[wanted], v[wanted]
                if len(u):
                    seconds = self._times.seconds(edge, spaces[i], spaces[edge.consumer], u, v)
                    for each in zip(u.tolist(), layouts[v].tolist(), seconds.tolist(), strict=True):
                        self._note(i, *each)
        return restrict(self.problem, keep)

    def solve(self, keep: Sequence[Bools]) -> Solution:
        """Return the best strategy among the configurations that masks keep, shapes (C_i,), as one among all.

        Raises:
            GraphTooWideError: The graph is too wide for elimination.
        """
        rounds = 0
        while True:
            rounds += 1
            began = time.perf_counter()
            solution = eliminate(restrict(self.problem, keep), limit_sums=WIDE_LIMIT_SUMS)
            self.searched_s += time.perf_counter() - began
            choice = whole_choice(keep, solution.choice)
            new = self.price(choice)
            cost_s = strategy_cost(self.problem, choice)
            if not new:
                return replace(solution, choice=choice, cost_s=cost_s)
            if rounds == _ROUNDS and self._times.network.has_tables:
                keep = [mask & within for mask, within in zip(keep, self.within(cost_s), strict=True)]
                self.priced(keep)

    def within(self, upper_s: float) -> list[Bools]:
        """Return masks of the configurations that strategies of at most a cost may have; equal layers share them."""
        joined: dict[int, Bools] = {}
        for cost, mask in zip(self.problem.node_cost_s, keep_within(relax(self.problem).node_s, upper_s), strict=True):
            joined[id(cost)] = joined.get(id(cost), False) | mask
        return [joined[id(cost)] for cost in self.problem.node_cost_s]


def least_problem(
    model: CostModel, spaces: Sequence[ConfigSpace], tables: Mapping[object, Floats] | None = None
) -> SearchProblem:
    """Return a search problem over spaces of lower bounds of all costs, whose layouts are not told apart.

    Args:
        model: Costs of a network on a cluster.
        spaces: For every layer the configurations to choose from.
        tables: Bounds of the transfer times of every edge, by its key; None: the cheapest.
    """
    times, least, tensors = model.transfer_times, dict[object, Floats](tables or {}), list[TensorCost]()
    nodes: dict[object, Floats] = {}
    for i, space in enumerate(spaces):
        if (alone := (model.compute_times.layer_key(i), space)) not in nodes:
            nodes[alone] = model.least_node_s(i, space)
    for i, edges in enumerate(model.graph.outgoing):
        keys = [times.key(edge, spaces[i], spaces[edge.consumer]) for edge in edges]
        for edge, key in zip(edges, keys, strict=True):
            if key not in least:
                least[key] = times.least_s(edge, spaces[i], spaces[edge.consumer])
        if edges:
            consumers = tuple(edge.consumer for edge in edges)
            layouts = tuple(np.zeros(spaces[each].size, dtype=np.int64) for each in consumers)
            costs = tuple(least[key] for key in keys)
            tensors.append(TensorCost(producer=i, consumers=consumers, cost_s=costs, layout=layouts))
    node_s = tuple(nodes[model.compute_times.layer_key(i), space] for i, space in enumerate(spaces))
    return SearchProblem(node_cost_s=node_s, tensors=tuple(tensors))


class _Pairs(NamedTuple):
    """What is known of the transfer times of one edge, shapes (C_u, C_v)."""

    cost_s: Floats
    """The times, or lower bounds of them; infinity for pairs that cost too much."""
    bounded: Bools
    """Whether more than the cheapest bounds were looked at."""
    exact: Bools
    """Whether they are the times."""


class PairBounds:
    """Lower bounds of the transfer times of all pairs of configurations, the cheapest until they are tightened.

    Args:
        model: Costs of a network on a cluster.
        spaces: For every layer the configurations to choose from.
        pairs: What is known of every edge, by its key; of others the cheapest bounds are taken.
    """

    def __init__(
        self, model: CostModel, spaces: Sequence[ConfigSpace], pairs: Mapping[object, _Pairs] | None = None
    ) -> None:
        self.model, self.spaces, self._pairs = model, spaces, dict(pairs or {})
        for edge in chain.from_iterable(model.graph.outgoing):
            if (key := self.key(edge)) not in self._pairs:
                cost_s = model.transfer_times.least_s(edge, spaces[edge.producer], spaces[edge.consumer])
                self._pairs[key] = _Pairs(cost_s, *(np.zeros(cost_s.shape, dtype=np.bool_) for _ in range(2)))

    def key(self, edge: Edge) -> object:
        """Return what the transfer times of an edge depend on."""
        return self.model.transfer_times.key(edge, self.spaces[edge.producer], self.spaces[edge.consumer])

    def pairs(self, edge: Edge) -> _Pairs:
        """Return what is known of the transfer times of an edge."""
        return self._pairs[self.key(edge)]

    @property
    def problem(self) -> SearchProblem:
        """The search problem of these bounds, whose layouts are not told apart."""
        return least_problem(self.model, self.spaces, {key: pairs.cost_s for key, pairs in self._pairs.items()})

    def within(self, most_s: float) -> "PairBounds":
        """Return the bounds among the configurations that strategies of at most a cost may have."""
        joined: dict[ConfigSpace, Bools] = {}
        for space, mask in zip(self.spaces, keep_within(relax(self.problem).node_s, most_s), strict=True):
            joined[space] = joined.get(space, False) | mask
        spaces = self.model.restrict(self.spaces, [joined[space] for space in self.spaces])
        result, times = dict[object, _Pairs](), self.model.transfer_times
        for edge in chain.from_iterable(self.model.graph.outgoing):
            key = times.key(edge, spaces[edge.producer], spaces[edge.consumer])
            if key not in result:
                kept = np.ix_(joined[self.spaces[edge.producer]], joined[self.spaces[edge.consumer]])
                pairs = self.pairs(edge)
                result[key] = _Pairs(pairs.cost_s[kept], pairs.bounded[kept], pairs.exact[kept])
        return PairBounds(self.model, spaces, result)

    def tighten(self, most_s: float, share: float = 1.0, *, forks: bool = True) -> None:
        """Bound the pairs that strategies of at most a cost may have, or price them where there are few.

        Args:
            most_s: What strategies may cost at most; pairs that no such strategy has are forbidden.
            share: How far to look from the least bound of all strategies to ``most_s``: what the cheapest bounds put
                beyond is looked at later, if what is found now does not rule it out.
            forks: Whether to look at the edges that the bounds of configurations do not count, too.
        """
        problem, times, most_s = self.problem, self.model.transfer_times, most_s * (1 + SLACK)
        relaxation = relax(problem)
        least_s = max(float(bound.min()) for bound in relaxation.node_s)
        later_s = (1 - share) * (most_s - least_s) if share < 1 else 0.0
        spare: dict[object, tuple[Edge, Floats, Bools]] = {}
        for index, (tensor, limits) in enumerate(zip(problem.tensors, edge_bounds(problem, relaxation), strict=True)):
            kept = relaxation.kept[tensor.producer]
            for place, (edge, limit) in enumerate(zip(self.model.graph.outgoing[tensor.producer], limits, strict=True)):
                # What the transfer may cost; where another consumer of the tensor may pay for it, any time.
                allowed = limit < math.inf
                left_s = np.subtract(most_s, limit, out=np.full(limit.shape, -1.0), where=allowed)
                paid = kept == (index, place)
                may_s = left_s + tensor.cost_s[place] if paid else np.where(left_s >= 0, math.inf, -1.0)
                may_s[~allowed] = -1.0
                now = (left_s >= later_s) & (paid or forks)
                if (key := self.key(edge)) in spare:
                    may_s, now = np.maximum(spare[key][1], may_s), spare[key][2] | now
                spare[key] = edge, may_s, now
        devices, network = self.model.network.device_count, self.model.network
        unpriced = sum(int(np.count_nonzero(now & ~self._pairs[key].exact)) for key, (_, _, now) in spare.items())
        priced = network.has_tables and (devices <= _FEW_DEVICES or unpriced * devices <= DIRECT_VISITS)
        for key, (edge, may_s, now) in spare.items():
            cost_s, bounded, exact = self._pairs[key]
            cost_s[may_s < 0] = math.inf
            u, v = np.nonzero(now & ~(exact if priced else bounded) & (cost_s < math.inf))
            ends = self.spaces[edge.producer], self.spaces[edge.consumer]
            may_s = may_s[u, v]
            found = times.seconds(edge, *ends, u, v) if priced else times.bounds(edge, *ends, u, v, may_s)
            cost_s[u, v] = np.where(found <= may_s, found if priced else np.maximum(found, cost_s[u, v]), math.inf)
            bounded[u, v] = True
            exact[u, v] |= priced


def unbounded_problem(model: CostModel, spaces: Sequence[ConfigSpace]) -> PricedProblem:
    """Return the problem over spaces with all pairs of configurations bounded, or priced where there are few.

    Args:
        model: Costs of a network on a cluster.
        spaces: For every layer the configurations to choose from.
    """
    bounds = PairBounds(model, spaces)
    bounds.tighten(math.inf)
    return PricedProblem(bounds)
