"""Readers of views, which make no layer: they rewrite the axes of a value."""

from dataclasses import replace
from typing import Any

from planner.importing.axes import Atom, Axes, IndivisibleViewError, RowPlaces, TracedValue, merged, reshaped, size_of
from planner.importing.constants import Fixed, fill_value, filled
from planner.importing.reader import GraphReader, handles
from planner.tracing.trace import TraceNode


@handles(
    "view reshape _unsafe_view flatten unflatten squeeze unsqueeze view_as reshape_as unsqueeze_copy squeeze_copy "
    "view_copy"
)
def reshape(reader: GraphReader, node: TraceNode) -> TracedValue | Fixed:
    """Read a view with other sizes."""
    value, shape = reader.operand(node), node.results[0].shape
    if not isinstance(value, RowPlaces):
        return reader.view(node, value, shape)
    try:
        return replace(value, axes=reshaped(value.axes, shape))
    except IndivisibleViewError:  # whole numbers, of which nothing more is known
        return Fixed(shape)


@handles("permute", "permute_copy")
def permute(reader: GraphReader, node: TraceNode) -> TracedValue:
    """Read a view with its axes in another order."""
    value: TracedValue = reader.operand(node)
    return replace(value, axes=tuple(value.axes[d] for d in node.arguments["dims"]))


@handles("transpose", "t", "swapaxes", "swapdims", "numpy_T", "mT", "transpose_copy", "t_copy", "movedim")
def transpose(reader: GraphReader, node: TraceNode) -> TracedValue:
    """Read a view with two axes exchanged, or one moved."""
    value: TracedValue = reader.operand(node)
    rank = len(value.axes)
    order = list(range(rank))
    if node.operation == "movedim":
        source, target = (
            [d % rank for d in numbers_of(reader.argument(node, name))] for name in ("source", "destination")
        )
        rest = [d for d in order if d not in source]
        places = dict(zip(target, source, strict=True))
        order = [places[i] if i in places else rest.pop(0) for i in range(rank)]
    else:
        dims = [reader.argument(node, name) for name in ("dim0", "dim1", "axis0", "axis1") if name in node.arguments]
        one, two = dims or ((0, 1) if node.operation == "t" and rank == 2 else (-2, -1) if rank > 1 else (0, 0))
        order[one % rank], order[two % rank] = order[two % rank], order[one % rank]
    return replace(value, axes=tuple(value.axes[d] for d in order))


@handles(
    "contiguous clone alias to _to_copy type_as lift_fresh_copy lift_fresh float positive view_as_real requires_grad_ "
    "conj resolve_conj resolve_neg _conj real autocast wrap_with_autocast identity alias_copy expand_copy_same "
    "bernoulli as_subclass"
)
def same(reader: GraphReader, node: TraceNode) -> Any:
    """Read an operation that changes neither elements nor sizes."""
    value = reader.operand(node)
    if isinstance(value, TracedValue) and node.results and value.shape != node.results[0].shape:
        return reader.unknown(node, "it changes sizes")
    return value


@handles("expand", "expand_as", "broadcast_to", "expand_copy")
def expand(reader: GraphReader, node: TraceNode) -> Any:
    """Read a view that repeats axes of one element."""
    value, shape = reader.operand(node), node.results[0].shape
    if isinstance(value, Fixed):  # to the sizes of data
        return reader.fixed(replace(node, arguments={"self": node.arguments["self"], "size": shape}), "expand")
    axes: Axes = tuple(() for _ in range(len(shape) - len(value.axes))) + value.axes
    sizes = [size_of(axis) for axis in axes]
    repeats = tuple(
        axis if size == wanted else (Atom(None, wanted),) for axis, size, wanted in zip(axes, sizes, shape, strict=True)
    )
    return replace(value, axes=repeats)


@handles("repeat", "tile")
def repeat(reader: GraphReader, node: TraceNode) -> TracedValue:
    """Read repetitions of whole axes."""
    value, shape = reader.operand(node), node.results[0].shape
    axes: Axes = tuple(() for _ in range(len(shape) - len(value.axes))) + value.axes
    counts = [wanted // max(size_of(axis), 1) for axis, wanted in zip(axes, shape, strict=True)]
    repeated = [(Atom(None, n), *axis) if n > 1 else axis for axis, n in zip(axes, counts, strict=True)]
    return TracedValue(value.layer, tuple(merged(axis) for axis in repeated))


@handles("repeat_interleave")
def repeat_interleave(reader: GraphReader, node: TraceNode) -> Any:
    """Read repetitions of each element of an axis."""
    value, count, dim = reader.operand(node), reader.argument(node, "repeats"), reader.argument(node, "dim")
    if not isinstance(count, int) or dim is None:
        return reader.unknown(node, "its repetitions are not one number of one axis")
    axes = list(value.axes)
    axes[dim % len(axes)] = merged((*axes[dim % len(axes)], Atom(None, count)))
    return TracedValue(value.layer, tuple(axes))


@handles("channel_shuffle", "native_channel_shuffle")
def channel_shuffle(reader: GraphReader, node: TraceNode) -> TracedValue:
    """Read a transposition of groups and channels within them."""
    value, groups = reader.operand(node), reader.argument(node, "groups")
    b, c, *rest = value.shape
    divided = reader.view(node, value, (b, groups, c // groups, *rest))
    axes = list(divided.axes)
    axes[1], axes[2] = axes[2], axes[1]
    return reader.view(node, TracedValue(divided.layer, tuple(axes)), (b, c, *rest))


@handles("pixel_shuffle", "pixel_unshuffle")
def pixel_shuffle(reader: GraphReader, node: TraceNode) -> TracedValue:
    """Read channels that become positions, or positions that become channels."""
    value, shape = reader.operand(node), node.results[0].shape
    b, c, h, w = value.shape
    if node.operation == "pixel_shuffle":
        r = reader.argument(node, "upscale_factor")
        divided = reader.view(node, value, (b, c // r**2, r, r, h, w)).axes
        order = (0, 1, 4, 2, 5, 3)
    else:
        r = reader.argument(node, "downscale_factor")
        divided = reader.view(node, value, (b, c, h // r, r, w // r, r)).axes
        order = (0, 1, 3, 5, 2, 4)
    return reader.view(node, TracedValue(value.layer, tuple(divided[d] for d in order)), shape)


@handles("getitem")
def getitem(reader: GraphReader, node: TraceNode) -> Any:
    """Read one of several results."""
    items, index = reader.resolved(node.arguments["0"]), node.arguments["1"]
    return items[index] if isinstance(items, list) and index < len(items) else Fixed(())


@handles("results")
def results(reader: GraphReader, node: TraceNode) -> Any:
    """Read the results of a graph within the graph."""
    return [reader.resolved(each) for each in node.arguments.values()]


@handles(
    "zeros_like ones_like empty_like full_like rand_like randn_like randint_like new_zeros new_ones new_full "
    "new_empty size numel"
)
def constant(reader: GraphReader, node: TraceNode) -> Fixed:
    """Read a tensor that has another's sizes only."""
    if not node.results:
        return Fixed(())
    value = fill_value(node.operation, node.arguments)
    if value is None:
        return Fixed(node.results[0].shape)
    return filled(node.results[0].shape, value, floating=node.results[0].floating)


def numbers_of(each: Any) -> list[int]:
    """Return an argument that is one number or several as a list."""
    return list(each) if isinstance(each, list | tuple) else [each]
