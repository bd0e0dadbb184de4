"""The state of an elimination: live nodes, the tables between them, and the results of earlier products.

Tables come in three kinds: vectors of nodes, tables of pairs, and factors (``Fork``, ``Dense``) that join three
nodes or more.
"""

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from groundwork.array_types import Floats, Ints
from groundwork.errors import InfeasiblePlanError
from groundwork.units import GIGA
from planner.elimination.minplus import product
from planner.elimination.search_problem import SearchProblem, TensorCost

Undo = Callable[[list[int]], None]
"""Function that writes the configuration of an eliminated node into a choice that has those of its neighbours."""
Slot = tuple[int, Floats, Ints]
"""One consuming edge of a tensor: node, cost table, layout."""
_ALL = slice(None)
ENTRY_BYTES = 8
"""Size of an entry of a table."""


class GraphTooWideError(InfeasiblePlanError):
    """Elimination by width needs a larger table, or compares more sums, than it may."""


class Factor(Protocol):
    """A table over three nodes or more, which may never be stored whole."""

    @property
    def scope(self) -> tuple[int, ...]:
        """Nodes that the table joins, each once."""
        ...

    def window(self, at: Mapping[int, slice]) -> Floats:
        """Return the part of the table with some nodes restricted to a slice; one axis for each node of ``scope``."""
        ...


def broadcast_over(array: NDArray[Any], nodes: Sequence[int], axes: Sequence[int]) -> NDArray[Any]:
    """Return an array, whose axes belong to ``nodes``, with its axes along the sorted nodes ``axes``, to broadcast."""
    order = sorted(range(len(nodes)), key=nodes.__getitem__)
    sizes = dict(zip(nodes, array.shape, strict=True))
    return array.transpose(order).reshape([sizes.get(node, 1) for node in axes])


@dataclass(frozen=True, eq=False)
class Dense:
    """A stored table, left by the elimination of a node with three neighbours or more."""

    scope: tuple[int, ...]
    table: Floats

    def window(self, at: Mapping[int, slice]) -> Floats:
        """Return a part of the table; see ``Factor.window``."""
        return self.table[tuple(at.get(node, _ALL) for node in self.scope)]


@dataclass(frozen=True, eq=False)
class Fork:
    """The consumers of one tensor that may share transfers: each distinct layout is paid once."""

    producer: int
    slots: tuple[Slot, ...]

    @cached_property
    def clients(self) -> tuple[int, ...]:
        """Consuming nodes, ascending, each once."""
        return tuple(sorted({node for node, _, _ in self.slots}))

    @property
    def scope(self) -> tuple[int, ...]:
        """Nodes that the fork joins, ascending, for the producer comes before its consumers."""
        return (self.producer, *self.clients)

    def window(self, at: Mapping[int, slice]) -> Floats:
        """Return a part of the table, which is computed; see ``Factor.window``."""
        total: Floats = np.zeros(())
        before: list[NDArray[Any]] = []
        for node, cost, layout in self.slots:
            pair = (self.producer, node)
            price = broadcast_over(cost[at.get(self.producer, _ALL), at.get(node, _ALL)], pair, self.scope)
            needed = broadcast_over(layout[at.get(node, _ALL)], (node,), self.scope)
            # A layout that an earlier consumer needs too is paid there.
            paid = (
                np.logical_or.reduce(np.broadcast_arrays(*(needed == other for other in before))) if before else False
            )
            total = total + np.where(paid & (price < np.inf), 0.0, price)
            before.append(needed)
        return total


