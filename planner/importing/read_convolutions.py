"""Readers of windows over positions: convolutions of all kinds, pooling, resampling."""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from planner.graph.shapes import IntervalMap, Shape
from planner.importing.axes import TracedValue
from planner.importing.constants import Fixed
from planner.importing.placement import Tag, layout_of
from planner.importing.reader import GraphReader, Trained, handles, keys_of
from planner.importing.recording import Given
from planner.operations.checks import POSITIONS
from planner.operations.convolution import Convolution
from planner.operations.pooling import GlobalPooling, Pooling
from planner.operations.products import TensorProduct
from planner.operations.rearrangement import Rearrangement
from planner.tracing.trace import TraceNode


def sizes(given: Any, rank: int, default: int = 1) -> tuple[int, ...]:
    """Return one size for each position."""
    if given is None or (isinstance(given, list | tuple) and not given):
        return (default,) * rank
    if isinstance(given, int):
        return (given,) * rank
    return tuple(given) if len(given) == rank else tuple(given) * rank


def weight_keys(reader: GraphReader, node: TraceNode) -> dict[str, str] | None:
    """Return the keys of weight and bias; None where one is not a parameter itself, but computed from it."""
    keys = {}
    for name in ("weight", "bias"):
        given = reader.argument(node, name)
        if given is None:
            continue
        if (
            not isinstance(given, Fixed)
            or len(given.keys) != 1
            or given.shape != reader.parameter_shapes[given.keys[0]]
            or not (given.is_trained or reader.trace.foreign)
        ):
            return None
        keys[name] = given.keys[0]
    return keys


@handles("conv1d", "conv2d", "conv3d")
def convolution(reader: GraphReader, node: TraceNode) -> Any:
    """Read a convolution, grouped or dilated."""
    given, weight = reader.argument(node, "input"), reader.argument(node, "weight")
    if not isinstance(weight, Fixed):
        return reader.unknown(node, "its weights depend on the data")
    rank = len(weight.shape) - 2
    stride, dilation = (sizes(reader.argument(node, name), rank) for name in ("stride", "dilation"))
    kernel, pad = weight.shape[2:], reader.argument(node, "padding", 0)
    value = reader.plain(node, given) if len(given.axes) == rank + 2 else None
    if value is None:
        return _merged_convolution(reader, node, given, weight)
    if isinstance(pad, str):
        value, pad = _same(reader, node, value, kernel, dilation) if pad == "same" else (value, 0)
    pads, groups = sizes(pad, rank, 0), int(reader.argument(node, "groups", 1))
    keys = weight_keys(reader, node)
    name = reader.name_of(node)
    shared = keys is not None and any(key in reader.owners for key in keys.values())
    if (
        keys is None
        or shared
        or "weight" not in keys
        or any(p > d * (k - 1) for p, d, k in zip(pads, dilation, kernel, strict=True))
    ):
        return _general(reader, node, value, weight, stride, pads, dilation, groups)
    operation = Convolution(
        channels=weight.shape[0],
        kernel=kernel,
        stride=stride,
        pad=pads,
        dilation=dilation,
        groups=groups,
        bias="bias" in keys,
        activation=None,
    )
    for each, key in keys.items():
        reader.owners[key] = (name, each)
    return reader.emit(node, operation, [value], weights=keys)


