"""Readers of elementwise operations, with broadcasting."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from planner.importing.axes import Axes, TracedValue, common_factors, size_of
from planner.importing.constants import Fixed
from planner.importing.placement import Tag
from planner.importing.read_products import followed, tags_of
from planner.importing.reader import GraphReader, Pair, Trained, handles
from planner.operations.computation import POINTWISE
from planner.operations.dropout import Dropout
from planner.operations.joining import Add
from planner.operations.streaming import Elementwise
from planner.tracing.trace import TraceNode

FUSED_ACTIVATIONS = ("relu", "leaky_relu", "sigmoid", "tanh")
"""Activations that follow other operations without a layer of their own."""
_SAVES_OUTPUT_WORDS = """
    relu sigmoid tanh exp sqrt rsqrt hardtanh relu6 leaky_relu clamp clamp_min elu reciprocal
"""
_SAVES_OUTPUT = frozenset(_SAVES_OUTPUT_WORDS.split())
_SAVES_NOTHING_WORDS = """
    add sub rsub neg masked_fill where clone dropout floor round sign eq ne gt lt ge le logical_not logical_and
    logical_or ones_like zeros_like detach
"""
_SAVES_NOTHING = frozenset(_SAVES_NOTHING_WORDS.split())
NAMES = (*sorted(POINTWISE), "rrelu", "softcap", "copy")
"""Operations that are elementwise whatever PyTorch's tags say; the last three are not computed element by element."""


@handles(*NAMES)
def elementwise(reader: GraphReader, node: TraceNode) -> TracedValue:
    """Read an operation on elements of the same index, broadcast where an operand has one element of an axis."""
    operands = [
        each for given in node.arguments.values() if isinstance(each := reader.resolved(given), TracedValue | Fixed)
    ]
    values = [each for each in operands if isinstance(each, TracedValue)]
    fixed = [each for each in operands if isinstance(each, Fixed) and each.keys]
    shape, name = node.results[0].shape, node.operation
    if name == "copy":
        values = values[-1:]
    if (
        name == "add"
        and len(values) == 2
        and not fixed
        and _same(reader, values)
        and node.arguments.get("alpha", 1) == 1
    ):
        return reader.emit(node, Add(), values, axes=values[0].axes)
    axes = [tuple(() for _ in range(len(shape) - len(v.axes))) + v.axes for v in values]
    tags, pairs = broadcast(axes, shape)
    saves = "output" if name in _SAVES_OUTPUT else "nothing" if name in _SAVES_NOTHING else "inputs"
    sloped = name == "prelu" and [t.dim for t in tags[1]] == ["channel"] and any(f.shape[0] > 1 for f in fixed)
    trained = fixed_weights(reader, node, fixed, tags[:2] if name == "prelu" else tags)
    result = reader.mapped(
        node, Elementwise, tags, list(zip(values, pairs, strict=True)), trained=trained, steps=(name,), saves=saves
    )
    if name == "copy":
        return result
    channels = {"weight": 0 if sloped else None} if name == "prelu" else None
    form = "dropout" if "dropout" in name else "pointwise"
    return reader.computes(result, form, name, reader.operands_of(node), node.arguments, channels=channels)


@handles("detach", "detach_copy")
def detached(reader: GraphReader, node: TraceNode) -> Any:
    """Read a tensor that passes no gradient on: a layer of its own, but for what has no gradient anyway."""
    value = reader.argument(node, "self")
    if value.layer.startswith("input:") or not node.results[0].floating:
        return value
    return elementwise(reader, replace(node, operation="detach"))


def fixed_weights(
    reader: GraphReader, node: TraceNode, fixed: Sequence[Fixed], tags: Sequence[Sequence[Tag]]
) -> Trained:
    """Return the parameters among operands, split with the channels where the operand's own axis is the channels'."""
    rows = []
    keys = list(dict.fromkeys((key, each.shape) for each in fixed for key in each.keys))
    for i, (key, shape) in enumerate(keys):
        sizes = dict(zip(range(-len(shape), 0), shape, strict=True))
        along = [j for j, size in sizes.items() if size > 1 and [t.dim for t in tags[len(tags) + j]] == ["channel"]]
        rows.append((f"weight{i or ''}", key, bool(along)))
    return reader.parameters(reader.name_of(node), rows)


