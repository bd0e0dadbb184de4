"""The refusal of a comparison in which no strategy fits, with the largest batch found that one fits with."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Self

from groundwork.errors import ConfigError, InfeasiblePlanError, OrreryError
from planner.cost.cost_model import CostModel
from planner.memory.peak_memory import check_plan_memory, peak_memory_bytes
from planner.plan.lowered_plan import PlannedStrategy
from planner.plan.make_plan import derived
from planner.plan.plan_request import PlanRequest
from planner.search.hybrid_search import first_hybrids
from planner.simulation.memory_over_time import replay_that_fits
from planner.strategies.named_rules import NAMED
from planner.strategies.named_strategies import is_searched, named_strategy

_MOST_TASKS = 1_000_000
"""Tasks that are lowered for all attempts together, some seconds; larger programs are not tried."""
_MOST_SEARCHES = 4
"""Batches for which hybrids are ranked, some seconds each."""


class NoStrategyFitsError(InfeasiblePlanError):
    """A comparison in which no strategy fits in memory.

    Args:
        reasons: Why, by strategy.
        batch: A batch with which one of them fits; None if none was found.
    """

    def __init__(self, reasons: Mapping[str, str], batch: int | None) -> None:
        self._reasons, self.batch = dict(reasons), batch
        advice = f"what fits: --batch {batch}" if batch else "use more devices or a smaller batch"
        super().__init__("; ".join([*(f"{name}: {reason}" for name, reason in reasons.items()), advice]))

    def __reduce__(self) -> tuple[type[Self], tuple[dict[str, str], int | None]]:
        return type(self), (self._reasons, self.batch)


def fitting_batch(requests: Sequence[tuple[CostModel, PlanRequest]]) -> int | None:
    """Return the largest batch found with which one of several strategies fits, and all can be had, by simulation.

    Batches are tried by eighths of the batch, then of its half, and so on.  For ``layerwise`` and ``hybrid`` stand the
    strategies that follow from a rule.  All of those are candidates of ``layerwise``, but not of ``hybrid``: for that,
    the hybrids that its search simulates decide, of such a batch, of its half, and so on.

    Args:
        requests: Requests with the batch that is too large, each with the prices under its conditions.

    Returns:
        The batch; None where none was found.
    """
    searched = {request.strategy: model for model, request in requests if is_searched(request.strategy)}
    ruled = [row for row in requests if not is_searched(row[1].strategy)]
    whole, attempts = requests[0][1].batch, _Attempts()
    shares = dict.fromkeys(whole * eighth // 8 >> half for half in range(whole.bit_length()) for eighth in (7, 6, 5, 4))
    most_hybrid = whole
    for batch in sorted(filter(None, shares), reverse=True):
        if attempts.tasks_left < 0:
            break
        try:
            smaller = [(model.for_batch(batch), replace(request, batch=batch)) for model, request in ruled]
            tried = [(model, _planned(model, request)) for model, request in smaller]
        except ConfigError:  # with this change the whole comparison would be refused
            continue
        if any(attempts.fits(model, planned) for model, planned in tried):
            return batch
        usual = next((model.for_batch(batch) for model in searched.values()), None)
        if usual is None or not any(attempts.fits(usual, _usual(usual, name)) for name in NAMED):
            continue
        if "layerwise" in searched:
            return batch
        if batch <= most_hybrid and attempts.searches_left:
            attempts.searches_left -= 1
            hybrids = first_hybrids(usual)
            if any(attempts.fits(usual, PlannedStrategy(strategy=s, micro_batching=m)) for s, m in hybrids):
                return batch
            most_hybrid = batch // 2
    return None


def _planned(model: CostModel, request: PlanRequest) -> PlannedStrategy | None:
    """Return the strategy of a request; None where it is refused for its memory.

    Raises:
        ConfigError: It cannot be had with this batch.
    """
    try:
        return derived(model, request)
    except InfeasiblePlanError:
        return None


def _usual(model: CostModel, name: str) -> PlannedStrategy | None:
    """Return one of the usual strategies; None where it cannot be had."""
    try:
        return PlannedStrategy(strategy=named_strategy(name, model.graph, len(model.cluster.devices), model.cluster))
    except ConfigError:
        return None


@dataclass(slots=True, kw_only=True)
class _Attempts:
    """What may still be tried."""

    tasks_left: int = _MOST_TASKS
    searches_left: int = _MOST_SEARCHES

    def fits(self, model: CostModel, planned: PlannedStrategy | None) -> bool:
        """Return whether a strategy fits; False, too, where so many tasks were lowered that nothing more is tried."""
        if planned is None or self.tasks_left < 0:
            return False
        try:
            program = planned.lowered(model, check_memory=False)
            self.tasks_left -= program.size
            if self.tasks_left < 0:
                return False
            check_plan_memory(program, peak_memory_bytes(program))
            replay_that_fits(program)
        except OrreryError:
            return False
        return True
