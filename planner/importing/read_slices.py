"""Readers of slices, joins, padding and shifts: elements in other places."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from planner.graph.shapes import IntervalMap
from planner.importing.axes import Atom, TracedValue, size_of
from planner.importing.constants import Fixed, unsqueezed
from planner.importing.placement import Tag, interval_maps, layout_of
from planner.importing.read_convolutions import pad_axes
from planner.importing.read_elementwise import broadcast, elementwise, fixed_weights
from planner.importing.read_products import tags_of
from planner.importing.read_views import numbers_of
from planner.importing.reader import GraphReader, Pair, handles
from planner.importing.recording import channel_axis
from planner.operations.joining import Concat
from planner.operations.rearrangement import Rearrangement
from planner.operations.streaming import Embedding
from planner.tracing.trace import TraceNode


def sliced(
    reader: GraphReader, node: TraceNode, value: TracedValue, axis: int, start: int, count: int, step: int = 1
) -> TracedValue:
    """Return ``count`` indices of an axis from ``start`` on, as a layer that copies nothing."""
    atoms, full = value.axes[axis], size_of(value.axes[axis])
    where = {"dim": axis, "start": start, "step": step}
    if count == full and step == 1:
        return value
    if not atoms or all(a.dim is None for a in atoms):  # repetitions: all indices are the same
        axes = list(value.axes)
        axes[axis] = (Atom(None, count),) if count > 1 else ()
        return TracedValue(value.layer, tuple(axes))
    tags: list[list[Tag]] = [tags_of(row) for row in value.axes]
    pairs: list[Pair] = [
        pair for i, row in enumerate(value.axes) for pair in zip(row, tags[i], strict=True) if i != axis
    ]
    maps: dict[str, IntervalMap] = {}
    inner = size_of(atoms[1:])
    first = atoms[0]
    dim = first.dim or "new"
    if step == 1 and start % inner == count % inner == 0 and first.dim:
        new = Tag(count // inner, dim, first.stride)
        tags[axis] = [new, *tags[axis][1:]]
        pairs += zip(atoms[1:], tags[axis][1:], strict=True)
        total = reader.shapes[value.layer].size(dim)
        if first.size * first.stride == total:  # an offset into the dimension, by whole indices of its outer atom
            if first.stride == 1:
                maps[dim] = IntervalMap(dim=str(id(new)), offset=-(start // inner))
            else:
                result = _outer_slice(reader, node, value, axis, start // inner, new, tags, pairs)
                return reader.computes(result, "take", "slice", [("self", value)], where)
    else:
        new = Tag(count, dim, atoms[-1].stride)
        tags[axis] = [new]
        if len(atoms) == 1 and first.dim and first.size == reader.shapes[value.layer].size(dim):
            maps[dim] = IntervalMap(dim=str(id(new)), stride=step, offset=-start)
    pairs += [(a, None) for a in atoms if all(a is not p[0] for p in pairs)]
    layout = layout_of(tags)
    reads = reader.maps_with(value, pairs, layout, maps)
    result = reader.laid_out(_named(node), Rearrangement, layout, [value], [reads], kind="slice")
    return reader.computes(result, "take", "slice", [("self", value)], where)


def _outer_slice(
    reader: GraphReader,
    node: TraceNode,
    value: TracedValue,
    axis: int,
    start: int,
    new: Tag,
    tags: Any,
    pairs: list[Pair],
) -> TracedValue:
    """Return a slice of the outer atom of a dimension whose inner atoms are kept."""
    first = value.axes[axis][0]
    layout = layout_of(tags)
    reads = interval_maps(reader.shapes[value.layer], [(first, new), *pairs], layout)
    dims = reader.shapes[value.layer].dims
    # the slice begins ``start`` outer indices later in the input
    moved = tuple(
        replace(each, offset=each.offset - start * first.stride) if dim == first.dim and each.dim else each
        for dim, each in zip(dims, reads, strict=True)
    )
    return reader.laid_out(_named(node), Rearrangement, layout, [value], [moved], kind="slice")


def _named(node: TraceNode) -> TraceNode:
    """Return the node under the name of a slice, whatever operation makes it."""
    return replace(node, operation="view") if node.operation in ("split", "chunk", "unbind") else node


@handles("slice", "narrow", "slice_copy")
def slice_(reader: GraphReader, node: TraceNode) -> TracedValue:
    """Read a slice of one axis."""
    value, dim = reader.operand(node), int(reader.argument(node, "dim", 0))
    axis, step = dim % len(value.axes), int(reader.argument(node, "step", 1))
    start, size = int(reader.argument(node, "start", 0)), value.shape[axis]
    start = min(start + size if start < 0 else start, size)
    return sliced(reader, node, value, axis, start, node.results[0].shape[axis], step)


@handles("select", "select_copy")
def select(reader: GraphReader, node: TraceNode) -> TracedValue:
    """Read one index of an axis."""
    value, dim = reader.operand(node), int(reader.argument(node, "dim", 0))
    return select_index(reader, node, value, dim % len(value.axes), int(reader.argument(node, "index", 0)))


def select_index(reader: GraphReader, node: TraceNode, value: TracedValue, axis: int, index: int) -> TracedValue:
    """Return one index of an axis, as a layer that copies nothing."""
    atoms, size = value.axes[axis], size_of(value.axes[axis])
    rest = [row for i, row in enumerate(value.axes) if i != axis]
    if all(a.dim is None for a in atoms):
        return TracedValue(value.layer, tuple(rest))
    index, pairs = index % size, list[Pair]()
    where = {"dim": axis, "index": index}
    for a in reversed(atoms):  # digits of the index
        pairs.append((a, index % a.size))
        index //= a.size
    tags = [tags_of(row) for row in rest]
    pairs += [pair for row, each in zip(rest, tags, strict=True) for pair in zip(row, each, strict=True)]
    result = reader.mapped(_named(node), Rearrangement, tags, [(value, pairs)], kind="slice")
    return reader.computes(result, "take", "select", [("self", value)], where)


@handles("split chunk split_with_sizes tensor_split unsafe_split unsafe_chunk split_copy hsplit vsplit")
def split(reader: GraphReader, node: TraceNode) -> Any:
    """Read a division of an axis into slices; each makes a layer where it is read."""
    value = reader.operand(node)
    axis = int(reader.argument(node, "dim", 0)) % len(value.axes)
    parts: list[Any] = []
    start = 0
    for tensor in node.results:
        parts.append(sliced(reader, node, value, axis, start, tensor.shape[axis]))
        start += tensor.shape[axis]
    return parts


@handles("unbind", "unbind_copy")
def unbind(reader: GraphReader, node: TraceNode) -> Any:
    """Read all indices of an axis, each a tensor."""
    value = reader.operand(node)
    axis = int(reader.argument(node, "dim", 0)) % len(value.axes)
    return [select_index(reader, node, value, axis, i) for i in range(value.shape[axis])]


@handles("cat", "concat", "concatenate", "stack", "hstack")
def concatenation(reader: GraphReader, node: TraceNode) -> TracedValue:
    """Read a concatenation, or a stack, of tensors."""
    operands = [each for each in reader.argument(node, "tensors") if each.shape != (0,)]
    rank = len(node.results[0].shape)
    dim = int(reader.argument(node, "dim", reader.argument(node, "axis", 0))) % rank
    if node.operation == "stack":
        operands = [
            TracedValue(v.layer, (*v.axes[:dim], (), *v.axes[dim:]))
            if isinstance(v, TracedValue)
            else unsqueezed(v, dim)
            for v in operands
        ]
    values = [v for v in operands if isinstance(v, TracedValue)]
    if len(operands) == 1:
        return values[0]
    if any(a.dim == "sample" for v in values for a in v.axes[dim]):
        return reader.unknown(node, "it joins samples")
    if dim == 1 and len(values) == len(operands):
        plain = [reader.plain(node, v) for v in values] if _all_plain(reader, values) else [None]
        if all(plain):
            return reader.emit(node, Concat(), [v for v in plain if v])
    return _joined(reader, node, operands, values, dim)


def _all_plain(reader: GraphReader, values: Sequence[TracedValue]) -> bool:
    """Return whether all values can be samples, channels and positions with no more than a view."""
    sample = (Atom("sample", reader.batch),) if reader.batch > 1 else ()
    image = all(v.axes[0] == sample and 2 <= len(v.axes) <= 5 for v in values)
    return image and any(reader.shapes[v.layer].sizes == v.shape for v in values)


def _joined(
    reader: GraphReader, node: TraceNode, operands: Sequence[Any], values: Sequence[TracedValue], dim: int
) -> TracedValue:
    """Add a concatenation along any axis, of layers and parameters."""
    shape = list(node.results[0].shape)
    others = [tuple(() if i == dim else axis for i, axis in enumerate(v.axes)) for v in values]
    tags, pairs = broadcast(others, [1 if i == dim else size for i, size in enumerate(shape)])
    used = {tag.dim for row in tags for tag in row}
    last = values[0].axes[dim][-1] if values[0].axes[dim] else None
    name = last.dim if last and last.dim and last.dim not in used else "channel" if "channel" not in used else "joined"
    new = Tag(shape[dim], name, 0)
    tags[dim] = [new]
    layout, begin, reads, rows = layout_of(tags), 0, [], iter(pairs)
    for operand in operands:
        if isinstance(operand, TracedValue):
            reads.append(_read_at(reader, operand, list(next(rows)), layout, dim, new, begin))
        begin += operand.shape[dim]
    fixed = [each for each in operands if isinstance(each, Fixed) and each.keys]
    trained = fixed_weights(reader, node, fixed, tags)
    result = reader.laid_out(node, Rearrangement, layout, list(values), reads, trained=trained, kind="join")
    place = channel_axis(result.axes, reader.layers[result.layer].output, len(shape))
    named = [(f"tensors.{i}", each) for i, each in enumerate(operands)]
    channels = {each: place if place != dim else None for each, _ in named}
    return reader.computes(result, "join", "cat", named, {"dim": dim}, channels=channels)


def _read_at(
    reader: GraphReader, value: TracedValue, pairs: list[Pair], layout: Any, dim: int, new: Tag, begin: int
) -> tuple[IntervalMap, ...]:
    """Return the maps of one input of a concatenation, which begins at an index of the new axis."""
    atoms, shape = value.axes[dim], reader.shapes[value.layer]
    reads = list(interval_maps(shape, [*pairs, *((a, None) for a in atoms)], layout))
    where = layout.atoms[id(new)].dim
    first = atoms[0] if atoms else None
    if (
        first
        and first.dim
        and layout.shape.size(where) == new.size
        and first.size * first.stride == shape.size(first.dim)
    ):
        inner, d = size_of(atoms[1:]), shape.dims.index(first.dim)
        reads[d] = IntervalMap(dim=where, shift=begin, group_out=inner, group_in=first.stride)
    return tuple(reads)


@handles(
    "pad constant_pad_nd reflection_pad1d reflection_pad2d replication_pad1d replication_pad2d replication_pad3d "
    "reflection_pad3d"
)
def pad(reader: GraphReader, node: TraceNode) -> TracedValue:
    """Read padding; negative padding cuts off."""
    value: TracedValue = reader.operand(node)
    widths = list(reader.argument(node, "pad", reader.argument(node, "padding")))
    rank = len(value.axes)
    pads = [(0, 0)] * rank
    for i in range(len(widths) // 2):
        pads[rank - 1 - i] = (int(widths[2 * i]), int(widths[2 * i + 1]))
    if not any(map(any, pads)):
        return value
    mode = str(reader.argument(node, "mode", "constant"))
    mode = {"refl": "reflect", "repl": "replicate"}.get(node.operation[:4], mode)
    fill = reader.argument(node, "value", 0.0)
    return pad_axes(reader, replace(node, operation="pad"), value, pads, mode=mode, fill=fill)


@handles("glu")
def glu(reader: GraphReader, node: TraceNode) -> Any:
    """Read a gated linear unit: the first half of an axis times the sigmoid of the second."""
    value, half = reader.operand(node), node.results[0].shape
    axis = int(reader.argument(node, "dim", -1)) % len(half)
    part = replace(node, operation="slice")
    first, second = (sliced(reader, part, value, axis, i * half[axis], half[axis]) for i in (0, 1))
    gate = elementwise(reader, replace(node, operation="sigmoid", arguments={"self": second}))
    return elementwise(reader, replace(node, operation="mul", arguments={"self": first, "other": gate}))


@handles("roll")
def roll(reader: GraphReader, node: TraceNode) -> TracedValue:
    """Read a rotation of axes."""
    value = reader.operand(node)
    shifts, dims = (numbers_of(reader.argument(node, name)) for name in ("shifts", "dims"))
    tags = [tags_of(axis) for axis in value.axes]
    maps, rotated = dict[str, IntervalMap](), set[int]()
    for shift, dim in zip(shifts, dims, strict=True):
        axis = value.axes[dim % len(value.axes)]
        rotated.add(dim % len(value.axes))
        if len(axis) == 1 and axis[0].dim and axis[0].size == reader.shapes[value.layer].size(axis[0].dim):
            maps[axis[0].dim] = IntervalMap(dim=str(id(tags[dim % len(value.axes)][0])), rotation=shift)
    pairs: list[Pair] = [
        (a, None if i in rotated else tag)
        for i, (axis, row) in enumerate(zip(value.axes, tags, strict=True))
        for a, tag in zip(axis, row, strict=True)
    ]
    layout = layout_of(tags)
    reads = reader.maps_with(value, pairs, layout, maps)
    result = reader.laid_out(node, Rearrangement, layout, [value], [reads], kind="rotation")
    where = {"shifts": shifts, "dims": [dim % len(value.axes) for dim in dims]}
    return reader.computes(result, "take", "roll", [("self", value)], where)


@handles("index", "index_select")
def index(reader: GraphReader, node: TraceNode) -> TracedValue:
    """Read rows of an axis in an order that does not depend on the data."""
    value = reader.operand(node)
    if node.operation == "index_select":
        indices: list[Any] = [None] * (int(reader.argument(node, "dim")) % len(value.axes))
        indices.append(reader.argument(node, "index"))
    else:
        indices = list(reader.argument(node, "indices"))
    if not isinstance(value, TracedValue):
        return reader.unknown(node, "it looks up rows of constants by data")
    chosen = [i for i, each in enumerate(indices) if each is not None]
    fixed = all(isinstance(indices[i], Fixed) for i in chosen)
    if chosen and chosen[-1] - chosen[0] >= len(chosen):
        raise reader.problem(node, "is not supported where its result has no axis of samples first (indices apart)")
    if not fixed or not chosen or any(a.dim == "sample" for i in chosen for a in value.axes[i]):
        return reader.unknown(node, "its indices depend on the data, or choose samples")
    out, first = node.results[0].shape, chosen[0]
    new = out[first : first + len(out) - (len(value.axes) - len(chosen))]
    before = [tags_of(axis) for axis in value.axes[:first]]
    behind = [tags_of(axis) for axis in value.axes[first + len(chosen) :]]
    last = next((a for i in chosen for a in reversed(value.axes[i]) if a.dim), None)
    dims = {tag.dim for row in (*before, *behind) for tag in row}
    name = last.dim if last and last.dim and last.dim not in dims else "new"
    inside = [[Tag(size, name, len(new) - i)] for i, size in enumerate(new)]
    pairs: list[Pair] = [(a, None) for i in chosen for a in value.axes[i]]
    kept = [*value.axes[:first], *value.axes[first + len(chosen) :]]
    pairs += [pair for axis, row in zip(kept, [*before, *behind], strict=True) for pair in zip(axis, row, strict=True)]
    result = reader.mapped(node, Rearrangement, [*before, *inside, *behind], [(value, pairs)], kind="gather")
    rows = [("self", value), *((f"indices.{i}", indices[i]) for i in chosen)]
    return reader.computes(result, "take", "index", rows, {"dims": chosen}, channels={})


@handles("embedding")
def embedding(reader: GraphReader, node: TraceNode) -> TracedValue:
    """Read rows of a trained table."""
    table, ids = reader.argument(node, "weight"), reader.argument(node, "indices")
    if not isinstance(table, Fixed) or not isinstance(ids, TracedValue):
        return reader.unknown(node, "its table depends on the data")
    if len(table.keys) != 1:
        return reader.unknown(node, "its table is computed from other parameters")
    tags = [tags_of(axis) for axis in ids.axes]
    free = all(t.dim != "channel" for row in tags for t in row)
    new = Tag(node.results[0].shape[-1], "channel" if free else "new", 0)
    pairs: list[Pair] = [pair for axis, row in zip(ids.axes, tags, strict=True) for pair in zip(axis, row, strict=True)]
    trained = reader.parameters(reader.name_of(node), [("weight", table.keys[0], free)])
    result = reader.mapped(node, Embedding, [*tags, [new]], [(ids, pairs)], trained=trained)
    rows, where = reader.operands_of(node), {"padding_idx": reader.argument(node, "padding_idx", -1)}
    return reader.computes(result, "embedding", "embedding", rows, where, channels={"weight": 1 if free else None})
