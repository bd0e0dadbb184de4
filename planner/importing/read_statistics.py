"""Readers of normalisations, reductions and losses."""

from collections.abc import Mapping, Sequence
from typing import Any

from planner.importing.axes import Atom, TracedValue
from planner.importing.constants import Fixed
from planner.importing.placement import Tag
from planner.importing.read_elementwise import elementwise
from planner.importing.read_products import tags_of
from planner.importing.reader import GraphReader, Pair, handles
from planner.importing.recording import Given, channel_axis
from planner.operations.normalisation import BatchNorm
from planner.operations.pooling import GlobalPooling
from planner.operations.streaming import FeatureNorm, TensorReduction
from planner.tracing.trace import TraceNode


def _norm_keys(reader: GraphReader, node: TraceNode) -> dict[str, str]:
    """Return the keys of scale and shift."""
    given = {name: reader.argument(node, name) for name in ("weight", "bias")}
    return {name: each.keys[0] for name, each in given.items() if isinstance(each, Fixed) and each.keys}


@handles("batch_norm", "_native_batch_norm_legit", "native_batch_norm", "cudnn_batch_norm")
def batch_norm(reader: GraphReader, node: TraceNode) -> Any:
    """Read batch normalisation."""
    given, keys = reader.argument(node, "input"), _norm_keys(reader, node)
    value = reader.plain(node, given)
    if value is None:
        result = reader.unknown(node, "its batch is not an axis of its own")
    elif reader.argument(node, "training") is False and reader.trace.trains and not reader.trace.foreign:
        result = _fixed_statistics(reader, node, value, keys)
    elif _is_plain(reader, node, keys):
        name = reader.name_of(node)
        reader.owners |= {key: (name, each) for each, key in keys.items()}
        eps, momentum = (reader.argument(node, name) for name in ("eps", "momentum"))
        operation = BatchNorm(
            activation=None,
            eps=1e-5 if eps is None else float(eps),
            momentum=0.1 if momentum is None else float(momentum),
            affine=bool(keys),
        )
        result = reader.emit(node, operation, [value], weights=keys)
    else:
        result = _feature_norm(reader, node, value, [list(axis) for axis in value.axes], [], keys, "batch_norm")
    return result


def _is_plain(reader: GraphReader, node: TraceNode, keys: dict[str, str]) -> bool:
    """Return whether scale and shift are parameters that no layer has yet, or are both missing."""
    given = [reader.argument(node, name) for name in ("weight", "bias")]
    there = [each for each in given if each is not None]
    return len(there) == len(keys) in (0, 2) and not any(key in reader.owners for key in keys.values())


def _fixed_statistics(reader: GraphReader, node: TraceNode, value: TracedValue, keys: dict[str, str]) -> TracedValue:
    """Add a normalisation by statistics that are buffers of the module."""
    result = _feature_norm(reader, node, value, [list(axis) for axis in value.axes], [], keys, "batch_norm")
    wanted = ("input", "weight", "bias", "running_mean", "running_var")
    rows: list[Given] = [("input", value), *((n, f) for n, f in reader.operands_of(node) if n in wanted[1:])]
    return reader.computes(result, "whole", "batch_norm", rows, node.arguments, channels={})


def _feature_norm(
    reader: GraphReader,
    node: TraceNode,
    value: TracedValue,
    axes: Sequence[Sequence[Atom]],
    over: Sequence[Atom],
    keys: dict[str, str],
    function: str,
) -> TracedValue:
    """Add a normalisation over some atoms of a value."""
    tags = [tags_of(axis) for axis in axes]
    pairs: list[Pair] = [
        (a, None if any(a is each for each in over) else tag)
        for axis, row in zip(axes, tags, strict=True)
        for a, tag in zip(axis, row, strict=True)
    ]
    split = all(a.dim == "channel" for a in over) if function in ("layer_norm", "rms_norm") else True
    trained = reader.parameters(reader.name_of(node), [(name, key, split) for name, key in keys.items()])
    result = reader.mapped(node, FeatureNorm, tags, [(value, pairs)], function=function, trained=trained)
    fixed = dict(reader.operands_of(node))
    if function == "batch_norm" or (function == "instance_norm" and reader.argument(node, "use_input_stats") is False):
        return result
    rows: list[Given] = [("input", value), *((n, fixed[n]) for n in ("weight", "bias") if n in fixed)]
    last = function in ("layer_norm", "rms_norm")
    axis = channel_axis(result.axes, reader.layers[result.layer].output, 1) if last else 0
    whole = dict.fromkeys(("weight", "bias"), axis) if not last or _is_last(fixed) else {}
    wanted = ("normalized_shape", "eps", "num_groups", "group")
    arguments = {name: node.arguments[name] for name in wanted if node.arguments.get(name) is not None}
    out = result.axes if function != "group_norm" else axes
    return reader.computes(result, "norm", function, rows, arguments, out=out, channels=whole)


def _is_last(fixed: Mapping[str, Any]) -> bool:
    """Return whether a normalisation is over one axis."""
    return all(len(fixed[name].shape) == 1 for name in ("weight", "bias") if name in fixed)


@handles("layer_norm", "native_layer_norm", "rms_norm", "_fused_rms_norm")
def layer_norm(reader: GraphReader, node: TraceNode) -> Any:
    """Read normalisation over the last axes."""
    value, shape = reader.argument(node, "input"), reader.argument(node, "normalized_shape")
    axes = [list(axis) for axis in value.axes]
    over = [a for axis in axes[len(axes) - len(shape) :] for a in axis]
    function = "rms_norm" if "rms" in node.operation else "layer_norm"
    return _feature_norm(reader, node, value, axes, over, _norm_keys(reader, node), function)


