"""The winner of a comparison, and intervals of its times in words, printed alike by the terminal and the page."""

from planner.plan import Comparison, StrategyResult
from reports.style import three_digits, time_unit
from studies.fidelity import TimeParts, likely_s, parts_of_strategy, told_apart

__all__ = ["likely_range", "likely_ranges", "likely_times", "undecided_line", "winner_of"]

_Interval = tuple[float, float] | None
"""Lowest and highest likely seconds; None where errors are not known."""


def winner_of(comparison: Comparison) -> StrategyResult | None:
    """Return the named winner, else the strategy with the shortest simulated iteration; None if there is none."""
    named = [strategy for strategy in comparison.strategies if strategy.name == comparison.winner]
    return min(named or comparison.strategies, key=lambda strategy: strategy.simulated_s, default=None)


def likely_times(comparison: Comparison) -> list[_Interval]:
    """Return the 80 % interval of every strategy's iteration."""
    return [likely_s(_parts(comparison, strategy)) for strategy in comparison.strategies]


def _parts(comparison: Comparison, strategy: StrategyResult) -> TimeParts:
    """Return what a strategy's time is made of."""
    return parts_of_strategy(strategy, len(comparison.devices), comparison.nodes)


def likely_ranges(comparison: Comparison) -> tuple[str, list[str]]:
    """Return a unit, and the intervals in it as text, in the order of the strategies."""
    unit = time_unit([strategy.simulated_s for strategy in comparison.strategies])
    intervals = likely_times(comparison)
    return unit.name, ["–" if each is None else _range(each, unit.factor) for each in intervals]


def likely_range(interval: tuple[float, float]) -> str:
    """Return an interval with its unit: ``640 to 790 ms``."""
    unit = time_unit(interval[:1])
    return f"{_range(interval, unit.factor)} {unit.name}"


def _range(interval: tuple[float, float], factor: float) -> str:
    """Return the two ends to three digits."""
    low, high = (three_digits(end / factor) for end in interval)
    return f"{low} to {high}"


def undecided_line(comparison: Comparison) -> str:
    """Return which strategies cannot be told apart from the winner; empty where all can."""
    winner = winner_of(comparison)
    if winner is None:
        return ""
    best = _parts(comparison, winner)
    near = [
        strategy.name
        for strategy in comparison.strategies
        if strategy.simulated_s != winner.simulated_s and not told_apart(best, _parts(comparison, strategy))
    ]
    if not near:
        return ""
    names = ", ".join([winner.name, *near[:-1]])
    why = "the difference of their times is within the errors of predictions"
    return f"{names} and {near[-1]} cannot be told apart: {why}."
