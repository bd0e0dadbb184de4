"""The search on abstract cost tables: what is asked, what is answered, and the price of one strategy.

A node is a layer, numbered in topological order; a configuration is an index into its tables.  The objective
is Eq. 1 of the layer-wise paper (Jia et al., ICML 2018, Sec. 5.1) with one refinement: consumers of one tensor
that ask for the same layout pay one transfer between them.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hwprofiles import Bools, ConfigError, Floats, Ints

__all__ = ["SearchProblem", "Solution", "TensorCost", "restrict", "strategy_cost"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorCost:
    """The tensor that ``producer`` makes; one entry per consuming edge in the three other fields."""

    producer: int
    consumers: tuple[int, ...]
    """Nodes that read it; a node that reads it in two slots stands twice."""
    cost_s: tuple[Floats, ...]
    """Shapes (C_producer, C_consumer), seconds, >= 0: the time to move it for that consumer; ``inf`` where the
    pair is forbidden or pruned.  It depends on the producer's configuration and the layout alone, so columns
    with equal layouts are equal, across the consumers too, except for the ``inf`` entries."""
    layout: tuple[Ints, ...]
    """Shapes (C_consumer,): which layout (which device needs which region) each configuration of that consumer
    asks for.  Numbers are compared within this tensor only."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchProblem:
    """Cost tables of a computation graph.

    Sharing array objects between equal layers costs nothing and lets ``eliminate`` solve them once.
    """

    node_cost_s: tuple[Floats, ...]
    """Shapes (C_i,), seconds, >= 0: compute plus parameter exchange; ``inf`` where it is forbidden."""
    tensors: tuple[TensorCost, ...]

    def __post_init__(self) -> None:
        for node, cost in enumerate(self.node_cost_s):
            if cost.ndim != 1 or cost.size == 0 or not cost.min() >= 0:
                raise ConfigError(f"node_cost_s[{node}] must be 1-D, not empty, >= 0 s and not NaN, got {cost!r}")
        checked: set[int] = set()  # equal layers share tables: look at each object once
        for index, tensor in enumerate(self.tensors):
            self._check_tensor(index, tensor, checked)

    def _check_tensor(self, index: int, tensor: TensorCost, checked: set[int]) -> None:
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
    """A strategy of least cost, and what it took to find it."""

    choice: tuple[int, ...]
    """Configuration of every node."""
    cost_s: float
    """Its price, as ``strategy_cost`` gives it."""
    width: int
    """Most other nodes that a node was joined with when it was eliminated: 1 for chains, 2 for series-parallel
    graphs.  The depth-first search eliminates nothing and says the number of nodes less one."""
    core_nodes: int
    """Nodes left when the rules for leaves, nodes, edges and forks no longer applied (the K of Table 2 of the
    layer-wise paper, whose rules stop at 2); 1 when they sufficed."""
    candidates: int
    """Sums to compare: those of all products of tables (elimination; bounds on whole rows spare many of them), or
    partial strategies (depth-first)."""


def strategy_cost(problem: SearchProblem, choice: Sequence[int]) -> float:
    """Return the cost in seconds of one strategy: nodes, plus each distinct layout asked of each tensor."""
    total = sum(float(cost[c]) for cost, c in zip(problem.node_cost_s, choice, strict=True))
    for tensor in problem.tensors:
        asked: dict[int, float] = {}
        for consumer, cost, layout in zip(tensor.consumers, tensor.cost_s, tensor.layout, strict=True):
            c = choice[consumer]
            price = float(cost[choice[tensor.producer], c])
            # A layout has one price; where a pair is forbidden, sharing does not allow it.
            asked[int(layout[c])] = max(price, asked.get(int(layout[c]), 0.0))
        total += sum(asked.values())
    return total


def restrict(problem: SearchProblem, keep: Sequence[Bools]) -> SearchProblem:
    """Keep some configurations only; configuration ``c`` of the result is ``np.flatnonzero(keep[node])[c]``.

    Tables that were one object, cut by equal masks, stay one object.
    """
    made: dict[tuple[object, ...], NDArray[Any]] = {}
    masks = [mask.tobytes() for mask in keep]

    def cut(array: NDArray[Any], *nodes: int) -> NDArray[Any]:
        key = (id(array), *(masks[node] for node in nodes))
        if key not in made:
            made[key] = array[np.ix_(*(keep[node] for node in nodes))]
        return made[key]

    return SearchProblem(
        node_cost_s=tuple(cut(cost, node) for node, cost in enumerate(problem.node_cost_s)),
        tensors=tuple(
            TensorCost(
                producer=t.producer,
                consumers=t.consumers,
                cost_s=tuple(cut(cost, t.producer, c) for cost, c in zip(t.cost_s, t.consumers, strict=True)),
                layout=tuple(cut(layout, c) for layout, c in zip(t.layout, t.consumers, strict=True)),
            )
            for t in problem.tensors
        ),
    )
