"""Numbers for readers: three significant digits each, and one unit for all values of a column."""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np

_DIGITS = 3
_LEAST_PLAIN, _MOST_PLAIN, _NOISE = 1e-4, 1e15, 1e-9
"""Numbers below the first and from the second on have a power of ten; below the third they are errors of rounding."""
_LARGEST = 1e99
_SECONDS = (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6), ("ns", 1e-9))
_BYTES = (("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3), ("B", 1.0))
_MEMORY = (("TiB", 2.0**40), ("GiB", 2.0**30), ("MiB", 2.0**20), ("KiB", 2.0**10), ("B", 1.0))


@dataclass(frozen=True, slots=True)
class Unit:
    """Unit of a column."""

    name: str
    """Symbol of the unit; empty for plain numbers."""
    factor: float

    def text(self, value: float) -> str:
        """Return the value in this unit to three digits, without the unit; a dash if the value is not finite."""
        return three_digits(value / self.factor, whole=self.name == "B")

    def full(self, value: float) -> str:
        """Return the value with its unit as text."""
        return f"{self.text(value)} {self.name}".strip()


UnitChoice = Callable[[Iterable[float]], Unit]
"""Function that chooses the unit of some values."""
Tile = tuple[str, str, str]
"""A key number: label, number, unit."""


def tile(label: str, value: float, choose: UnitChoice) -> Tile:
    """Return a key number in the unit that is chosen for it."""
    unit = choose([value])
    return label, unit.text(value), unit.name


def three_digits(value: float, *, whole: bool = False) -> str:
    """Return a number to three significant digits: ``4,880``, ``63.0``, ``0.00123``, ``1.23e-7``, ``2.79e122``.

    Args:
        value: The number; a dash stands for what is not finite.
        whole: True for counts, which have no decimals.
    """
    if not math.isfinite(value):
        return "–"
    size = abs(value)
    if size < _NOISE:
        return "0"
    if size < _LEAST_PLAIN or size >= _MOST_PLAIN:
        digits, _, power = f"{value:.2e}".partition("e")
        return f"{digits}e{int(power)}"
    rounded = float(f"{value:.{_DIGITS - 1}e}")
    decimals = _DIGITS - 1 - math.floor(math.log10(abs(rounded)))
    return f"{rounded:,.{0 if whole else max(decimals, 0)}f}"


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
    """Return the unit of plain numbers, whatever they are."""
    return Unit("", 1.0)


def _choose(units: tuple[tuple[str, float], ...], values: Iterable[float]) -> Unit:
    """Choose the unit in which all values together take the fewest characters; of equal ones the largest.

    A sum of lengths follows the many: one value that is a thousand times the others does not choose their unit.
    """
    sizes = np.abs(np.fromiter(values, dtype=float))
    # up to a size whose quotients by small units are finite: what is larger has the largest unit anyway
    sizes = np.minimum(sizes[np.isfinite(sizes) & (sizes > 0)], _LARGEST)
    name, factor = min(units, key=lambda unit: _characters(sizes / unit[1])) if sizes.size else units[0]
    return Unit(name, factor)


def _characters(amounts: np.ndarray[tuple[int], np.dtype[np.float64]]) -> int:
    """Return how many characters numbers above 0 take to three digits, with points and separators of thousands."""
    power = np.floor(np.log10(amounts)).astype(int)
    below, above = 4 - power, power + 1 + power // 3
    return int(np.where(power < 0, below, np.where(power < 2, _DIGITS + 1, above)).sum())
