"""The boundary between candidates that hold and candidates that fail, with few evaluations.

Candidates are in an order in which, once one holds, all later ones should.  They are tried at doubling distances until
one holds, then by bisection.  Whether the order is as it should be is checked on every candidate that was tried: if the
measured values are not monotone, all candidates before the boundary are tried as well.
"""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

_MOST_SCANNED = 64
"""Candidates that are tried beside the bisection where the values are not monotone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Boundary:
    """What a search for the first candidate that holds has found."""

    first: int | None
    """Position of the first candidate that holds; None where none does."""
    tried: tuple[int, ...]
    """Positions that were tried, in order."""
    scanned: bool
    """True if the values were not monotone, so that candidates before the boundary were tried one by one."""
    complete: bool
    """False if they were too many to try all."""


def find_boundary(
    count: int, value: Callable[[int], float], holds: Callable[[int], bool], *, neighbours: int = 2
) -> Boundary:
    """Find the first candidate that holds.

    Args:
        count: Number of candidates.
        value: Returns the quantity of the candidate at a position, which should fall along the candidates; it is asked
            for once a position and may be slow.
        holds: Returns whether the candidate at a position, whose value was asked for, holds.
        neighbours: Candidates before the first one that are tried as well.
    """
    values: dict[int, float] = {}

    def check(at: int) -> bool:
        """Try a candidate."""
        if at not in values:
            values[at] = value(at)
        return holds(at)

    high = _bracket(count, check)
    first = None if high is None else _bisected(values, high, check)
    scanned, complete = False, True
    if first is not None and not all(
        after <= before + 1e-9 * abs(before) for before, after in pairwise([values[at] for at in sorted(values)])
    ):
        before = [at for at in range(first) if at not in values]
        scanned, complete = True, len(before) <= _MOST_SCANNED
        first = next((at for at in sorted({*before[:_MOST_SCANNED], *values}) if check(at)), first)
    last = count if first is None else first
    for at in range(max(last - neighbours, 0), min(last + 2, count)):
        check(at)
    return Boundary(first=first, tried=tuple(sorted(values)), scanned=scanned, complete=complete)


def _bracket(count: int, check: Callable[[int], bool]) -> int | None:
    """Return the first of the positions 0, 1, 3, 7, ..., and of the last one, that holds."""
    at = 0
    while True:
        if check(at):
            return at
        if at == count - 1:
            return None
        at = min(2 * at + 1, count - 1)


def _bisected(values: dict[int, float], high: int, check: Callable[[int], bool]) -> int:
    """Return the boundary between the last position tried before one that holds, and that one."""
    low = max((at for at in values if at < high), default=-1)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if check(middle) else (middle, high)
    return high
