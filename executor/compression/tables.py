"""Tables of the 8-bit types: the positive values that seven bits stand for, and where one gives way to the next.

Source: Dettmers, "8-Bit Approximations for Parallelism in Deep Learning", ICLR 2016, Sections 3.1 and 3.2.
"""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hwprofiles import ConfigError
from planner.compression import Compression

__all__ = ["POSITIVE", "Table", "table_of", "table_with", "values_of"]

_Floats = NDArray[np.float32]

POSITIVE = 128
"""Values that seven bits can stand for; the eighth bit is the sign."""
LOWEST = 0.1
"""Lower end of the interval that the trees bisect."""


@dataclass(frozen=True, slots=True, eq=False)
class Table:
    """Positive values in order, and how the nearest is found."""

    values: _Floats
    """Shape (K,), K <= 128, from 0 up; a code is an index into it."""
    cutoffs: _Floats
    """Shape (K - 1,): smallest float32 that becomes ``values[i + 1]``; with the nearest, half-way goes down."""
    lookup: NDArray[np.int32] | None
    """Shape (32768,), by the upper 16 bits of a positive float32: the code of the first number that begins so, times
    2**17, plus the lower 16 bits from which the next code holds (2**16 where none does).  None where two cutoffs
    share their upper bits."""
    signed: _Floats
    """Shape (256,): the value of every byte; the upper half is negative."""


def table_of(values: ArrayLike) -> Table:
    """Make a table.

    Args:
        values: The positive values, shape (K,), 2 <= K <= 128, from 0 up.

    Raises:
        ConfigError: There are too few or too many, the first is not 0, one is not finite, or they are not sorted.
    """
    table = np.asarray(values, dtype=np.float32)
    exact = table.astype(np.float64)
    return table_with(table, (exact[1:] + exact[:-1]) / 2)  # exact: float64 holds the sum of two float32


def table_with(values: ArrayLike, limits: ArrayLike) -> Table:
    """Make a table of which not the nearest value is taken.

    Args:
        values: As for ``table_of``.
        limits: Shape (K - 1,), not falling: numbers above ``limits[i]`` become ``values[i + 1]`` or more.

    Raises:
        ConfigError: As ``table_of``, or the limits are not as many as said or fall.
    """
    table, exact = np.asarray(values, dtype=np.float32), np.asarray(limits, dtype=np.float64)
    if table.ndim != 1 or not 2 <= len(table) <= POSITIVE:
        raise ConfigError(f"table must hold 2 to {POSITIVE} values in a row, got shape {table.shape}")
    if not np.isfinite(table).all() or table[0] != 0:
        raise ConfigError(f"table must begin at 0 and be finite, got {table[0]} to {table[-1]}")
    steps = np.flatnonzero(np.diff(table) <= 0)
    if len(steps):
        i = int(steps[0])
        raise ConfigError(f"table must be sorted, each value above the last, got {table[i + 1]} after {table[i]}")
    if exact.shape != (len(table) - 1,) or not (np.diff(exact) >= 0).all():
        raise ConfigError(f"limits must be {len(table) - 1} that do not fall, got {exact.shape}")
    cutoffs = _above(exact)
    signed = np.zeros(2 * POSITIVE, dtype=np.float32)
    signed[: len(table)], signed[POSITIVE : POSITIVE + len(table)] = table, -table
    return Table(table, cutoffs, _lookup(cutoffs), signed)


@lru_cache(maxsize=256)
def values_of(spec: Compression) -> Table:
    """The table of an 8-bit type.

    Raises:
        ConfigError: The type has no table.
    """
    scale = 10.0 ** spec["offset"] if "offset" in dict(spec.parameters) else 1.0
    if spec.name == "dynamic-tree":
        return table_of(_dynamic(spec["top"]) * scale)
    if spec.name == "static-tree":
        return table_of(_static(spec["top"]) * scale)
    if spec.name == "linear":
        return table_of(np.arange(POSITIVE) / (POSITIVE - 1) * scale)
    if spec.name == "mantissa":
        return table_of(_mantissa() * scale)
    raise ConfigError(f"data type must have a table, got {spec.name!r}")


def _leaves(bits: int, top: float) -> NDArray[np.float64]:
    """Middles of the intervals that so many bisections of [0.1, top] end in."""
    middles: NDArray[np.float64] = (np.arange(2**bits) + 0.5) / 2**bits
    return LOWEST + (top - LOWEST) * middles


def _dynamic(top: float) -> NDArray[np.float64]:
    """As many decades down as zeros lead; a flag bit; the bits left, 6 to 0, bisect; all zeros is zero."""
    decades = [_leaves(6 - zeros, top) / 10.0**zeros for zeros in range(7)]
    return np.concatenate([[0.0], *reversed(decades)])


def _static(top: float) -> NDArray[np.float64]:
    """Three bits of decimal exponent, four that bisect; the smallest leaf stands for zero."""
    values = np.concatenate([_leaves(4, top) / 10.0**exponent for exponent in reversed(range(8))])
    values[0] = 0.0
    return values


def _mantissa() -> NDArray[np.float64]:
    """Three bits of decimal exponent, four of mantissa from 0 to 15; several of the 128 are the same number."""
    tenths = {(digit, exponent) for digit in range(16) for exponent in range(1, 9)}
    return np.unique(np.array([round(digit * 10.0 ** (8 - exponent)) for digit, exponent in tenths]) / 1e8)


def _above(limits: NDArray[np.float64]) -> _Floats:
    """The smallest float32 above each."""
    nearest = limits.astype(np.float32)
    return np.where(nearest > limits, nearest, np.nextafter(nearest, np.float32(np.inf)))


def _lookup(cutoffs: _Floats) -> NDArray[np.int32] | None:
    bits = cutoffs.view(np.int32)  # positive floats are in the order of their bits
    first = np.arange(2**15, dtype=np.int64) << 16
    below = np.searchsorted(bits, first, side="right")
    above = np.searchsorted(bits, first + 0xFFFF, side="right")
    if np.any(above - below > 1):
        return None
    padded = np.append(bits, 0)
    turn = np.where(above > below, padded[below] & 0xFFFF, 0x10000)
    return (below << 17 | turn).astype(np.int32)
