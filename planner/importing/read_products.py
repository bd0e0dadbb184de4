"""Readers of products: fully connected layers, matrix products, einsum, attention, recurrent layers."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from planner.importing.axes import Atom, TracedValue, common_factors, size_of
from planner.importing.constants import Fixed
from planner.importing.placement import Tag
from planner.importing.read_convolutions import weight_keys
from planner.importing.reader import GraphReader, Pair, handles
from planner.importing.recording import channel_axis
from planner.operations.linear import Linear
from planner.operations.products import Attention, TensorProduct
from planner.tracing.trace import TraceNode


def tags_of(axis: Sequence[Atom], prefix: str = "") -> list[Tag]:
    """Return tags for the atoms of an axis, in dimensions of their own if ``prefix`` is given."""
    return [Tag(a.size, prefix + (a.dim or f"repeat{id(a)}"), a.stride) for a in axis]


def followed(axis: Sequence[Atom], matched: Sequence[tuple[Atom, Atom]] | None, tags: Sequence[Tag]) -> list[Pair]:
    """Return the pairs of an axis whose factors, matched with another's, follow tags; all of it is read otherwise."""
    if not matched:
        return [(atom, None) for atom in axis]
    return [(atom, tag) for (_, atom), tag in zip(matched, tags, strict=True)]


def new_tag(size: int, axis: Sequence[Atom], kept: Sequence[Tag]) -> Tag:
    """Return the tag of new features in place of an axis that is summed over.

    They take the channels where these are free, else the place of the axis in its dimension.
    """
    dims = {tag.dim for tag in kept}
    if "channel" not in dims:
        return Tag(size, "channel", 0)
    last = axis[-1] if axis else None
    if last and last.dim and last.dim != "sample" and (last.dim == "channel" or last.dim not in dims):
        return Tag(size, last.dim, last.stride)
    return Tag(size, "new", 0)


@handles("linear")
def linear(reader: GraphReader, node: TraceNode) -> TracedValue:
    """Read a product of the last axis with a trained matrix."""
    value, weight = reader.argument(node, "input"), reader.argument(node, "weight")
    if isinstance(value, Fixed) or not isinstance(weight, Fixed):
        a, b = value, weight
        rank = len(a.shape)
        labels = [f"x{i}" for i in range(rank - 1)]
        return contraction(reader, node, a, [*labels, "k"], b, ["n", "k"], [*labels, "n"])
    keys = weight_keys(reader, node)
    fixed = [weight, reader.argument(node, "bias")]
    name = reader.name_of(node)
    if keys is not None and not any(key in reader.owners for key in keys.values()) and _flat(reader, value):
        reader.owners |= {key: (name, each) for each, key in keys.items()}
        return reader.emit(node, Linear(channels=weight.shape[0], bias="bias" in keys), [value], weights=keys)
    return trained_product(reader, node, value, node.results[0].shape[-1], keys, fixed, ("n", "k"))


def _flat(reader: GraphReader, value: TracedValue) -> bool:
    """Return whether a value is samples by all the rest of its layer's output, in order."""
    shape = reader.shapes[value.layer]
    rest = [Atom(dim, size) for dim, size in zip(shape.dims[1:], shape.sizes[1:], strict=True) if size > 1]
    sample = [Atom("sample", reader.batch)] if reader.batch > 1 else []
    return len(value.axes) == 2 and list(value.axes[0]) == sample and list(value.axes[1]) == rest


