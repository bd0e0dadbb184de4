"""Pooling, normalisation and resampling."""

from typing import Any

from planner.onnx_files.node_view import NodeView, translates
from planner.onnx_files.translate_products import evenly_padded, spread_pads


@translates("MaxPool", "AveragePool", "LpPool")
def _pooling(node: NodeView) -> None:
    """Translate pooling over windows."""
    kernel = list(node.attribute("kernel_shape", []))
    rank = len(kernel)
    stride, dilation = (list(node.attribute(name, [1] * rank)) for name in ("strides", "dilations"))
    value, pads = evenly_padded(node, *spread_pads(node, kernel, stride, dilation))
    arguments: dict[str, Any] = {
        "self": value,
        "kernel_size": kernel,
        "stride": stride,
        "padding": pads,
        "dilation": dilation,
        "ceil_mode": bool(node.attribute("ceil_mode", 0)),
    }
    if node.proto.op_type == "MaxPool":
        indices = len([name for name in node.proto.output if name]) > 1
        node.ends(f"max_pool{rank}d{'_with_indices' if indices else ''}", **arguments)
    else:
        counts = bool(node.attribute("count_include_pad", 0))
        node.ends(f"avg_pool{rank}d", **arguments, count_include_pad=counts)


@translates("GlobalAveragePool", "GlobalMaxPool", "GlobalLpPool")
def _global_pooling(node: NodeView) -> None:
    """Translate pooling over all positions."""
    mode = "max" if node.proto.op_type == "GlobalMaxPool" else "avg"
    node.ends(f"adaptive_{mode}_pool{len(node.shape()) - 2}d", self=node.input(0))


@translates("BatchNormalization")
def _batch_norm(node: NodeView) -> None:
    """Translate batch normalisation; running statistics are no parameters."""
    several = len([name for name in node.proto.output if name]) > 1
    name = "native_batch_norm" if several else "batch_norm"
    eps, momentum = node.attribute("epsilon", 1e-5), 1 - node.attribute("momentum", 0.9)
    node.ends(
        name,
        input=node.input(0),
        weight=node.input(1),
        bias=node.input(2),
        eps=round(eps, 9),
        momentum=round(momentum, 6),
    )


@translates("InstanceNormalization", "GroupNormalization")
def _group_norm(node: NodeView) -> None:
    """Translate normalisation over positions, or positions and groups of channels."""
    arguments: dict[str, Any] = {"input": node.input(0), "weight": node.input(1), "bias": node.input(2)}
    if node.proto.op_type == "GroupNormalization":
        node.ends("group_norm", **arguments, num_groups=node.attribute("num_groups", 1))
    else:
        node.ends("instance_norm", **arguments)


@translates("LayerNormalization", "RMSNormalization")
def _layer_norm(node: NodeView) -> None:
    """Translate normalisation over the last axes."""
    axis = node.attribute("axis", -1) % len(node.shape())
    kind = "layer_norm" if node.proto.op_type == "LayerNormalization" else "rms_norm"
    several = len([name for name in node.proto.output if name]) > 1
    name = "native_layer_norm" if several and kind == "layer_norm" else kind
    weight, bias = node.input(1), node.input(2)
    node.ends(name, input=node.input(0), normalized_shape=list(node.shape()[axis:]), weight=weight, bias=bias)


@translates("LRN")
def _response_norm(node: NodeView) -> None:
    """Translate normalisation across neighbouring channels."""
    fields = {"size": node.attribute("size", 0), "k": node.attribute("bias", 1.0)}
    fields |= {"alpha": node.attribute("alpha", 1e-4), "beta": node.attribute("beta", 0.75)}
    node.ends("local_response_norm", input=node.input(0), **fields)


@translates("Resize", "Upsample")
def _resampling(node: NodeView) -> None:
    """Translate resampling of the positions."""
    rank = len(node.shape()) - 2
    kinds = {
        "nearest": ("nearest1d", "nearest2d", "nearest3d"),
        "linear": ("linear1d", "bilinear2d", "trilinear3d"),
        "cubic": ("linear1d", "bicubic2d", "trilinear3d"),
    }
    mode = node.attribute("mode", "nearest")
    if mode not in kinds or not 1 <= rank <= 3 or node.shape()[:2] != node.result.shape[:2]:
        raise node.problem(f"must resample 1 to 3 positions by nearest, linear or cubic, got mode {mode!r}")
    node.ends(f"upsample_{kinds[mode][rank - 1]}", input=node.input(0))
