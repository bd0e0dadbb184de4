"""Tables of the 8-bit types: the positive values that seven bits stand for, and the cutoffs between them.

Source: Dettmers, "8-Bit Approximations for Parallelism in Deep Learning", ICLR 2016, Sections 3.1 and 3.2.
"""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike, NDArray

from groundwork.errors import ConfigError
from planner.compression.data_types import Compression

_Floats = NDArray[np.float32]

POSITIVE = 128
"""Number of values that seven bits can stand for; the eighth bit is the sign."""
LOWEST = 0.1
"""Lower end of the interval that the trees bisect."""


@dataclass(frozen=True, slots=True, eq=False)
class Table:
    """Positive values in order, and arrays to find the nearest."""

    values: _Floats
    """Shape (K,), K <= 128, from 0 up; the lower seven bits of a compressed element are an index into it."""
    cutoffs: _Floats
    """Shape (K - 1,): smallest float32 that becomes ``values[i + 1]``; where the nearest value is taken, an element
    half-way between two becomes the lower."""
    lookup: NDArray[np.int32] | None
    """Shape (32768,), by the upper 16 bits of a positive float32: the index of the first element that begins so, times
    2**17, plus the lower 16 bits from which the next index holds (2**16 where none does).  None where two cutoffs
    share their upper bits.  With a cutoff of 0x3F004000 between indices 7 and 8::

        upper bits     index << 17 | lower bits of the cutoff
        0x3EFF             7       |  0x10000                   all elements that begin so become 7
        0x3F00             7       |   0x4000                   7, and 8 from 0x3F004000 up
        0x3F01             8       |  0x10000
    """
    signed: _Floats
    """Shape (256,): the signed value of every byte; the upper half is negative."""


def table_of(values: ArrayLike) -> Table:
    """Make a table in which every element becomes the nearest value.

    Args:
        values: The positive values, shape (K,), 2 <= K <= 128, from 0 up.

    Raises:
        ConfigError: There are too few or too many, the first is not 0, one is not finite, or they are not sorted.
    """
    table = np.asarray(values, dtype=np.float32)
    exact = table.astype(np.float64)
    return table_with(table, (exact[1:] + exact[:-1]) / 2)  # exact: float64 holds the sum of two float32


def table_with(values: ArrayLike, limits: ArrayLike) -> Table:
    """Make a table with limits of its own between its values.

    Args:
        values: As for ``table_of``.
        limits: Shape (K - 1,), not falling: elements above ``limits[i]`` become ``values[i + 1]`` or more.

    Raises:
        ConfigError: As for ``table_of``, or the limits have another shape or fall.
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
    # The smallest float32 above each limit.
    nearest = exact.astype(np.float32)
    cutoffs = np.where(nearest > exact, nearest, np.nextafter(nearest, np.float32(np.inf)))
    signed = np.zeros(2 * POSITIVE, dtype=np.float32)
    signed[: len(table)], signed[POSITIVE : POSITIVE + len(table)] = table, -table
    return Table(table, cutoffs, _lookup(cutoffs), signed)


@lru_cache(maxsize=256)
def values_of(spec: Compression) -> Table:
    """Return the table of an 8-bit type.

    Raises:
        ConfigError: The type has no table.

    Source:
        Dettmers, "8-Bit Approximations for Parallelism in Deep Learning", ICLR 2016, Section 3.1.
    """
    scale = 10.0 ** spec["offset"] if "offset" in dict(spec.parameters) else 1.0
    if spec.name == "dynamic-tree":
        return table_of(_dynamic(spec["top"]) * scale)
    if spec.name == "static-tree":
        return table_of(_static(spec["top"]) * scale)
    if spec.name == "linear":
        return table_of(np.arange(POSITIVE) / (POSITIVE - 1) * scale)
    if spec.name == "mantissa":
        # Three bits of decimal exponent and four of mantissa; several of the 128 values are equal.
        tenths = {(digit, exponent) for digit in range(16) for exponent in range(1, 9)}
        return table_of(
            np.unique(np.array([round(digit * 10.0 ** (8 - exponent)) for digit, exponent in tenths]) / 1e8) * scale
        )
    raise ConfigError(f"data type must have a table, got {spec.name!r}")


def _leaves(bits: int, top: float) -> NDArray[np.float64]:
    """Return the middles of the intervals into which ``bits`` bisections divide [0.1, top]."""
    middles: NDArray[np.float64] = (np.arange(2**bits) + 0.5) / 2**bits
    return LOWEST + (top - LOWEST) * middles


def _dynamic(top: float) -> NDArray[np.float64]:
    """Return the values of the dynamic tree: leading zeros count decades, a flag bit ends them, the rest bisect.

    ::

        1 b b b b b b     64 values in [0.1, top]
        0 1 b b b b b     32 values a decade below
        0 0 1 b b b b     16 values two decades below
        0 0 0 0 0 0 0     zero
    """
    decades = [_leaves(6 - zeros, top) / 10.0**zeros for zeros in range(7)]
    return np.concatenate([[0.0], *reversed(decades)])


def _static(top: float) -> NDArray[np.float64]:
    """Return the values of the static tree: three bits of decimal exponent, four that bisect; the smallest is zero."""
    values = np.concatenate([_leaves(4, top) / 10.0**exponent for exponent in reversed(range(8))])
    values[0] = 0.0
    return values


def _lookup(cutoffs: _Floats) -> NDArray[np.int32] | None:
    """Return ``Table.lookup``."""
    bits = cutoffs.view(np.int32)  # positive floats are in the order of their bits
    first = np.arange(2**15, dtype=np.int64) << 16
    # cutoffs up to the first and up to the last element with the same upper bits
    below = np.searchsorted(bits, first, side="right")
    above = np.searchsorted(bits, first + 0xFFFF, side="right")
    if np.any(above - below > 1):
        return None
    padded = np.append(bits, 0)
    cutoff = np.where(above > below, padded[below] & 0xFFFF, 0x10000)
    return (below << 17 | cutoff).astype(np.int32)
