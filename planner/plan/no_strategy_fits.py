"""The refusal of a comparison in which no strategy fits, with the largest batch found that one fits with."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Self

from groundwork.errors import ConfigError, InfeasiblePlanError, OrreryError
from planner.cost.cost_model import CostModel
from planner.layouts.configurations import Strategy
from planner.memory.peak_memory import check_plan_memory, peak_memory_bytes
from planner.parallel.micro_batches import MicroBatching
from planner.parallel.named_rules import NAMED
from planner.plan.lowered_plan import lowered
from planner.search.hybrid_search import HYBRID, first_hybrids
from planner.search.pipeline_strategy import strategy_and_micro_batching
from planner.simulation.memory_over_time import replay_that_fits

_MOST_TASKS = 1_000_000
"""Tasks that are lowered for all attempts together, some seconds; larger programs are not tried."""
_MOST_SEARCHES = 4
"""Batches for which hybrids are ranked, some seconds each."""


_Subject = tuple[Strategy, MicroBatching]
"""Strategy to try, with its micro-batches."""


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


def fitting_batch(model: CostModel, names: Sequence[str]) -> int | None:
    """Return the largest batch found with which one of several strategies fits, and all can be had, by simulation.

    Batches are tried by eighths of the batch, then of its half, and so on.  For ``layerwise`` and ``hybrid`` stand the
    strategies that follow from a rule.  All of those are candidates of ``layerwise``, but not of ``hybrid``: for that,
    the hybrids that its search simulates decide, of such a batch, of its half, and so on.

    Args:
        model: Prices with the batch that is too large.
        names: Strategies.

    Returns:
        The batch; None where none was found.
    """
    ruled = [name for name in names if name not in ("layerwise", HYBRID)]
    usual = [name for name in NAMED if name not in ruled] if len(ruled) < len(names) else []
    whole, attempts = model.graph.batch, _Attempts()
    shares = dict.fromkeys(whole * eighth // 8 >> half for half in range(whole.bit_length()) for eighth in (7, 6, 5, 4))
    most_hybrid = whole
    for batch in sorted(filter(None, shares), reverse=True):
        if attempts.tasks_left < 0:
            break
        try:
            smaller = model.for_batch(batch)
            named = [_subject(smaller, name) for name in ruled]
        except ConfigError:  # the whole comparison would be refused
            continue
        if any(attempts.fits(smaller, subject) for subject in named):
            return batch
        if not any(attempts.fits(smaller, _usual(smaller, name)) for name in usual):
            continue
        if "layerwise" in names:
            return batch
        if batch <= most_hybrid and attempts.searches_left:
            attempts.searches_left -= 1
            if any(attempts.fits(smaller, subject) for subject in first_hybrids(smaller)):
                return batch
            most_hybrid = batch // 2
    return None


def _subject(model: CostModel, name: str) -> _Subject | None:
    """Return the strategy of a name, with its micro-batches; None where it is refused for its memory.

    Raises:
        ConfigError: It cannot be had with this batch.
    """
    try:
        return strategy_and_micro_batching(model, name)
    except InfeasiblePlanError:
        return None


def _usual(model: CostModel, name: str) -> _Subject | None:
    """Return one of the usual strategies; None where it cannot be had."""
    try:
        return _subject(model, name)
    except ConfigError:
        return None


@dataclass(slots=True, kw_only=True)
class _Attempts:
    """What may still be tried."""

    tasks_left: int = _MOST_TASKS
    searches_left: int = _MOST_SEARCHES

    def fits(self, model: CostModel, subject: _Subject | None) -> bool:
        """Return whether a strategy fits; False, too, where so many tasks were lowered that nothing more is tried."""
        if subject is None or self.tasks_left < 0:
            return False
        try:
            program = lowered(model, subject[0], micro_batching=subject[1], check_memory=False)
            self.tasks_left -= program.size
            if self.tasks_left < 0:
                return False
            check_plan_memory(program, peak_memory_bytes(program))
            replay_that_fits(program)
        except OrreryError:
            return False
        return True
