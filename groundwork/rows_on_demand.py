"""Sequences whose rows are made when they are asked for."""

from abc import abstractmethod
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import TypeVar, overload

_Row = TypeVar("_Row")


class RowsOnDemand(Sequence[_Row]):
    """A sequence that makes each of its rows; negative indices and slices are those of any sequence."""

    @abstractmethod
    def _row(self, index: int) -> _Row:
        """Return a row, counted from 0."""

    @overload
    def __getitem__(self, index: int) -> _Row: ...

    @overload
    def __getitem__(self, index: slice) -> tuple[_Row, ...]: ...

    def __getitem__(self, index: int | slice) -> _Row | tuple[_Row, ...]:
        if isinstance(index, slice):
            return tuple(self._row(i) for i in range(*index.indices(len(self))))
        return self._row(range(len(self))[index])

    def __iter__(self) -> Iterator[_Row]:
        return map(self._row, range(len(self)))


class JoinedNames(RowsOnDemand[str]):
    """The names of several sequences, one sequence after another."""

    def __init__(self, *parts: Sequence[str]) -> None:
        self._parts = [part for part in parts if len(part)]
        self._first = [0, *accumulate(map(len, self._parts))]

    def __len__(self) -> int:
        return self._first[-1]

    def _row(self, index: int) -> str:
        part = bisect_right(self._first, index) - 1
        return self._parts[part][index - self._first[part]]