def trained_product(
    reader: GraphReader,
    node: TraceNode,
    value: TracedValue,
    features: int,
    keys: dict[str, str] | None,
    fixed: Sequence[Any],
    labels: tuple[str, str],
) -> TracedValue:
    """Add a product of the last axis of a value with a trained matrix.

    Args:
        reader: State.
        node: The operation.
        value: What it reads.
        features: Size of the new last axis.
        keys: Keys of weight and bias; None: they are computed from others.
        fixed: Weight and bias, the latter perhaps None.
        labels: Order of the weight's axes: ``n`` are the new features, ``k`` are summed over.
    """
    kept = [tags_of(axis) for axis in value.axes[:-1]]
    flat = [tag for row in kept for tag in row]
    new = new_tag(features, value.axes[-1], flat)
    split = new.dim == "channel" and all(tag.dim != "channel" for tag in flat)
    pairs: list[Pair] = [(a, None) for a in value.axes[-1]]
    pairs += [pair for axis, row in zip(value.axes, kept, strict=False) for pair in zip(axis, row, strict=True)]
    if keys is not None:
        trained = reader.parameters(reader.name_of(node), [(name, key, split) for name, key in keys.items()])
    else:
        trained = reader.fixed_parameters(node, fixed, split=split)
    result = reader.mapped(
        node,
        TensorProduct,
        [*kept, [new]],
        [(value, pairs)],
        kind="matrix_product",
        depth=size_of(value.axes[-1]),
        trained=trained,
    )
    rows = [f"x{i}" for i in range(len(value.axes) - 1)]
    operands = [("one", value), *((n, f) for n, f in zip(("two", "bias"), fixed, strict=False) if f is not None)]
    whole = channel_axis(result.axes, reader.layers[result.layer].output, 1) == 0
    arguments = {"first": [*rows, "k"], "second": list(labels), "out": [*rows, "n"]}
    channels = {"two": labels.index("n"), "bias": 0} if whole else {}
    return reader.computes(result, "contract", "einsum", operands, arguments, channels=channels)


@handles("addmm", "addmv", "baddbmm")
def added_product(reader: GraphReader, node: TraceNode) -> Any:
    """Read a product with something added to it."""
    one, two = (reader.argument(node, name) for name in _NAMES[node.operation])
    added = reader.argument(node, "self")
    if isinstance(one, TracedValue) and isinstance(two, Fixed):
        keys = {name: each.keys[0] for name, each in (("weight", two), ("bias", added)) if len(each.keys) == 1}
        whole = keys if len(keys) == 2 else None
        plain = node.arguments.get("alpha", 1) == node.arguments.get("beta", 1) == 1 and len(added.shape) == 1
        given = added if plain else added.unrecorded()
        return trained_product(reader, node, one, node.results[0].shape[-1], whole, [two, given], ("k", "n"))
    return batched_product(reader, node)


_NAMES = {
    "addmm": ("mat1", "mat2"),
    "addmv": ("mat", "vec"),
    "baddbmm": ("batch1", "batch2"),
    "mm": ("self", "mat2"),
    "bmm": ("self", "mat2"),
    "matmul": ("self", "other"),
    "mv": ("self", "vec"),
    "dot": ("self", "tensor"),
}


@handles("matmul", "bmm", "mm", "mv", "dot")
def batched_product(reader: GraphReader, node: TraceNode) -> Any:
    """Read a product of matrices, or of batches of them."""
    one, two = (reader.argument(node, name) for name in _NAMES[node.operation])
    a, b = len(one.shape), len(two.shape)
    if isinstance(two, Fixed) and b == 2 and isinstance(one, TracedValue):
        keys = {"weight": two.keys[0]} if len(two.keys) == 1 else None
        return trained_product(reader, node, one, two.shape[-1], keys, [two], ("k", "n"))
    first = [f"b{i}" for i in range(a - 2, 0, -1)] + (["m"] if a > 1 else []) + ["k"]
    second = [f"b{i}" for i in range(b - 2, 0, -1)] + ["k"] + (["n"] if b > 1 else [])
    batch = max(first[:-2], second[:-2], key=len)
    out = [*batch, *(["m"] if a > 1 else []), *(["n"] if b > 1 else [])]
    return contraction(reader, node, one, first, two, second, out)


@handles("einsum")
def einsum(reader: GraphReader, node: TraceNode) -> TracedValue:
    """Read a product given by Einstein's summation."""
    equation, operands = reader.argument(node, "equation"), reader.argument(node, "tensors")
    terms, arrow, out = equation.replace(" ", "").partition("->")
    names = terms.split(",")
    if len(names) != 2 or "." in equation or not arrow or any(len(set(name)) < len(name) for name in names):
        return reader.unknown(node, f"einsum {equation!r} is not a product of two tensors")
    return contraction(reader, node, operands[0], list(names[0]), operands[1], list(names[1]), list(out))


