"""The refusal of a comparison in which no strategy fits, with the largest batch found that one fits with."""

from collections.abc import Mapping, Sequence

from hwprofiles import InfeasiblePlanError, OrreryError
from planner.cost import CostModel
from planner.memory import check_plan_memory, peak_memory_bytes
from planner.parallel import NAMED
from planner.plan.lowered_plan import lowered
from planner.search import HYBRID, strategy_and_micro_batching
from planner.simulation import replay_that_fits

__all__ = ["NoStrategyFitsError", "fitting_batch"]

_MOST_TASKS = 1_000_000
"""Tasks that are lowered for all attempts together, some seconds; larger programs are not tried."""


class NoStrategyFitsError(InfeasiblePlanError):
    """A comparison in which no strategy fits in memory.

    Args:
        reasons: Why, by strategy.
        batch: A batch with which one of them fits; None if none was found.
    """

    def __init__(self, reasons: Mapping[str, str], batch: int | None) -> None:
        self.batch = batch
        advice = f"what fits: --batch {batch}" if batch else "use more devices or a smaller batch"
        super().__init__("; ".join([*(f"{name}: {reason}" for name, reason in reasons.items()), advice]))


def fitting_batch(model: CostModel, names: Sequence[str]) -> int | None:
    """Return the largest batch found with which one of several strategies fits, by simulation.

    Batches are tried by eighths of the batch, then of its half, and so on.

    Args:
        model: Prices with the batch that is too large.
        names: Strategies; for those that are searched, such as ``layerwise``, stand those that follow from a rule.

    Returns:
        The batch; None where none was found.
    """
    ruled = [name for name in names if name not in ("layerwise", HYBRID)]
    ruled += [name for name in NAMED if name not in ruled] if len(ruled) < len(names) else []
    whole, tasks_left = model.graph.batch, _MOST_TASKS
    shares = dict.fromkeys(whole * eighth // 8 >> half for half in range(whole.bit_length()) for eighth in (7, 6, 5, 4))
    for batch in sorted(shares, reverse=True):
        for name in ruled if batch else ():
            try:
                smaller = model.for_batch(batch)
                strategy, micro_batching = strategy_and_micro_batching(smaller, name)
                program = lowered(smaller, strategy, micro_batching=micro_batching, check_memory=False)
                tasks_left -= program.size
                if tasks_left < 0:
                    return None
                check_plan_memory(program, peak_memory_bytes(program))
                replay_that_fits(program)
            except OrreryError:
                continue
            return batch
    return None
