"""The winner of a comparison, and intervals of its times in words, printed alike by the terminal and the page."""

from planner.expected.likely_times import told_apart
from planner.plan.comparison import Comparison, StrategyResult
from planner.plan.training_rates import TrainingRates
from reports.style.units import Unit, three_digits, time_unit


def rate_tiles(rates: TrainingRates, samples_are: str) -> list[tuple[str, str, str]]:
    """Return label, number and unit of samples and tokens a second, utilisation, and money where a price is known."""
    tokens = [("tokens", three_digits(rates.tokens_per_s), "tokens/s")] if rates.tokens_per_s else []
    return [
        ("throughput", three_digits(rates.samples_per_s), f"{samples_are}/s"),
        *tokens,
        ("model FLOP utilisation (MFU)", f"{100 * rates.mfu:.1f}", "%"),
        *((f"money per million {what}", three_digits(money), "") for what, money in money_words(rates, samples_are)),
    ]


def money_words(rates: TrainingRates, samples_are: str) -> list[tuple[str, float]]:
    """Return what a million of costs how much; nothing where no price is known."""
    known = ((samples_are, rates.money_per_million_samples), ("tokens", rates.money_per_million_tokens))
    return [(what, money) for what, money in known if money is not None]


def winner_of(comparison: Comparison) -> StrategyResult | None:
    """Return the named winner, else the strategy with the shortest expected iteration; None if there is none."""
    named = [strategy for strategy in comparison.strategies if strategy.name == comparison.winner]
    return min(named or comparison.strategies, key=lambda strategy: strategy.expected_s, default=None)


def expected_time(expected_s: float, likely_s: tuple[float, float] | None, simulated_s: float) -> str:
    """Return what an iteration takes in words: ``720 ms an iteration (likely 640 to 790 ms; simulated 690 ms)``.

    Args:
        expected_s: Median of the times that it may take.
        likely_s: Their 80 % interval; None where errors are not known: then nothing but the simulated time is.
        simulated_s: Time of the machine as it is described.
    """
    unit = time_unit([expected_s])
    if likely_s is None:
        return f"{unit.full(expected_s)} an iteration, simulated"
    aside = f"likely {likely_ends(likely_s, unit)} {unit.name}; simulated {unit.full(simulated_s)}"
    return f"{unit.full(expected_s)} an iteration ({aside})"


def likely_ends(likely_s: tuple[float, float] | None, unit: Unit) -> str:
    """Return the two ends of an interval to three digits, without the unit; a dash for None."""
    return "–" if likely_s is None else " to ".join(three_digits(end / unit.factor) for end in likely_s)


def undecided_line(comparison: Comparison) -> str:
    """Return which strategies cannot be told apart from the winner; empty where all can."""
    winner = winner_of(comparison)
    if winner is None:
        return ""
    near = [
        strategy.name
        for strategy in comparison.strategies
        if strategy.simulated_s != winner.simulated_s and not told_apart(winner.time_parts, strategy.time_parts)
    ]
    if not near:
        return ""
    names = ", ".join([winner.name, *near[:-1]])
    why = "the difference of their times is within the errors of predictions"
    return f"{names} and {near[-1]} cannot be told apart: {why}."