def contraction(
    reader: GraphReader,
    node: TraceNode,
    one: Any,
    first: Sequence[str],
    two: Any,
    second: Sequence[str],
    out: Sequence[str],
) -> TracedValue:
    """Add a product of two tensors whose axes are labelled; labels that the result has not are summed over."""
    if isinstance(one, Fixed):
        one, first, two, second = two, second, one, first
    sizes = {
        label: size
        for label, size in [*zip(first, one.shape, strict=True), *zip(second, two.shape, strict=True)]
        if size > 1
    }
    mine = dict(zip(first, one.axes, strict=True))
    theirs = dict(zip(second, two.axes, strict=True)) if isinstance(two, TracedValue) else {}
    tags, pairs, other = dict[str, list[Tag]](), list[Pair](), list[Pair]()
    for label in (label for label in first if label in out):
        axis, match = list(mine[label]), theirs.get(label, ())
        if size_of(axis) == 1 and size_of(match) > 1:
            continue  # broadcast: the other tensor's axis counts
        matched = common_factors(axis, match) if size_of(match) > 1 else None
        axis = [a for a, _ in matched] if matched else axis
        tags[label] = tags_of(axis)
        pairs += zip(axis, tags[label], strict=True)
        other += followed(match, matched, tags[label])
    kept = [tag for row in tags.values() for tag in row]
    new: list[Tag] = []
    for label in (label for label in second if label in out and label not in tags):
        if any(a.dim == "sample" for a in theirs.get(label, ())):
            raise reader.problem(node, "mixes samples: each sample's result must depend on that sample alone")
        row = _foreign(theirs.get(label, ()), sizes.get(label, 1), [*kept, *new], last=label == out[-1])
        tags[label], new = row, [*new, *row]
        other += zip(theirs.get(label, ()), row, strict=False)
    pairs += [(a, None) for label in first if label not in out for a in mine[label]]
    other += [(b, None) for label in second if label not in out for b in theirs.get(label, ())]
    depth = math.prod(sizes.get(label, 1) for label in {*first, *second} - {*out})
    inputs = [(one, pairs), *([(two, other)] if isinstance(two, TracedValue) else [])]
    matrices = _matrices_axis(two, first, second, tags)
    trained = reader.fixed_parameters(node, [two], split=matrices is not None)
    columns = 0 if trained and matrices is None else sizes.get(out[-1], 1)
    result = reader.mapped(
        node,
        TensorProduct,
        [tags.get(label, []) for label in out],
        inputs,
        trained=trained,
        columns=columns,
        depth=depth,
        kind="matrix_product" if trained else "batched_product",
    )
    if node.operation in ("addmm", "addmv", "baddbmm"):  # something is added, which is not written down
        return result
    arguments = {"first": list(first), "second": list(second), "out": list(out)}
    split = {"two": matrices}
    return reader.computes(result, "contract", "einsum", [("one", one), ("two", two)], arguments, channels=split)


def _matrices_axis(
    two: Any, first: Sequence[str], second: Sequence[str], tags: Mapping[str, Sequence[Tag]]
) -> int | None:
    """Return the axis of a trained tensor that has a matrix for each channel of a product; None where none has."""
    channels = [label for label, row in tags.items() for tag in row if tag.dim == "channel"]
    shared = len(channels) == 1 and channels[0] in first and channels[0] in second
    return second.index(channels[0]) if shared and isinstance(two, Fixed) and two.is_trained else None


def _foreign(axis: Sequence[Atom], size: int, kept: Sequence[Tag], *, last: bool) -> list[Tag]:
    """Return tags of an axis of the second tensor, in dimensions that the first has not."""
    if not axis:
        return [Tag(size, "channel" if all(t.dim != "channel" for t in kept) else "new", 0)] if size > 1 else []
    dims = {tag.dim for tag in kept}
    if last and all(a.dim == "channel" for a in axis):  # channels within heads
        return [Tag(a.size, "channel", -i) for i, a in enumerate(axis)]
    if len(axis) == 1 and axis[0].dim and axis[0].dim not in dims:
        return tags_of(axis)
    return tags_of(axis, "other ")


