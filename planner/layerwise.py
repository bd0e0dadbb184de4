"""The layer-wise search: for every layer the configuration that makes Eq. 1 least, exactly.

Source: Jia et al., "Exploring Hidden Dimensions in Parallelizing Convolutional Neural Networks", ICML 2018, Sec. 5.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass

from planner.configurations import Configuration
from planner.costs import CostModel
from planner.search import eliminate
from planner.strategies import Strategy

__all__ = ["Found", "find"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """A strategy of least additive cost, and what it took to find it."""

    strategy: dict[str, Configuration]
    """Layer name to configuration."""
    cost_s: float
    """Eq. 1, exactly; tensors in one layout are paid once."""
    tables_s: float
    """Time spent on cost tables and bounds."""
    search_s: float
    """Time spent on elimination."""
    width: int
    """Most layers that one layer was joined with when it was eliminated."""
    configurations: int
    """Configurations offered, all layers together."""
    pairs_priced: int
    """Pairs of configurations whose transfer was priced exactly, equal edges counted once."""


def find(model: CostModel, *, known: Sequence[Strategy] = ()) -> Found:
    """Return the best of all strategies that ``model.offered()`` allows.

    Args:
        model: Prices of a model on a cluster.
        known: Strategies that the answer must not be worse than: they save work.

    Raises:
        InfeasiblePlanError: The graph is too wide for exact elimination.
    """
    began = time.perf_counter()
    spaces = model.offered()
    problem = model.problem(spaces, model.transfer_table)
    priced = time.perf_counter()
    solution = eliminate(problem)
    chosen = zip(model.graph.layers, spaces, solution.choice, strict=True)
    return Found(
        strategy={layer.name: space.configuration(choice) for layer, space, choice in chosen},
        cost_s=solution.cost_s,
        tables_s=priced - began,
        search_s=time.perf_counter() - priced,
        width=solution.width,
        configurations=sum(space.size for space in spaces),
        pairs_priced=model.pairs_priced,
    )
