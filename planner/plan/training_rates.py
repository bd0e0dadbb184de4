"""A time of an iteration in the words of the field: tokens a second, utilisation of the hardware, device hours."""

from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np

from groundwork.units import HOUR_S
from planner.cost.cost_model import CostModel
from planner.lowering.program import Program

_ABOVE_PEAK = (
    "MFU above 100 %: it counts the multiplications of direct convolutions, and libraries multiply less, by Winograd's "
    "algorithm or Fourier transforms"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingRates:
    """What follows from the expected time of an iteration."""

    samples_per_s: float
    """Samples a second, whatever they are."""
    tokens_per_s: float | None
    """Tokens a second; None where samples are no sequences of tokens."""
    mfu: float
    """Model FLOP utilisation: FLOP of the model, 3 x forward, over time and the sum of the devices' peaks.

    A multiply-add is 2 FLOP, attention counts all keys, and recomputation nothing.  Peaks are those of the data sheets
    at the boost clock, in the arithmetic of the products, of all devices of the cluster.

    Source:
        Chowdhery et al., "PaLM: Scaling language modeling with pathways", 2022, Appendix B.
    """
    hfu: float | None
    """Hardware FLOP utilisation: as ``mfu``, with the FLOP of recomputation; None where nothing is recomputed."""
    device_hours_per_million_samples: float
    money_per_million_samples: float | None = None
    """Money in the currency of the price of a device's hour; None where no price is known."""
    money_per_million_tokens: float | None = None
    """The same for tokens; None without a price, and where samples are no sequences of tokens."""

    def priced(self, price: float | None) -> "TrainingRates":
        """Return the rates with their cost.

        Args:
            price: Money for an hour of one device; None where it is not known.
        """
        if price is None:
            return self
        money = price * self.device_hours_per_million_samples
        tokens = money * self.samples_per_s / self.tokens_per_s if self.tokens_per_s else None
        return replace(self, money_per_million_samples=money, money_per_million_tokens=tokens)


def above_peak(rates: Iterable[TrainingRates]) -> tuple[str, ...]:
    """Return a sentence on why utilisation exceeds the peak, if any does."""
    return (_ABOVE_PEAK,) if any(each.mfu > 1 for each in rates) else ()


def training_rates(model: CostModel, program: Program, expected_s: float) -> TrainingRates:
    """Return the rates of a program.

    Args:
        model: Prices that it was lowered with, whose profiles have the peaks.
        program: One iteration.
        expected_s: Time of the iteration that is expected, seconds.
    """
    graph, devices = model.graph, len(program.cluster.devices)
    peaks = np.array([profile.peak_flop_per_s / profile.sustained_clock for profile in model.profiles])
    available = peaks[model.profile_of].sum() * expected_s
    flop = np.array([layer.forward_flop() for layer in graph.layers])
    again = np.unique(program.layer[program.recomputed & program.is_compute])
    used, samples_per_s = 3 * float(flop.sum()), graph.batch / expected_s
    return TrainingRates(
        samples_per_s=samples_per_s,
        tokens_per_s=graph.tokens_per_sample * samples_per_s if graph.tokens_per_sample else None,
        mfu=float(used / available),
        hfu=float((used + flop[again].sum()) / available) if len(again) else None,
        device_hours_per_million_samples=devices * 1e6 / samples_per_s / HOUR_S,
    )
