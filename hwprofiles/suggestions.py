"""Suggestions of the nearest known name, for messages about unknown names."""

import difflib
from collections.abc import Iterable

__all__ = ["did_you_mean"]


def did_you_mean(name: object, known: Iterable[str], *, cutoff: float = 0.6) -> str:
    """Return ``; did you mean 'NAME'?`` with the nearest known name, or an empty string where none is near.

    Args:
        name: Name that was given.
        known: Known names.
        cutoff: Least similarity of a name that is suggested, 0 to 1.
    """
    near = difflib.get_close_matches(str(name), known, n=1, cutoff=cutoff)
    return f"; did you mean {near[0]!r}?" if near and near[0] != name else ""
