"""Dimensions of a new layer's output, and the maps from them to the dimensions of what it reads.

Tags stand for the atoms of a layer's output before its dimensions are known.  A tag that comes from an input keeps that
input's dimension; new ones take the channels, where those are free, or become a position.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from planner.graph.shapes import IntervalMap, Shape
from planner.importing.axes import Atom, Axes, merged
from planner.operations.checks import POSITIONS

_ORDER = ("length", "depth", "height", "width")


@dataclass(frozen=True, slots=True, eq=False)
class Tag:
    """An atom of an output; two tags are the same only if they are one object."""

    size: int
    dim: str
    """Dimension of the input that it comes from, ``channel`` or a name of a new position."""
    stride: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputLayout:
    """Dimensions of an output, and the atom of each tag."""

    shape: Shape
    axes: Axes
    atoms: Mapping[int, Atom]
    """By the identity of the tag."""


def layout_of(axes: Sequence[Sequence[Tag]]) -> OutputLayout:
    """Return the layout of an output whose axes hold these tags.

    Tags of one dimension are ordered by stride; more than three positions are merged from the innermost two on.
    """
    groups: dict[str, list[Tag]] = {}
    for tag in (tag for axis in axes for tag in axis):
        groups.setdefault(tag.dim, []).append(tag)
    for row in groups.values():
        row.sort(key=lambda tag: -tag.stride)
    positions = sorted(
        (dim for dim in groups if dim not in ("sample", "channel")),
        key=lambda dim: (_ORDER.index(dim) if dim in _ORDER else len(_ORDER), dim),
    )
    rows = [groups[dim] for dim in positions]
    while len(rows) > 3:
        rows[-2:] = [rows[-2] + rows[-1]]
    named = {"sample": groups.get("sample", []), "channel": groups.get("channel", [])}
    named |= dict(zip(POSITIONS[len(rows)], rows, strict=True))
    atoms: dict[int, Atom] = {}
    for dim, row in named.items():
        stride = 1
        for tag in reversed(row):
            atoms[id(tag)] = Atom(dim, tag.size, stride)
            stride *= tag.size
    sizes = tuple(math.prod(tag.size for tag in row) for row in named.values())
    view = tuple(merged(atoms[id(tag)] for tag in axis) for axis in axes)
    return OutputLayout(shape=Shape(tuple(named), sizes), axes=view, atoms=atoms)


def interval_maps(
    value: Shape,
    atoms: Sequence[tuple[Atom, Tag | int | None]],
    layout: OutputLayout,
    offsets: Mapping[str, int] | None = None,
) -> tuple[IntervalMap, ...]:
    """Return the maps of all dimensions of an input.

    Args:
        value: Shape of the input.
        atoms: Its atoms, each with the tag of the output that it follows; an index if only that one is read; None if
            all of it is.
        layout: The output.
        offsets: Index of each dimension of the output at which the input begins, where it is joined to others.
    """
    return tuple(
        _map(dim, size, atoms, layout, offsets or {}) for dim, size in zip(value.dims, value.sizes, strict=True)
    )


def _map(
    dim: str,
    size: int,
    atoms: Sequence[tuple[Atom, Tag | int | None]],
    layout: OutputLayout,
    offsets: Mapping[str, int],
) -> IntervalMap:
    """Return the map of one dimension.

    Its atoms, from the outermost on, are compared with those of the output's dimension that the first of them follows.
    As far as both agree, an interval of the one is an interval of the other, in groups of whatever is inside.
    """
    mine = sorted(((a, t) for a, t in atoms if a.dim == dim and a.size > 1), key=lambda row: -row[0].stride)
    offset = 0
    while mine and isinstance(mine[0][1], int):  # one index of the outermost atom: an offset into the dimension
        offset -= mine[0][1] * mine[0][0].stride
        mine = mine[1:]
    first = mine[0][1] if mine else None
    if not isinstance(first, Tag):
        return IntervalMap(dim=None)
    where = layout.atoms[id(first)].dim
    assert where is not None
    total = layout.shape.size(where)
    outer, inner_out, inner_in = total, total, mine[0][0].size * mine[0][0].stride
    for atom, tag in mine:
        if not isinstance(tag, Tag):
            break
        here = layout.atoms[id(tag)]
        if here.dim != where or here.size * here.stride != outer or atom.size * atom.stride != inner_in:
            break
        outer, inner_out, inner_in = here.stride, here.stride, atom.stride
    if inner_out == total:
        return IntervalMap(dim=None)
    shift = offsets.get(where, 0)
    if inner_out == inner_in == 1:
        return IntervalMap(dim=where, offset=offset + shift)
    return IntervalMap(dim=where, group_out=inner_out, group_in=inner_in, offset=offset, shift=shift)
