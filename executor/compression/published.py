"""8-bit types of the implementation that the paper links to, used for its table of errors alone.

They differ from ours in two ways.  The **trees** are bisected first at 0.45 and not in the middle of [0.1, 1], as
the text's examples require: 0.236719 and 0.23125 for 0.2345678 and 0.000019 for 0.0000234: the dynamic tree has the
leaves of six to one bisections and both 0 and 1, the static tree the points of four bisections and 0.1 itself.  The
**search** compares with every second value of the sorted table and then with the one between two of these; a number
below that one goes to the nearer of its neighbours, a number above it always goes down to it.

Source: Dettmers, "8-Bit Approximations for Parallelism in Deep Learning", ICLR 2016, Section 3.1, the examples of the
dynamic tree, Section 3.2 and the implementation that its footnote names.
"""

import numpy as np
from numpy.typing import NDArray

from executor.compression.registry import TableType
from executor.compression.tables import POSITIVE, Table, table_with
from groundwork.errors import ConfigError
from planner.compression.data_types import compression

_Values = NDArray[np.float64]

LOW, ROOT, HIGH = 0.1, 0.45, 1.0
SMALLEST, LARGEST = 1.5e-6, 0.990703
"""Limits of the dynamic tree: smaller magnitudes become 0, larger ones 1."""
PUBLISHED = ("dynamic-tree", "linear", "static-tree", "mantissa")


def published_type(name: str, offset: int = 0) -> TableType:
    """Return a type with the implementation's table and search; its messages are as long as ours.

    Args:
        name: One of ``PUBLISHED``.
        offset: Offset of the exponent, for the types that do not normalise.

    Raises:
        ConfigError: The name is not one of them.

    Source:
        Dettmers, "8-Bit Approximations for Parallelism in Deep Learning", ICLR 2016, the implementation that the
        footnote of Section 3.2 names.
    """
    if name not in PUBLISHED:
        raise ConfigError(f"published type must be one of {', '.join(PUBLISHED)}, got {name!r}")
    if name == "dynamic-tree":
        return TableType(compression(name), _dynamic())
    if name == "linear":
        return TableType(compression(name), _searched(np.arange(POSITIVE) / (POSITIVE - 1)))
    digits = _static_digits() if name == "static-tree" else np.arange(16) / 10
    values = np.concatenate([digits * 10.0 ** (offset - exponent) for exponent in range(8)])
    same = np.sort(values.astype(np.float32)).astype(np.float64)  # 10 tenths are 1 of the decade above
    return TableType(compression(name, offset=offset), _searched(same))


def _bisected(bits: int) -> _Values:
    """Return the middles of 2**bits intervals of [0.1, 1], of which half lie below 0.45."""
    half = 2 ** (bits - 1)
    middles = (np.arange(half) + 0.5) / half
    return np.concatenate([LOW + (ROOT - LOW) * middles, ROOT + (HIGH - ROOT) * middles])


def _static_digits() -> _Values:
    eighths = np.arange(8) / 8
    return np.concatenate([LOW + (ROOT - LOW) * eighths, ROOT + (HIGH - ROOT) * eighths])


def _dynamic() -> Table:
    leaves = np.sort(np.concatenate([_bisected(bits) / 10.0 ** (6 - bits) for bits in range(6, 0, -1)]))
    limits = np.concatenate([[SMALLEST], _limits(leaves, compared=1)[:-1], [LARGEST]])
    return table_with(np.concatenate([[0.0], leaves[:-1], [1.0]]), limits)  # the largest leaf is never reached


def _searched(values: _Values) -> Table:
    """Return the table of the implementation's search in sorted values, which may repeat; the smallest becomes 0."""
    distinct = values[1:] > values[:-1]
    return table_with(np.append(0.0, values[1:][distinct]), _limits(values, compared=0)[distinct])


def _limits(values: _Values, *, compared: int) -> _Values:
    """Return for each value but the first the limit above which elements become that value.

    The search compares with every second value c, then with the value v between two of these.  An element below v
    becomes the nearer of its neighbours, an element between v and the next c becomes v::

        values      c1             v2      c3             v4      c5
        limits      c1      (c1+v2)/2      c3      (c3+v4)/2      c5

    Args:
        values: Sorted values.
        compared: Parity of the indices of the values that the search compares with.
    """
    middles = (values[1:] + values[:-1]) / 2
    limits = np.where(np.arange(1, len(values)) % 2 == compared, values[1:], middles)
    if compared:
        limits[0] = middles[0]  # the search compares with no value below the first
    return limits
