"""Compressed sparse rows: the entries of all rows one after another, with the place where each row starts."""

import numpy as np

from hwprofiles.aliases import Ints

__all__ = ["row_owners"]


def row_owners(start: Ints) -> Ints:
    """Return the row that each entry of compressed sparse rows belongs to.

    Rows of 2, 0 and 3 entries have ``start = [0, 2, 2, 5]``, and their entries belong to ``[0, 0, 2, 2, 2]``.

    Args:
        start: Index of the first entry of each row, then the number of entries, shape (rows + 1,).

    Returns:
        Row of each entry, shape (entries,).
    """
    owners: Ints = np.repeat(np.arange(len(start) - 1), np.diff(start))
    return owners
