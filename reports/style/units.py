"""Units for readers: one unit and one number of decimals for all values of a column."""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from statistics import median

__all__ = ["Unit", "byte_unit", "memory_unit", "plain_unit", "time_unit"]

_MOST_DECIMALS, _OUTLIER = 4, 1e3
_SECONDS = (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6), ("ns", 1e-9))
_BYTES = (("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3), ("B", 1.0))
_MEMORY = (("TiB", 2.0**40), ("GiB", 2.0**30), ("MiB", 2.0**20), ("KiB", 2.0**10), ("B", 1.0))


@dataclass(frozen=True, slots=True)
class Unit:
    """Unit of a column, with the number of decimals that the column needs."""

    name: str
    """Symbol of the unit; empty for plain numbers."""
    factor: float
    """Size of the unit in SI units."""
    decimals: int

    def text(self, value: float) -> str:
        """Return the value in this unit as text, without the unit; a dash if the value is not finite."""
        if not math.isfinite(value):
            return "–"
        amount = abs(value / self.factor)
        # Values much smaller than the largest keep three digits too, as far as these are not noise.
        least = min(2 - math.floor(math.log10(amount)), _MOST_DECIMALS) if amount and self.name != "B" else 0
        return f"{value / self.factor:,.{max(self.decimals, least)}f}"

    def full(self, value: float) -> str:
        """Return the value with its unit as text."""
        return f"{self.text(value)} {self.name}".strip()


def time_unit(values_s: Iterable[float]) -> Unit:
    """Choose the unit for times in seconds."""
    return _choose(_SECONDS, values_s)


def byte_unit(values_bytes: Iterable[float]) -> Unit:
    """Choose the decimal unit for amounts of data that are sent."""
    return _choose(_BYTES, values_bytes)


def memory_unit(values_bytes: Iterable[float]) -> Unit:
    """Choose the binary unit for memory sizes."""
    return _choose(_MEMORY, values_bytes)


def plain_unit(values: Iterable[float]) -> Unit:
    """Choose the number of decimals for plain numbers."""
    return _choose((("", 1.0),), values)


def _choose(units: tuple[tuple[str, float], ...], values: Iterable[float]) -> Unit:
    """Choose the largest unit that is at most the largest value, with four digits for that value.

    One outlier, a thousand times the median, does not choose the unit of all: the median does.
    """
    sizes = [abs(value) for value in values if math.isfinite(value) and value != 0]
    if not sizes:
        return Unit(*units[0], decimals=0)
    usual = median(sizes)
    deciding = usual if max(sizes) > _OUTLIER * usual else max(sizes)
    name, factor = next(((n, f) for n, f in units if deciding >= f), units[-1])
    for_largest, for_smallest = (math.floor(math.log10(size / factor)) for size in (max(sizes), min(sizes)))
    # A much smaller value in the same column gets one decimal more; further digits would not help the reader.
    decimals = max(3 - for_largest, min(2 - for_smallest, 4 - for_largest))
    return Unit(name, factor, decimals=0 if name == "B" else min(max(decimals, 0), 3))
