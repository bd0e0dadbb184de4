"""Names one sequence after another, without a copy of those that are made on demand."""

from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate
from typing import overload


class JoinedNames(Sequence[str]):
    """The names of several sequences, as one.

    Args:
        parts: The sequences.
    """

    def __init__(self, *parts: Sequence[str]) -> None:
        self._parts = [part for part in parts if len(part)]
        self._first = [0, *accumulate(map(len, self._parts))]

    def __len__(self) -> int:
        return self._first[-1]

    @overload
    def __getitem__(self, index: int) -> str: ...

    @overload
    def __getitem__(self, index: slice) -> tuple[str, ...]: ...

    def __getitem__(self, index: int | slice) -> str | tuple[str, ...]:
        if isinstance(index, slice):
            return tuple(self[i] for i in range(*index.indices(len(self))))
        at = range(len(self))[index]
        part = bisect_right(self._first, at) - 1
        return self._parts[part][at - self._first[part]]