@handles("scaled_dot_product_attention")
def attention(reader: GraphReader, node: TraceNode) -> TracedValue:
    """Read attention: of each head and query over all keys that share its other axes."""
    query, key, value = (reader.argument(node, name) for name in ("query", "key", "value"))
    if not all(isinstance(each, TracedValue) for each in (query, key, value)):
        return reader.unknown(node, "queries, keys or values do not depend on the data")
    grouped = bool(reader.argument(node, "enable_gqa", False))
    tags, pairs = list[list[Tag]](), {"query": list[Pair](), "key": list[Pair](), "value": list[Pair]()}
    for i, axis in enumerate(query.axes[:-2]):
        row = list(axis)
        others = {"key": key.axes[i], "value": value.axes[i]}
        if grouped and size_of(others["key"]) != size_of(axis):
            others = {name: (*each, Atom(None, size_of(axis) // size_of(each))) for name, each in others.items()}
        for each in others.values():
            matched = common_factors(row, each)
            row = [a for a, _ in matched] if matched else row
        tags.append(tags_of(row))
        pairs["query"] += zip(row, tags[-1], strict=True)
        for name, each in others.items():
            pairs[name] += followed(each, common_factors(row, each), tags[-1])
    tags.append(tags_of(query.axes[-2]))
    pairs["query"] += zip(query.axes[-2], tags[-1], strict=True)
    pairs["query"] += [(a, None) for a in query.axes[-1]]
    pairs["key"] += [(a, None) for axis in key.axes[-2:] for a in axis]
    pairs["value"] += [(a, None) for a in value.axes[-2]]
    flat = [tag for row in tags for tag in row]
    width = size_of(value.axes[-1])
    free = all(tag.dim != "channel" for tag in flat) or {a.dim for a in value.axes[-1]} == {"channel"}
    last = [Tag(a.size, "channel" if free else "new", -i) for i, a in enumerate(value.axes[-1])]
    pairs["value"] += zip(value.axes[-1], last, strict=True)
    tags.append(last)
    inputs = [(query, pairs["query"]), (key, pairs["key"]), (value, pairs["value"])]
    bias = reader.argument(node, "attn_mask")
    if isinstance(bias, TracedValue):
        inputs.append((bias, _bias_pairs(bias, tags)))
    fixed = [bias] if isinstance(bias, Fixed) and bias.keys else []
    result = reader.mapped(
        node,
        Attention,
        tags,
        inputs,
        trained=reader.fixed_parameters(node, fixed),
        keys=size_of(key.axes[-2]),
        key_channels=size_of(query.axes[-1]),
        value_channels=width,
        causal=bool(reader.argument(node, "is_causal", False)),
    )
    return reader.computes(result, "attention", node.operation, reader.operands_of(node), node.arguments, channels={})


def _bias_pairs(bias: TracedValue, tags: Sequence[Sequence[Tag]]) -> list[Pair]:
    """Return what is read of a bias of the weights of the positions: of batch and queries as tags say, of keys all."""
    pairs: list[Pair] = [(a, None) for a in bias.axes[-1]]
    rows = [(), *tags[:-1]] if len(bias.axes) > len(tags) else tags[len(tags) - len(bias.axes) : -1]
    for axis, row in zip(bias.axes[:-1], rows, strict=True):
        if size_of(axis) == math.prod(tag.size for tag in row) and len(axis) == len(row):
            pairs += zip(axis, row, strict=True)
        else:
            pairs += [(a, None) for a in axis]
    return pairs


@handles("lstm", "gru", "rnn_tanh", "rnn_relu")
def recurrence(reader: GraphReader, node: TraceNode) -> Any:
    """Read a recurrent layer: its steps follow one another, so only samples are split."""
    value, out = reader.argument(node, "input"), node.results[0].shape
    fixed = [each for each in reader.argument(node, "params", []) if isinstance(each, Fixed)]
    if not reader.argument(node, "batch_first", True) and any(a.dim == "sample" for a in value.axes[0]):
        raise reader.problem(node, "reads its steps from the first axis, in which the samples are; transpose its input")
    sample = Tag(reader.batch, "sample")
    tags = [
        [sample] if any(a.dim == "sample" for a in axis) else [Tag(size, "channel" if i == 2 else "length")]
        for i, (axis, size) in enumerate(zip(value.axes, out, strict=True))
    ]
    pairs: Sequence[Pair] = [(a, sample if a.dim == "sample" else None) for axis in value.axes for a in axis]
    shapes = [reader.parameter_shapes[key] for each in fixed for key in each.keys]
    matrices = sum(math.prod(shape) for shape in shapes if len(shape) == 2)
    depth = matrices * reader.batch * math.prod(out) / out[-1] / reader.batch / math.prod(out)
    trained = reader.fixed_parameters(node, fixed)
    result = reader.mapped(node, TensorProduct, tags, [(value, pairs)], kind="recurrence", depth=depth, trained=trained)
    layer = reader.layers[result.layer]
    reader.layers[result.layer] = replace(layer, splits=("sample",))
    reader.by_sample.append((result.layer, node.operation, "its steps follow one another"))
    return [result, *(Fixed(tensor.shape) for tensor in node.results[1:])]
