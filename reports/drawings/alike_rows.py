"""Rows that look alike: devices or links with the same tasks at the same times."""

import numpy as np

from groundwork.array_types import Floats, Ints


def alike_owners(owner: Ints, code: Ints, values: Floats, slack: Floats, count: int) -> Ints:
    """Return for each owner the first owner that has the same entries.

    Entries are the same where their codes are, and no value differs by more than its slack: times of equal ranks differ
    by the rounding of floating-point numbers.

    Args:
        owner: Owner of each entry, shape (E,), from 0 to ``count`` - 1.
        code: What an entry is, shape (E,).
        values: Numbers of each entry, such as start and duration, shape (E, V).
        slack: Largest difference of each number, shape (V,).
        count: Number of owners.

    Returns:
        First owner alike, shape (count,); owners without entries are alike.
    """
    order = np.lexsort((*values.T[::-1], code, owner))
    bounds = np.searchsorted(owner[order], np.arange(count + 1))
    sums = np.bincount(owner, values[:, 0], minlength=count)
    code, values = code[order], values[order]
    first, known = np.arange(count), dict[bytes, list[int]]()
    for i in range(count):
        rows = slice(bounds[i], bounds[i + 1])
        others = known.setdefault(code[rows].tobytes(), [])
        near = np.abs(sums[others] - sums[i]) <= slack[0] * max(rows.stop - rows.start, 1)
        for other in np.array(others, dtype=np.int64)[near].tolist():
            theirs = values[bounds[other] : bounds[other + 1]]
            if (np.abs(values[rows] - theirs) <= slack).all():
                first[i] = other
                break
        else:
            others.append(i)
    return first
