"""The search problem as abstract cost tables, its solution, and the cost of one strategy.

A node is a layer, numbered in topological order; a configuration is an index into its tables.  The objective
is Eq. 1 of the layer-wise paper (Jia et al., ICML 2018, Sec. 5.1) with one refinement: consumers of one tensor
that need the same layout share one transfer.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from groundwork.array_types import Bools, Floats, Ints
from groundwork.errors import ConfigError


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorCost:
    """The transfers of the tensor that ``producer`` makes; the other fields have one entry for each consuming edge."""

    producer: int
    consumers: tuple[int, ...]
    """Nodes that read the tensor; a node that reads it as two inputs is listed twice."""
    cost_s: tuple[Floats, ...]
    """Time of the transfer to each consumer, seconds, >= 0, shapes (C_producer, C_consumer); ``inf`` where the
    pair is forbidden or pruned.  It depends on the producer's configuration and the layout alone, so columns
    with equal layouts are equal, across the consumers too, except for the ``inf`` entries."""
    layout: tuple[Ints, ...]
    """Layout (the region that each device needs) of each configuration of each consumer, as a number that is
    compared within this tensor only, shapes (C_consumer,)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchProblem:
    """The cost tables of a computation graph.

    Sharing array objects between equal layers costs nothing and lets ``eliminate`` solve them once.
    """

    node_cost_s: tuple[Floats, ...]
    """Time of compute plus gradient synchronisation, seconds, >= 0, shapes (C_i,); ``inf`` where it is forbidden."""
    tensors: tuple[TensorCost, ...]

    def __post_init__(self) -> None:
        for node, cost in enumerate(self.node_cost_s):
            if cost.ndim != 1 or cost.size == 0 or not cost.min() >= 0:
                raise ConfigError(f"node_cost_s[{node}] must be 1-D, not empty, >= 0 s and not NaN, got {cost!r}")
        checked: set[int] = set()  # equal layers share tables: each object is checked once
        for index, tensor in enumerate(self.tensors):
            self._check_tensor(index, tensor, checked)

    def _check_tensor(self, index: int, tensor: TensorCost, checked: set[int]) -> None:
        """Raise where the tables of a tensor have wrong shapes or values; tables in ``checked`` are skipped."""
        counts = self.counts
        for consumer, cost, layout in zip(tensor.consumers, tensor.cost_s, tensor.layout, strict=True):
            where = f"tensor {index} from node {tensor.producer} to node {consumer}"
            if not 0 <= tensor.producer < consumer < len(counts):
                raise ConfigError(f"{where}: needs 0 <= producer < consumer < {len(counts)} (topological order)")
            shape = (counts[tensor.producer], counts[consumer])
            if cost.shape != shape or layout.shape != shape[1:]:
                raise ConfigError(
                    f"{where}: needs cost_s {shape}, layout {shape[1:]}; got {cost.shape}, {layout.shape}"
                )
            if id(cost) not in checked and not cost.min() >= 0:
                raise ConfigError(f"{where}: cost_s must be >= 0 s and not NaN, its least entry is {cost.min()!r}")
            checked.add(id(cost))

    @property
    def counts(self) -> tuple[int, ...]:
        """Number of configurations of every node."""
        return tuple(map(len, self.node_cost_s))


@dataclass(frozen=True, slots=True, kw_only=True)
class Solution:
    """A strategy of least cost, with statistics of the search."""

    choice: tuple[int, ...]
    """Configuration of every node."""
    cost_s: float
    """Its cost, as ``strategy_cost`` returns it."""
    width: int
    """Largest number of other nodes that a node was joined with when it was eliminated: 1 for chains, 2 for
    series-parallel graphs.  For the depth-first search, which eliminates nothing, the number of nodes less one."""
    core_nodes: int
    """Number of nodes left when the rules for leaves, nodes, edges and forks no longer applied (the K of Table 2 of
    the layer-wise paper, whose rules stop at 2); 1 when they sufficed."""
    candidates: int
    """Number of sums to compare: those of all products of tables (elimination; bounds on whole rows skip many of
    them), or partial strategies (depth-first)."""


def strategy_cost(problem: SearchProblem, choice: Sequence[int]) -> float:
    """Return the cost in seconds of one strategy: its nodes, plus a transfer for each distinct layout of each tensor.

    Source:
        Jia et al., ICML 2018, Eq. 1, with transfers shared by the consumers that need one layout.
    """
    total = sum(float(cost[c]) for cost, c in zip(problem.node_cost_s, choice, strict=True))
    for tensor in problem.tensors:
        needed: dict[int, float] = {}
        for consumer, cost, layout in zip(tensor.consumers, tensor.cost_s, tensor.layout, strict=True):
            c = choice[consumer]
            price = float(cost[choice[tensor.producer], c])
            # A layout has one price; where a pair is forbidden, sharing does not allow it.
            needed[int(layout[c])] = max(price, needed.get(int(layout[c]), 0.0))
        total += sum(needed.values())
    return total


def restrict(problem: SearchProblem, keep: Sequence[Bools]) -> SearchProblem:
    """Return the problem with some of the configurations only.

    Configuration ``c`` of the result is ``np.flatnonzero(keep[node])[c]``.  Tables that were one object, reduced by
    equal masks, stay one object.

    Args:
        problem: Cost tables.
        keep: Masks of the configurations to keep, shapes (C_i,).
    """
    made: dict[tuple[object, ...], NDArray[Any]] = {}
    masks = [mask.tobytes() for mask in keep]

    def reduced(array: NDArray[Any], *nodes: int) -> NDArray[Any]:
        """Return a table whose axes belong to ``nodes``, with the configurations that they keep."""
        key = (id(array), *(masks[node] for node in nodes))
        if key not in made:
            made[key] = array[np.ix_(*(keep[node] for node in nodes))]
        return made[key]

    return SearchProblem(
        node_cost_s=tuple(reduced(cost, node) for node, cost in enumerate(problem.node_cost_s)),
        tensors=tuple(
            TensorCost(
                producer=t.producer,
                consumers=t.consumers,
                cost_s=tuple(reduced(cost, t.producer, c) for cost, c in zip(t.cost_s, t.consumers, strict=True)),
                layout=tuple(reduced(layout, c) for layout, c in zip(t.layout, t.consumers, strict=True)),
            )
            for t in problem.tensors
        ),
    )


def whole_choice(keep: Sequence[Bools], choice: Sequence[int]) -> tuple[int, ...]:
    """Return a choice among the configurations that masks keep as a choice among all."""
    return tuple(int(np.flatnonzero(mask)[c]) for mask, c in zip(keep, choice, strict=True))
