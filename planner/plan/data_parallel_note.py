"""Why data parallelism is as fast as the rest, or from which batch on it would be."""

from collections.abc import Sequence

from groundwork.errors import InfeasiblePlanError
from groundwork.units import MILLI
from planner.cost.cost_model import CostModel
from planner.parallel.strategies import named_strategy
from planner.plan.comparison import StrategyResult
from planner.plan.lowered_plan import lowered
from planner.simulation.program_replay import replay

_HIDDEN = 0.05
"""Share of the iteration below which exposed communication hardly counts."""
_DOUBLINGS = 6
"""Batches that are tried: up to 64 times the one that is compared."""


def data_parallel_note(model: CostModel, results: Sequence[StrategyResult]) -> str:
    """Return a sentence on how much of its gradient synchronisation data parallelism hides, and at which batch it does.

    Where communication hides under the backward pass, no strategy can be faster by much, as none computes less.

    Args:
        model: Costs of the network on the cluster, with the conditions.
        results: Strategies compared.

    Returns:
        The sentence; empty if data parallelism was not compared.
    """
    data = next((result for result in results if result.name == "data"), None)
    if data is None:
        return ""
    sync_s = sum(layer.gradient_sync_s for layer in data.layers)
    exposed = f"{data.exposed_communication_s / MILLI:.3g} ms"
    if data.exposed_communication_s <= _HIDDEN * data.simulated_s:
        return (
            f"data hides its gradient synchronisation ({sync_s / MILLI:.3g} ms) under the backward pass, all but "
            f"{exposed}: no strategy can be much faster than one that only computes"
        )
    shown = f"data exposes {exposed} of communication at batch {model.graph.batch:,}"
    for power in range(1, _DOUBLINGS + 1):
        batch = model.graph.batch << power
        try:
            share = _exposed_share(model.for_batch(batch))
        except InfeasiblePlanError:
            return f"{shown}; it would do so at every larger batch that was tried and fits in memory"
        if share <= _HIDDEN:
            return f"{shown}; from batch {batch:,} on it hides under the backward pass"
    return f"{shown}; even at batch {batch:,} it does not hide under the backward pass"


def _exposed_share(model: CostModel) -> float:
    """Return the share of a data-parallel iteration in which its busiest device waits for communication."""
    replayed = replay(lowered(model, named_strategy("data", model.graph, len(model.cluster.devices))))
    return replayed.shares().exposed_communication_s / replayed.iteration_s
