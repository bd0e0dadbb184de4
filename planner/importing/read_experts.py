"""Readers of routing: places of the largest values of a tensor, and rows that are taken or added up by them.

A network of experts sends rows to them, and adds up what comes back::

    scores   [sample, expert, row]     how much each expert is to have of each row
    places = scores.topk(capacity)     [sample, expert, slot]: the rows that each expert takes
    x.gather(1, places)                [sample, expert, slot, channel]: dispatch
    zeros.scatter_add(1, places, y)    [sample, row, channel]: combine

Places are whole numbers, and no layer makes them: dispatch and combine find them again from the scores.
"""

from dataclasses import replace
from typing import Any

from planner.importing.axes import Atom, RowPlaces, TracedValue, reshaped, size_of
from planner.importing.constants import Fixed
from planner.importing.placement import Tag
from planner.importing.read_products import tags_of
from planner.importing.read_statistics import reduction
from planner.importing.reader import GraphReader, Pair, handles
from planner.operations.rearrangement import Rearrangement
from planner.tracing.trace import TraceNode

_PLACE_READERS_WORDS = """
    getitem view reshape flatten unflatten squeeze unsqueeze permute transpose expand expand_as contiguous clone gather
    scatter_add
"""
PLACE_READERS = frozenset(_PLACE_READERS_WORDS.split())
"""Operations that read places, or views of them; to all others they are whole numbers of which nothing is known."""


@handles("topk")
def largest(reader: GraphReader, node: TraceNode) -> Any:
    """Read the largest values along an axis, and their places."""
    scores, largest = reader.argument(node, "self"), reader.argument(node, "largest", True)
    in_order = replace(node, arguments={**node.arguments, "sorted": True})  # as their places are found again
    values = reduction(reader, in_order)
    dim = reader.argument(node, "dim", -1) % len(scores.axes)
    if not largest or dim != len(scores.axes) - 1 or dim == 0 or not isinstance(values, TracedValue):
        return values
    sizes = (*scores.shape[1:-1], node.results[1].shape[-1])
    atoms = [(Atom(f"{scores.layer}:{i}", size),) if size > 1 else () for i, size in enumerate(sizes)]
    whole = (scores.axes[0], *atoms)
    return [values, RowPlaces(scores.layer, whole, scores, whole)]


@handles("gather")
def dispatch(reader: GraphReader, node: TraceNode) -> TracedValue:
    """Read rows at the places of largest values."""
    value, places, dim = (reader.argument(node, name) for name in ("self", "index", "dim"))
    if (
        not isinstance(value, TracedValue)
        or dim != 1
        or not isinstance(places, RowPlaces)
        or not places.chosen_by(value)
    ):
        return reader.unknown(node, "its rows are not those of the largest values of a tensor")
    scores = places.scores
    kept = [tags_of(axis) for axis in scores.axes[:-1]]
    last = scores.axes[-1][-1] if scores.axes[-1] else Atom("new", 1)
    slot = [Tag(size_of(places.whole[-1]), str(last.dim), last.stride)]
    used = {tag.dim for row in (*kept, slot) for tag in row}
    inner = [tags_of(axis, "other " if used & {a.dim for a in axis} else "") for axis in value.axes[2:]]
    pairs: list[Pair] = list(zip(value.axes[0], kept[0], strict=True))
    pairs += [(a, None) for a in value.axes[1]]
    pairs += [pair for axis, row in zip(value.axes[2:], inner, strict=True) for pair in zip(axis, row, strict=True)]
    by: list[Pair] = [(a, None) for a in scores.axes[-1]]
    by += [pair for axis, row in zip(scores.axes, kept, strict=False) for pair in zip(axis, row, strict=True)]
    result = reader.mapped(node, Rearrangement, [*kept, slot, *inner], [(value, pairs), (scores, by)], kind="dispatch")
    result = reader.computes(result, "dispatch", "gather", [("self", value), ("scores", scores)], _places_of(places))
    taken = len(scores.axes)
    rows = tuple(atom for axis in result.axes[1:taken] for atom in axis)
    return replace(result, axes=(result.axes[0], rows, *result.axes[taken:]))


@handles("scatter_add")
def combine(reader: GraphReader, node: TraceNode) -> TracedValue:
    """Read sums of rows that are added at the places of largest values."""
    base, places, dim, value = (reader.argument(node, name) for name in ("self", "index", "dim", "src"))
    zero = isinstance(base, Fixed) and base.call == "full" and dict(base.arguments).get("fill_value") == 0
    known = isinstance(places, RowPlaces) and isinstance(value, TracedValue) and places.shape == value.shape
    rows = (*value.shape[:1], size_of(places.scores.axes[-1]), *value.shape[2:]) if known else ()
    if not zero or dim != 1 or base.shape != rows or not places.chosen_by(value):
        return reader.unknown(node, "it does not add rows to zeros at the places of largest values of a tensor")
    scores = places.scores
    sample, row = tags_of(scores.axes[0]), tags_of(scores.axes[-1])
    free = all(tag.dim != "channel" for tag in row)
    inner = [
        [Tag(a.size, "channel" if free else "new", -len(axis) * i - j) for j, a in enumerate(axis)]
        for i, axis in enumerate(value.axes[2:])
    ]
    pairs: list[Pair] = list(zip(value.axes[0], sample, strict=True))
    pairs += [(a, None) for a in value.axes[1]]
    pairs += [pair for axis, tags in zip(value.axes[2:], inner, strict=True) for pair in zip(axis, tags, strict=True)]
    by: list[Pair] = list(zip(scores.axes[0], sample, strict=True))
    by += [(a, None) for axis in scores.axes[1:] for a in axis]
    result = reader.mapped(node, Rearrangement, [sample, row, *inner], [(value, pairs), (scores, by)], kind="combine")
    sizes = (*value.shape[:1], *(size_of(axis) for axis in places.whole[1:]), *value.shape[2:])
    apart = replace(value, axes=reshaped(value.axes, sizes))
    return reader.computes(result, "combine", "scatter_add", [("src", apart), ("scores", scores)], _places_of(places))


def _places_of(places: RowPlaces) -> dict[str, int]:
    """Return the argument of a step that finds places again: how many."""
    return {"k": size_of(places.whole[-1])}