def _same(
    reader: GraphReader, node: TraceNode, value: TracedValue, kernel: Sequence[int], dilation: Sequence[int]
) -> tuple[TracedValue, tuple[int, ...]]:
    """Return the input and padding that keep the positions; an odd sum of both sides is pad_axes by a layer."""
    total = [d * (k - 1) for k, d in zip(kernel, dilation, strict=True)]
    if all(each % 2 == 0 for each in total):
        return value, tuple(each // 2 for each in total)
    left = [each // 2 for each in total]
    right = [each - first for each, first in zip(total, left, strict=True)]
    return pad_axes(reader, node, value, [(0, 0), (0, 0), *zip(left, right, strict=True)]), (0,) * len(total)


def pad_axes(
    reader: GraphReader,
    node: TraceNode,
    value: TracedValue,
    pads: Sequence[tuple[int, int]],
    *,
    mode: str = "constant",
    fill: float = 0.0,
) -> TracedValue:
    """Add padding before and behind each axis; but for constants it is read from anywhere in the axis."""
    tags, maps = [], dict[str, IntervalMap]()
    pairs: list[Any] = []
    for i, (axis, (left, right)) in enumerate(zip(value.axes, pads, strict=True)):
        if not left and not right:
            row = [Tag(a.size, a.dim or f"repeat{i}", a.stride) for a in axis]
            pairs += zip(axis, row, strict=True)
        else:
            dim = axis[-1].dim if axis and axis[-1].dim else f"pad{i}"
            row = [Tag(math.prod(a.size for a in axis) + left + right, dim, axis[-1].stride if axis else 1)]
            pairs += [(a, None) for a in axis]
            whole = len(axis) == 1 and axis[0].dim and axis[0].size == reader.shapes[value.layer].size(axis[0].dim)
            if whole and mode == "constant":
                maps[str(axis[0].dim)] = IntervalMap(dim=str(id(row[0])), offset=left)
        tags.append(row)
    layout = layout_of(tags)
    reads = reader.maps_with(value, pairs, layout, maps)
    result = reader.laid_out(node, Rearrangement, layout, [value], [reads], kind="pad")
    where = {"pads": [list(each) for each in pads], "mode": mode, "value": fill}
    return reader.computes(result, "pad", "pad", [("self", value)], where)


def _weights(reader: GraphReader, node: TraceNode) -> Trained:
    """Return the parameters that weight and bias are computed from."""
    fixed = [each for name in ("weight", "bias") if isinstance(each := reader.argument(node, name), Fixed)]
    direct = weight_keys(reader, node)
    if direct is not None:
        return reader.parameters(reader.name_of(node), [(name, key, True) for name, key in direct.items()])
    return reader.fixed_parameters(node, fixed, split=True)


def _general(
    reader: GraphReader,
    node: TraceNode,
    value: TracedValue,
    weight: Fixed,
    stride: Sequence[int],
    pads: Sequence[int],
    dilation: Sequence[int],
    groups: int,
) -> TracedValue:
    """Read a convolution whose weights are computed from others or shared, with the windows of any convolution."""
    rank, shape = len(stride), reader.shapes[value.layer]
    dims, out = POSITIONS[rank], node.results[0].shape
    channel, windows = _channels(groups, out, shape), _windows(weight.shape[2:], stride, pads, dilation)
    trained = _weights(reader, node)
    operation = TensorProduct(
        kind="convolution_of_any_kind",
        dims=("channel", *dims),
        sizes=out[1:],
        depth=math.prod(weight.shape[1:]),
        reads=((IntervalMap(dim="sample"), channel, *windows),),
        weights=tuple(parameter for parameter, _ in trained),
    )
    result = reader.emit(node, operation, [value], weights=keys_of(trained))
    where = {"stride": stride, "padding": pads, "dilation": dilation, "groups": groups}
    return reader.computes(result, "whole", node.operation, _operands(reader, node, value), where, channels={})


def _windows(
    kernel: Sequence[int], stride: Sequence[int], pads: Sequence[int], dilation: Sequence[int]
) -> list[IntervalMap]:
    """Return the maps of positions that are read through windows."""
    return [
        IntervalMap(dim=dim, kernel=k, stride=s, pad=p, dilation=d)
        for dim, k, s, p, d in zip(POSITIONS[len(kernel)], kernel, stride, pads, dilation, strict=True)
    ]


def _channels(groups: int, out: Sequence[int], inside: Shape) -> IntervalMap:
    """Return the map of the channels of a convolution: all of them, or those of a group."""
    if groups == 1:
        return IntervalMap(dim=None)
    return IntervalMap(dim="channel", group_out=out[1] // groups, group_in=inside.size("channel") // groups)


def _operands(reader: GraphReader, node: TraceNode, value: TracedValue) -> list[Given]:
    """Return input, weight and bias of a convolution."""
    rows: list[Given] = [("input", value)]
    return rows + [(name, each) for name, each in reader.operands_of(node) if name in ("weight", "bias")]


def _merged_convolution(reader: GraphReader, node: TraceNode, value: TracedValue, weight: Fixed) -> TracedValue:
    """Read a convolution whose samples share their axis with positions, such as frames: it is split by those."""
    out = node.results[0].shape
    first = [Tag(a.size, a.dim or "repeat", a.stride) for a in value.axes[0]] if len(out) == len(value.axes) else []
    rest = out[1:] if first else out
    tags = [
        *([first] if first else []),
        *([Tag(size, "channel" if i == 0 else f"window{i}")] for i, size in enumerate(rest)),
    ]
    pairs = [(a, None) for axis in value.axes[1:] for a in axis] + list(zip(value.axes[0], first, strict=False))
    result = reader.mapped(
        node,
        TensorProduct,
        tags,
        [(value, pairs)],
        kind="convolution_of_any_kind",
        depth=math.prod(weight.shape[1:]),
        trained=_weights(reader, node),
    )
    rows = _operands(reader, node, value)
    return reader.computes(result, "whole", node.operation, rows, node.arguments, channels={})


@handles("conv_transpose1d", "conv_transpose2d", "conv_transpose3d")
def transposed_convolution(reader: GraphReader, node: TraceNode) -> TracedValue:
    """Read a transposed convolution: every input position writes a window of outputs."""
    given, weight = reader.argument(node, "input"), reader.argument(node, "weight")
    value = reader.plain(node, given)
    if value is None or not isinstance(weight, Fixed):
        return reader.unknown(node, "its weights or its batch are not plain")
    rank, out, shape = len(weight.shape) - 2, node.results[0].shape, reader.shapes[value.layer]
    stride, dilation = (sizes(reader.argument(node, name), rank) for name in ("stride", "dilation"))
    pads, groups = sizes(reader.argument(node, "padding"), rank, 0), int(reader.argument(node, "groups", 1))
    channel = _channels(groups, out, shape)
    windows = [
        IntervalMap(dim=dim, kernel=k, spread=s, pad=p, dilation=d)
        if s > 1
        else IntervalMap(dim=dim, kernel=k, pad=d * (k - 1) - p, dilation=d)
        for dim, k, s, p, d in zip(POSITIONS[rank], weight.shape[2:], stride, pads, dilation, strict=True)
    ]
    multiply_adds = shape.elements * weight.shape[1] * math.prod(weight.shape[2:])
    trained = _weights(reader, node)
    # the first axis of the weight is the input's channels
    weights = tuple(replace(w, indices=(None, "channel")) if w.split and len(w.shape) > 1 else w for w, _ in trained)
    operation = TensorProduct(
        kind="transposed_convolution",
        dims=("channel", *POSITIONS[rank]),
        sizes=out[1:],
        depth=multiply_adds / math.prod(out),
        reads=((IntervalMap(dim="sample"), channel, *windows),),
        weights=weights,
    )
    result = reader.emit(node, operation, [value], weights=keys_of(trained))
    rows = _operands(reader, node, value)
    return reader.computes(result, "whole", node.operation, rows, node.arguments, channels={})


@handles(*(f"{mode}_pool{n}d{s}" for mode in ("max", "avg") for n in (1, 2, 3) for s in ("", "_with_indices")))
def pooling(reader: GraphReader, node: TraceNode) -> Any:
    """Read pooling over windows."""
    given = reader.operand(node)
    rank = int(node.operation[8])
    mode = "max" if node.operation.startswith("max") else "average"
    value = reader.plain(node, given) if len(given.axes) == rank + 2 else None
    if value is None:
        return reader.unknown(node, "its batch is not an axis of its own")
    kernel = sizes(reader.argument(node, "kernel_size"), rank)
    stride = sizes(reader.argument(node, "stride") or kernel, rank)
    pads, dilation = sizes(reader.argument(node, "padding"), rank, 0), sizes(reader.argument(node, "dilation"), rank)
    excludes = mode == "average" and any(pads) and reader.argument(node, "count_include_pad") is False
    divides = reader.argument(node, "divisor_override") is not None
    if excludes or divides or set(dilation) != {1}:
        reads = (IntervalMap(dim="sample"), IntervalMap(dim="channel"), *_windows(kernel, stride, pads, dilation))
        dims, out = ("channel", *POSITIONS[rank]), node.results[0].shape
        operation: Any = Rearrangement(
            kind="window_pooling", dims=dims, sizes=out[1:], terms=math.prod(kernel), reads=(reads,)
        )
    else:
        ceil_mode = bool(reader.argument(node, "ceil_mode", False))
        operation = Pooling(mode=mode, kernel=kernel, stride=stride, pad=pads, ceil_mode=ceil_mode)
    result = reader.emit(node, operation, [value])
    if isinstance(operation, Rearrangement):
        reader.computes(result, "whole", node.operation, [("self", value)], node.arguments, channels={})
    return result


@handles(*(f"adaptive_{mode}_pool{n}d" for mode in ("max", "avg") for n in (1, 2, 3)))
def adaptive_pooling(reader: GraphReader, node: TraceNode) -> Any:
    """Read pooling to given sizes: windows of equal sizes, or the smallest that cover each share."""
    mode = "max" if "_max_" in node.operation else "average"
    value, out = reader.plain(node, reader.operand(node)), node.results[0].shape
    if value is None:
        return reader.unknown(node, "its batch is not an axis of its own")
    inside, outside = value.shape[2:], out[2:]
    operation: Any
    if inside == outside:
        result = value
    else:
        if set(outside) == {1}:
            operation = GlobalPooling(mode=mode)
        elif all(size % count == 0 for size, count in zip(inside, outside, strict=True)):
            window = tuple(size // count for size, count in zip(inside, outside, strict=True))
            operation = Pooling(mode=mode, kernel=window, stride=window, pad=(0,) * len(window))
        else:
            operation = _resampling("window_pooling", inside, out, 0, math.ceil(math.prod(inside) / math.prod(outside)))
        result = reader.emit(node, operation, [value])
        if isinstance(operation, Rearrangement):
            rows: list[Given] = [(reader.operand_name(node), value)]
            reader.computes(result, "whole", node.operation, rows, node.arguments, channels={})
    return result


def _resampling(kind: str, inside: Sequence[int], out: Sequence[int], halo: int, terms: int) -> Rearrangement:
    """Return the operation that reads its positions in proportion, with some more on both sides."""
    dims = POSITIONS[len(inside)]
    maps = [
        IntervalMap(dim=dim, proportional=True, group_out=o, group_in=i, kernel=2 * halo + 1, pad=halo)
        for dim, i, o in zip(dims, inside, out[2:], strict=True)
    ]
    reads = ((IntervalMap(dim="sample"), IntervalMap(dim="channel"), *maps),)
    return Rearrangement(kind=kind, dims=("channel", *dims), sizes=tuple(out[1:]), reads=reads, terms=terms)


@handles(
    "upsample_nearest1d upsample_nearest2d upsample_nearest3d upsample_linear1d upsample_bilinear2d "
    "upsample_trilinear3d upsample_bicubic2d _upsample_bilinear2d_aa _upsample_bicubic2d_aa _upsample_nearest_exact1d "
    "_upsample_nearest_exact2d"
)
def interpolation(reader: GraphReader, node: TraceNode) -> TracedValue:
    """Read resampling to other sizes."""
    value, out = reader.plain(node, reader.operand(node)), node.results[0].shape
    if value is None:
        return reader.unknown(node, "its batch is not an axis of its own")
    inside = value.shape[2:]
    if inside == out[2:]:
        return value
    cubic, nearest = "bicubic" in node.operation, "nearest" in node.operation
    halo = 3 if cubic else 0 if nearest else 2
    terms = 4 ** len(inside) if cubic else 0 if nearest else 2 ** len(inside)
    result = reader.emit(node, _resampling("interpolation", inside, out, halo, 2 * terms), [value])
    rows: list[Given] = [(reader.operand_name(node), value)]
    return reader.computes(result, "whole", node.operation, rows, node.arguments, channels={})
