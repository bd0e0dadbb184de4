"""Compressed sparse rows: the entries of all rows one after another, with the index of each row's first entry."""

import numpy as np

from groundwork.array_types import Ints


def row_owners(start: Ints) -> Ints:
    """Return the row that each entry of compressed sparse rows belongs to.

    Rows of 2, 0 and 3 entries have ``start = [0, 2, 2, 5]``, and their entries belong to ``[0, 0, 2, 2, 2]``.

    Args:
        start: Index of the first entry of each row, then the number of entries, shape (rows + 1,).
    """
    owners: Ints = np.repeat(np.arange(len(start) - 1), np.diff(start))
    return owners


def row_entries(first: Ints, counts: Ints) -> Ints:
    """Return the indices of all entries of some rows, row after row.

    Rows that begin at ``first = [7, 0]`` with ``counts = [3, 2]`` entries have the entries ``[7, 8, 9, 0, 1]``.

    Args:
        first: Index of the first entry of each row, shape (rows,).
        counts: Number of entries of each row, shape (rows,).
    """
    # Entry k of the result is k minus the entries of the rows before it, plus the beginning of its own row.
    shift = np.repeat(first - np.cumsum(counts) + counts, counts)
    entries: Ints = shift + np.arange(len(shift))
    return entries


def ranks_in_runs(values: Ints) -> Ints:
    """Return the place of each value among its equals, which follow each other: 0 1 0 0 1 2 of 7 7 3 4 4 4."""
    start = np.flatnonzero(np.diff(values, prepend=values[:1] - 1))
    return np.arange(len(values)) - np.repeat(start, np.diff(np.append(start, len(values))))


def distinct(values: Ints) -> Ints:
    """Return integers in order, each once: faster than ``numpy.unique`` where most differ."""
    values = np.sort(values)
    return values[np.diff(values, prepend=values[:1] - 1) > 0]


def counted(values: Ints, size: int) -> tuple[Ints, Ints]:
    """Return integers in order, each once, and how often each occurs.

    Args:
        values: Integers from 0 on.
        size: Number above all of them: a table of so many is faster than sorting where most occur.
    """
    if size > 4 * len(values):
        found, counts = np.unique(values, return_counts=True)
        return found, counts
    table = np.bincount(values, minlength=size)
    found = np.flatnonzero(table)
    return found, table[found]


def numbered(values: Ints, size: int) -> tuple[Ints, Ints]:
    """Return the first place of each different value, in their order, and the number of each value among these.

    Args:
        values: Integers from 0 on.
        size: Number above all of them: a table of so many is faster than sorting where many are equal.
    """
    if size > 4 * len(values):
        _, first, number = np.unique(values, return_index=True, return_inverse=True)
        return first, number
    place = np.full(size, -1, dtype=np.int64)
    place[values[::-1]] = np.arange(len(values))[::-1]  # the first of equal ones is written last
    found = np.flatnonzero(place >= 0)
    first = place[found]
    place[found] = np.arange(len(found))
    return first, place[values]


def grouped_rows(row: Ints, rows: int) -> tuple[Ints, Ints]:
    """Return the entries of each row, given the row of each entry; those of one row keep their order.

    Entries in rows ``[2, 0, 2]`` of three rows have ``start = [0, 1, 1, 3]`` and ``entries = [1, 0, 2]``.

    Args:
        row: Row of each entry, 0 .. ``rows`` - 1, shape (entries,).
        rows: Number of rows.

    Returns:
        ``start``, shape (rows + 1,), and ``entries``: row ``i`` is ``entries[start[i]:start[i + 1]]``.
    """
    # NumPy sorts integers of 16 bits by their digits, ten times as fast as longer ones by comparisons.
    keys = row.astype(np.uint16) if rows <= np.iinfo(np.uint16).max + 1 else row
    start = np.zeros(rows + 1, dtype=np.int64)
    np.cumsum(np.bincount(row, minlength=rows), out=start[1:])
    return start, np.argsort(keys, kind="stable")