class EliminationState:
    """The live nodes with their vectors, pair tables and factors, which the eliminations change.

    Args:
        problem: The cost tables; never written to.
        limit_bytes: Largest table that may be made.
        limit_sums: Most sums that elimination by width may compare.
    """

    def __init__(self, problem: SearchProblem, *, limit_bytes: float, limit_sums: float) -> None:
        self.limit_bytes, self.limit_sums = limit_bytes, limit_sums
        self._memo: dict[tuple[Any, ...], tuple[Any, tuple[Any, ...]]] = {}
        self._equal: dict[bytes, NDArray[Any]] = {}
        self.cost = {node: self._unique(cost) for node, cost in enumerate(problem.node_cost_s)}
        """Vectors of the live nodes, ascending."""
        self.near: dict[int, dict[int, Floats]] = {node: {} for node in self.cost}
        """Pair tables by both ends; their rows belong to the smaller node."""
        self.factors: dict[int, list[Factor]] = {node: [] for node in self.cost}
        """Factors that each node takes part in."""
        self.undo: list[Undo] = []
        """Functions in order of elimination that choose for eliminated nodes; run backwards, they complete a choice."""
        self.width = 0
        """See ``Solution.width``."""
        self.candidates = 0
        """See ``Solution.candidates``."""
        for tensor in problem.tensors:
            for group in self._sharing_groups(tensor):
                self.add_fork(tensor.producer, group)

    def _unique(self, vector: NDArray[Any]) -> NDArray[Any]:
        """Return one object for equal vectors, so that equal layers are recognised even if built one by one."""
        return self._equal.setdefault(vector.tobytes() + vector.dtype.char.encode(), np.ascontiguousarray(vector))

    def _sharing_groups(self, tensor: TensorCost) -> list[list[Slot]]:
        """Divide the slots of a tensor into groups that have no layout in common."""
        groups: list[tuple[set[int], list[Slot]]] = []
        for node, cost, layout in zip(tensor.consumers, tensor.cost_s, tensor.layout, strict=True):
            layout = self._unique(layout)
            names = self.memo(_names, layout) if len(tensor.consumers) > 1 else set()
            met = [group for group in groups if not names.isdisjoint(group[0])]
            groups = [group for group in groups if names.isdisjoint(group[0])]
            slots = [*itertools.chain.from_iterable(group[1] for group in met), (node, cost, layout)]
            groups.append((names.union(*(group[0] for group in met)), slots))
        return [slots for _, slots in groups]

    def memo(self, function: Callable[..., Any], *operands: Any) -> Any:
        """Call a pure function, or return its earlier result for the very same operand objects."""
        key = (function, *map(id, operands))
        if key not in self._memo:
            self._memo[key] = function(*operands), operands  # operands stay alive, so that no id is used again
        return self._memo[key][0]

    def add_fork(self, producer: int, slots: list[Slot]) -> None:
        """Add consumers that may share transfers; a single consumer makes an ordinary pair table."""
        fork = Fork(producer, tuple(slots))
        if len(slots) == 1:
            self.add_pair(producer, slots[0][0], np.ascontiguousarray(slots[0][1]))
        elif len(fork.clients) == 1:
            self.add_pair(producer, slots[0][0], np.ascontiguousarray(fork.window({})))
        else:
            self.add_factor(fork)

    def add_pair(self, first: int, second: int, table: Floats) -> None:
        """Add a pair table with rows of ``first``; parallel tables add up (edge elimination).

        Source:
            Jia et al., ICML 2018, Eq. 3.
        """
        if first > second:
            first, second, table = second, first, self.memo(_flip, table)
        known = self.near[first].get(second)
        if known is not None:
            table = self.memo(np.add, known, table)
        self.near[first][second] = self.near[second][first] = table

    def add_factor(self, factor: Factor) -> None:
        """Add a factor to the lists of its nodes."""
        for node in factor.scope:
            self.factors[node].append(factor)

    def drop_factor(self, factor: Factor) -> None:
        """Remove a factor from the lists of its nodes."""
        for node in factor.scope:
            self.factors[node].remove(factor)

    def between(self, rows: int, columns: int) -> Floats:
        """Return the pair table of two nodes with the rows of the first one, C-contiguous."""
        table = self.near[rows][columns]
        oriented: Floats = table if rows < columns else self.memo(_flip, table)
        return oriented

    def through(self, left: Floats, middle: Floats, right: Floats) -> Floats:
        """Return the (min,+) product of three tables, from the memo where it was computed before."""
        known = len(self._memo)
        table: Floats = self.memo(product, left, middle, right)
        if len(self._memo) > known:
            self.candidates += left.shape[0] * len(middle) * right.shape[1]
        return table

    def check_room(self, entries: int) -> None:
        """Refuse a table before it is allocated.

        Raises:
            GraphTooWideError: It would not fit.
        """
        if entries * ENTRY_BYTES > self.limit_bytes:
            raise GraphTooWideError(
                f"exact search needs a table of {entries * ENTRY_BYTES / GIGA:.2g} GB, above the limit of "
                f"{self.limit_bytes / GIGA:.2g} GB; offer fewer configurations per layer"
            )

    def spend(self, sums: int) -> None:
        """Count the sums that elimination by width is about to compare.

        Raises:
            GraphTooWideError: They are more than it may compare.
        """
        self.limit_sums -= sums
        self.candidates += sums
        if self.limit_sums < 0:
            raise GraphTooWideError("exact search takes too many sums; offer fewer configurations per layer")

    def remove(self, node: int, *, joined: int) -> None:
        """Remove a node with its pair tables; ``joined`` is the number of other nodes that its tables joined."""
        for other in self.near.pop(node):
            del self.near[other][node]
        del self.cost[node], self.factors[node]
        self.width = max(self.width, joined)


def _flip(table: Floats) -> Floats:
    """Return the transposed table, C-contiguous."""
    return np.ascontiguousarray(table.T)


def _names(layout: Ints) -> set[int]:
    """Return the distinct layouts of a consumer."""
    return set(layout.tolist())
