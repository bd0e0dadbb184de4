"""Axes of a tensor in terms of the dimensions of the layer that made it: views divide, merge and transpose them.

An axis is a list of atoms.  An atom is a factor of one dimension: of a channel dimension of 768 = 12 x 64, the atom of
12 has stride 64 and the atom of 64 stride 1.  After ``view(B, L, 12, 64).transpose(1, 2)`` the axes of a tensor are::

    [sample B]  [channel 12, stride 64]  [length L]  [channel 64, stride 1]

A view never makes a layer: it only rewrites this list.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass


class IndivisibleViewError(Exception):
    """A view divides a tensor across the borders of its dimensions, as 6 x 4 into 8 x 3."""


@dataclass(frozen=True, slots=True)
class Atom:
    """A factor of a dimension."""

    dim: str | None
    """Dimension; None for a repetition, in which all indices are the same element."""
    size: int
    stride: int = 1
    """Distance of neighbours in the dimension."""


Axes = tuple[tuple[Atom, ...], ...]


@dataclass(frozen=True, slots=True)
class TracedValue:
    """A tensor of the program: a view of a layer's output."""

    layer: str
    """Layer that made it; ``input:`` and a name for data."""
    axes: Axes

    @property
    def shape(self) -> tuple[int, ...]:
        """Sizes of the axes."""
        return tuple(map(size_of, self.axes))


@dataclass(frozen=True, slots=True)
class RowPlaces(TracedValue):
    """A view of the places of the largest values along the last axis of a tensor."""

    scores: TracedValue
    """The tensor."""
    whole: Axes
    """Axes of the places, an atom each: those of the scores, and the number of places last."""

    def chosen_by(self, value: TracedValue) -> bool:
        """Return whether they choose rows along axis 1 of a tensor, the same ones for all of its further axes."""
        sample, row, *others = self.axes
        places = tuple(atom for axis in self.whole[1:] for atom in axis)
        repeated = all(atom.dim is None for axis in others for atom in axis)
        fits = sample == self.whole[0] == value.axes[0] and self.shape[2:] == value.shape[2:]
        return repeated and fits and row == places


def size_of(axis: Iterable[Atom]) -> int:
    """Return the size of an axis."""
    return math.prod(atom.size for atom in axis)


def _split(atom: Atom, inner: int) -> tuple[Atom, Atom]:
    """Divide an atom into an outer and an inner one of the given size."""
    return Atom(atom.dim, atom.size // inner, atom.stride * inner), Atom(atom.dim, inner, atom.stride)


def merged(atoms: Iterable[Atom]) -> tuple[Atom, ...]:
    """Return atoms without those of size 1, neighbours that continue each other joined."""
    row: list[Atom] = []
    for atom in atoms:
        if atom.size == 1:
            continue
        last = row[-1] if row else None
        if last and last.dim == atom.dim and (atom.dim is None or last.stride == atom.size * atom.stride):
            row[-1] = Atom(atom.dim, last.size * atom.size, atom.stride)
        else:
            row.append(atom)
    return tuple(row)


def reshaped(axes: Axes, shape: Sequence[int]) -> Axes:
    """Return the axes of a view with other sizes.

    Raises:
        IndivisibleViewError: A new axis would begin or end within an atom, at no whole fraction of it.
    """
    rest = list(merged(atom for axis in axes for atom in axis))
    result: list[tuple[Atom, ...]] = []
    for size in shape:
        axis: list[Atom] = []
        while size > 1:
            if not rest:
                raise IndivisibleViewError
            atom = rest.pop(0)
            if size % atom.size == 0:
                axis.append(atom)
                size //= atom.size
            elif atom.size % size == 0:
                outer, inner = _split(atom, atom.size // size)
                axis.append(outer)
                rest.insert(0, inner)
                size = 1
            else:
                raise IndivisibleViewError
        result.append(merged(axis))
    return tuple(result)


def common_factors(first: Sequence[Atom], second: Sequence[Atom]) -> list[tuple[Atom, Atom]] | None:
    """Return two axes of one size as pairs of atoms of the same sizes; None where their factors do not fit."""
    one, two, pairs = list(first), list(second), list[tuple[Atom, Atom]]()
    while one and two:
        a, b = one.pop(), two.pop()  # from the inside
        if a.size > b.size:
            if a.size % b.size:
                return None
            outer, a = _split(a, b.size)
            one.append(outer)
        elif b.size > a.size:
            if b.size % a.size:
                return None
            outer, b = _split(b, a.size)
            two.append(outer)
        pairs.append((a, b))
    return None if one or two else pairs[::-1]
