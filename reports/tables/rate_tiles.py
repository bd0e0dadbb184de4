"""Tiles of what an expected time means in the words of the field, alike on all pages."""

from planner.plan.training_rates import TrainingRates
from reports.style.units import three_digits


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