def _same(reader: GraphReader, values: Sequence[TracedValue]) -> bool:
    """Return whether two values are equal views of layers with equal outputs, all of them in full."""
    one, two = values
    whole = sum(len(axis) for axis in one.axes) <= len(reader.shapes[one.layer].dims)
    counted = all(a.dim is not None for axis in one.axes for a in axis)
    full = size_of([a for axis in one.axes for a in axis]) == reader.shapes[one.layer].elements
    return one.axes == two.axes and reader.shapes[one.layer] == reader.shapes[two.layer] and whole and counted and full


def broadcast(axes: Sequence[Axes], shape: Sequence[int]) -> tuple[list[list[Tag]], list[list[Pair]]]:
    """Return the tags of the result of operands of one rank, and the pairs of each operand."""
    order = sorted(range(len(axes)), key=lambda k: -size_of([a for axis in axes[k] for a in axis if a.dim]))
    tags: list[list[Tag]] = []
    pairs: list[list[Pair]] = [[] for _ in axes]
    used: dict[str, int] = {}
    for i, size in enumerate(shape):
        full = [k for k in order if size_of(axes[k][i]) == size and (size == 1 or all(a.dim for a in axes[k][i]))]
        full = full or [k for k in order if size_of(axes[k][i]) == size]
        if size == 1 or not full:
            tags.append([Tag(size, f"new{i}")] if size > 1 else [])
            for k, each in enumerate(axes):
                pairs[k] += [(a, None) for a in each[i]]
            continue
        chosen = list(axes[full[0]][i])
        for k in full[1:]:
            chosen = [a for a, _ in common_factors(chosen, axes[k][i]) or [(a, a) for a in chosen]]
        row = tags_of(chosen)
        # two operands may both have a dimension of this name, one each in another axis of the result
        row = [
            Tag(t.size, t.dim if used.setdefault(t.dim, full[0]) == full[0] else f"{t.dim} of {full[0]}", t.stride)
            for t in row
        ]
        tags.append(row)
        for k, each in enumerate(axes):
            matched = common_factors(chosen, each[i]) if size_of(each[i]) == size else None
            pairs[k] += followed(each[i], matched, row)
    return tags, pairs


@handles("dropout", "alpha_dropout", "feature_dropout", "dropout1d", "dropout2d", "native_dropout")
def dropout(reader: GraphReader, node: TraceNode) -> Any:
    """Read dropout; none where it drops nothing."""
    value = reader.operand(node)
    share = float(reader.argument(node, "p", 0.0))
    trains = reader.argument(node, "train", True)
    if isinstance(value, TracedValue) and trains and 0 < share < 1:
        whole = all(a.dim for axis in value.axes for a in axis)
        if whole and size_of([a for axis in value.axes for a in axis]) == reader.shapes[value.layer].elements:
            value = reader.emit(node, Dropout(dropout=share), [value], axes=value.axes)
        else:
            value = elementwise(reader, node)
    return value


def written(
    reader: GraphReader, node: TraceNode, base: TracedValue | Fixed, part: TracedValue, shape: Sequence[int]
) -> TracedValue:
    """Return a tensor with a slice overwritten: it reads the old one, and all of a sample of the new."""
    if isinstance(base, TracedValue):
        tags, (pairs,) = broadcast([base.axes], shape)
        inputs = [(base, pairs)]
    else:
        names = ["sample", "channel", *(f"position{i}" for i in range(len(shape) - 2))]
        tags, inputs = [[Tag(size, dim)] for size, dim in zip(shape, names, strict=False)], []
    sample = next((t for row in tags for t in row if t.dim == "sample"), None)
    inputs.append((part, [(a, sample if a.dim == "sample" else None) for axis in part.axes for a in axis]))
    return reader.mapped(node, Elementwise, tags, inputs, steps=("copy",), saves="nothing")
