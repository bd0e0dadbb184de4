"""Entries by row: the same order from both sorts, for few rows and for more than 16 bits number."""

import numpy as np
import pytest

from groundwork.sparse_rows import grouped_rows


@pytest.mark.parametrize("rows", [1, 5, 65_536, 65_537, 100_000])
def test_entries_of_a_row_keep_their_order(rows):
    row = np.random.default_rng(0).integers(0, rows, 500)
    row[:2] = rows - 1, 0

    start, entries = grouped_rows(row, rows)

    expected = sorted(range(len(row)), key=lambda entry: row[entry])  # Python's sort is stable
    assert entries.tolist() == expected
    assert (start[0], start[-1], len(start)) == (0, len(row), rows + 1)
    assert all((row[entries[start[r] : start[r + 1]]] == r).all() for r in range(rows))


def test_no_entries():
    start, entries = grouped_rows(np.zeros(0, dtype=np.int64), 3)

    assert (start.tolist(), entries.tolist()) == ([0, 0, 0, 0], [])