@handles("group_norm", "native_group_norm", "instance_norm")
def group_norm(reader: GraphReader, node: TraceNode) -> Any:
    """Read normalisation over positions, and groups of channels."""
    value = reader.plain(node, reader.argument(node, "input"))
    if value is None:
        return reader.unknown(node, "its batch is not an axis of its own")
    axes = [list(axis) for axis in value.axes]
    over = [a for axis in axes[2:] for a in axis]
    if node.operation != "instance_norm":
        groups = int(reader.argument(node, "num_groups") or reader.argument(node, "group") or 1)
        channels = value.shape[1]
        inner = channels // groups
        axes[1] = [Atom("channel", n, s) for n, s in ((groups, inner), (inner, 1)) if n > 1]
        over += axes[1][-1:] if inner > 1 else []
    function = "instance_norm" if node.operation == "instance_norm" else "group_norm"
    return _feature_norm(reader, node, value, axes, over, _norm_keys(reader, node), function)


_SAVES = {
    "softmax": "output",
    "_softmax": "output",
    "log_softmax": "output",
    "_log_softmax": "output",
    "cumsum": "nothing",
    "mean": "nothing",
    "sum": "nothing",
}


@handles("softmax _softmax log_softmax _log_softmax cumsum cumprod sort argsort logcumsumexp flip softmin cummax")
def along(reader: GraphReader, node: TraceNode) -> Any:
    """Read an operation that keeps its sizes and needs all of some axes."""
    value = reader.operand(node)
    dims = reader.argument(node, "dim", reader.argument(node, "dims", -1))
    chosen = {d % len(value.axes) for d in (dims if isinstance(dims, list) else [dims])}
    if any(a.dim == "sample" for i in chosen for a in value.axes[i]):
        raise reader.problem(node, "mixes samples: each sample's result must depend on that sample alone")
    tags = [tags_of(axis) for axis in value.axes]
    pairs: list[Pair] = [
        (a, None if i in chosen else tag)
        for i, (axis, row) in enumerate(zip(value.axes, tags, strict=True))
        for a, tag in zip(axis, row, strict=True)
    ]
    saves = _SAVES.get(node.operation, "inputs")
    function = node.operation.strip("_")
    result = reader.mapped(node, TensorReduction, tags, [(value, pairs)], function=function, saves=saves)
    rows, where = reader.operands_of(node), {**node.arguments, "axes": sorted(chosen)}
    return reader.computes(result, "along", function, rows, where)


@handles(
    "mean sum amax amin max min var std var_mean std_mean norm linalg_vector_norm prod logsumexp all any argmax "
    "argmin median"
)
def reduction(reader: GraphReader, node: TraceNode) -> Any:
    """Read a reduction of some axes, or of all."""
    if "other" in node.arguments:  # maximum of two tensors
        return elementwise(reader, node)
    value = reader.operand(node)
    dims = reader.argument(node, "dim")
    rank = len(value.axes)
    chosen = sorted(
        {d % rank for d in (dims if isinstance(dims, list) else [dims])} if dims not in (None, []) else range(rank)
    )
    if any(a.dim == "sample" for i in chosen for a in value.axes[i]):
        reader.losses.append(value)
        return Fixed(node.results[0].shape)
    return _reduced(reader, node, value, chosen)


def _reduced(reader: GraphReader, node: TraceNode, value: TracedValue, chosen: Sequence[int]) -> TracedValue:
    """Add a reduction of some axes."""
    rank = len(value.axes)
    image = rank > 2 and all(a.dim == "channel" for a in value.axes[1])
    positions = node.operation in ("mean", "amax") and chosen == [*range(2, rank)] and image
    if positions and (plain := reader.plain(node, value)) is not None:
        mode = "average" if node.operation == "mean" else "max"
        pooled = reader.emit(node, GlobalPooling(mode=mode), [plain])
        keeps = len(node.results[0].shape) == rank
        return pooled if keeps else TracedValue(pooled.layer, pooled.axes[:2])
    tags: list[list[Tag]] = []
    pairs: list[Pair] = []
    keeps = len(node.results[0].shape) == rank
    for i, axis in enumerate(value.axes):
        if i in chosen:
            pairs += [(a, None) for a in axis]
            if keeps:
                size = node.results[0].shape[i]
                tags.append([Tag(size, axis[-1].dim or "new", axis[-1].stride)] if size > 1 and axis else [])
        else:
            tags.append(tags_of(axis))
            pairs += zip(axis, tags[-1], strict=True)
    saves = _SAVES.get(node.operation, "inputs")
    result = reader.mapped(node, TensorReduction, tags, [(value, pairs)], function=node.operation, saves=saves)
    where = {**node.arguments, "axes": list(chosen)}
    return reader.computes(result, "reduce", node.operation, reader.operands_of(node), where)


@handles("cross_entropy_loss", "nll_loss", "nll_loss_forward", "mse_loss", "nll_loss_nd", "nll_loss2d")
def loss(reader: GraphReader, node: TraceNode) -> Any:
    """Read a loss: the samples' sum ends the network."""
    value = reader.operand(node)
    if not isinstance(value, TracedValue) or not any(a.dim == "sample" for axis in value.axes for a in axis):
        return reader.unknown(node, "its input does not depend on the data")
    reader.losses.append(value)
    return Fixed(node.results[0].shape)
