"""Products: convolutions, matrix products, attention, recurrent layers, table look-ups."""

import math
from collections.abc import Sequence
from typing import Any

from planner.onnx_files.node_view import NodeView, translates
from planner.tracing.trace import Argument


def spread_pads(
    node: NodeView, kernel: Sequence[int], stride: Sequence[int], dilation: Sequence[int]
) -> tuple[list[int], list[int]]:
    """Return the padding before and behind each position of a window."""
    rank, mode = len(kernel), node.attribute("auto_pad", "NOTSET")
    if mode in ("SAME_UPPER", "SAME_LOWER"):
        before, behind = [], []
        for size, k, s, d in zip(node.shape()[2:], kernel, stride, dilation, strict=True):
            total = max((math.ceil(size / s) - 1) * s + d * (k - 1) + 1 - size, 0)
            small, large = total // 2, total - total // 2
            before.append(small if mode == "SAME_UPPER" else large)
            behind.append(large if mode == "SAME_UPPER" else small)
        return before, behind
    pads = list(node.attribute("pads", [0] * 2 * rank)) if mode == "NOTSET" else [0] * 2 * rank
    return pads[:rank], pads[rank:]


def evenly_padded(node: NodeView, before: Sequence[int], behind: Sequence[int]) -> tuple[Any, list[int]]:
    """Return the input and the padding on both sides that is left, after a layer pads what they differ in."""
    even = [min(pair) for pair in zip(before, behind, strict=True)]
    extra = [(b - e, c - e) for b, c, e in zip(before, behind, even, strict=True)]
    if not any(map(any, extra)):
        return node.input(0), even
    shape = [size + sum(pair) for size, pair in zip(node.shape()[2:], extra, strict=True)]
    widths = [width for pair in reversed(extra) for width in pair]
    return node.step("pad", (*node.shape()[:2], *shape), self=node.input(0), pad=widths), even


@translates("Conv")
def _convolution(node: NodeView) -> None:
    kernel = node.shape(1)[2:]
    rank = len(kernel)
    stride, dilation = (list(node.attribute(name, [1] * rank)) for name in ("strides", "dilations"))
    value, pads = evenly_padded(node, *spread_pads(node, kernel, stride, dilation))
    node.ends(
        f"conv{rank}d",
        input=value,
        weight=node.input(1),
        bias=node.weight(2),
        stride=stride,
        padding=pads,
        dilation=dilation,
        groups=node.attribute("group", 1),
    )


@translates("ConvTranspose")
def _transposed_convolution(node: NodeView) -> None:
    """Translate a transposed convolution; what it cuts off on one side alone is in the sizes of its result."""
    rank = len(node.shape(1)) - 2
    stride, dilation = (list(node.attribute(name, [1] * rank)) for name in ("strides", "dilations"))
    pads = list(node.attribute("pads", [0] * 2 * rank))[:rank]
    node.ends(
        f"conv_transpose{rank}d",
        input=node.input(0),
        weight=node.input(1),
        bias=node.weight(2),
        stride=stride,
        padding=pads,
        dilation=dilation,
        groups=node.attribute("group", 1),
    )


@translates("Gemm")
def _general_product(node: NodeView) -> None:
    """Translate a product of two matrices and a sum, each with its factor."""
    one: Any = node.input(0)
    alpha, beta = node.attribute("alpha", 1.0), node.attribute("beta", 1.0)
    if alpha != 1:
        one = node.step("mul", node.shape(), self=one, other=alpha)
    if node.attribute("transA", 0):
        one = node.step("t", node.shape()[::-1], self=one)
    weight, bias = node.proto.input[1], node.input(2)
    transposed = node.attribute("transB", 0)
    if transposed and beta == 1 and weight in node.parameters and (bias is None or len(node.shape(2)) == 1):
        node.ends("linear", input=one, weight=node.input(1), bias=bias)
        return
    two: Any = node.step("t", node.shape(1)[::-1], self=node.input(1)) if transposed else node.input(1)
    if bias is None:
        node.ends("mm", self=one, mat2=two)
    elif beta == 1:
        node.ends("addmm", self=bias, mat1=one, mat2=two)
    else:
        product = node.step("mm", node.result.shape, self=one, mat2=two)
        node.ends("add", self=product, other=node.step("mul", node.shape(2), self=bias, other=beta))


@translates("MatMul")
def _product(node: NodeView) -> None:
    """Translate a product of matrices, or of batches of them."""
    node.ends("matmul", self=node.input(0), other=node.input(1))


@translates("Einsum")
def _einsum(node: NodeView) -> None:
    """Translate a product given by Einstein's summation."""
    count = len(node.proto.input)
    node.ends("einsum", equation=node.attribute("equation", ""), tensors=[node.input(i) for i in range(count)])


@translates("Attention")
def _attention(node: NodeView) -> None:
    """Translate attention: heads are an axis, or divide the channels."""
    if any(node.has(i) for i in (4, 5)):
        raise node.problem("past keys and values are those of a model that writes texts, not of one that is trained")
    query, key, value = (_heads(node, i) for i in range(3))
    grouped = node.attribute("kv_num_heads", 0) != node.attribute("q_num_heads", 0) or (
        len(node.shape()) == 4 and node.shape(0)[1] != node.shape(1)[1]
    )
    arguments: dict[str, Any] = {"query": query, "key": key, "value": value, "attn_mask": node.input(3)}
    arguments |= {"is_causal": bool(node.attribute("is_causal", 0)), "enable_gqa": grouped}
    if len(node.shape()) == 4:
        node.ends("scaled_dot_product_attention", **arguments)
        return
    batch, length, width = node.result.shape
    heads = node.attribute("q_num_heads", 1)
    each = node.step("scaled_dot_product_attention", (batch, heads, length, width // heads), **arguments)
    joined = node.step("permute", (batch, length, heads, width // heads), self=each, dims=[0, 2, 1, 3])
    node.ends("reshape", self=joined)


def _heads(node: NodeView, i: int) -> Argument | None:
    """Return queries, keys or values with an axis of heads."""
    shape = node.shape(i)
    if len(shape) == 4:
        return node.input(i)
    heads = node.attribute("q_num_heads" if i == 0 else "kv_num_heads", 1)
    batch, length, width = shape
    apart = node.step("reshape", (batch, length, heads, width // heads), self=node.input(i))
    return node.step("permute", (batch, heads, length, width // heads), self=apart, dims=[0, 2, 1, 3])


@translates("LSTM", "GRU", "RNN")
def _recurrence(node: NodeView) -> None:
    """Translate a recurrent layer, whose steps are the first axis of what it reads."""
    if node.attribute("layout", 0):
        raise node.problem("layout must be 0, with the steps in the first axis, got 1")
    if not node.proto.output[0]:
        raise node.problem("its first result, the states of all steps, must be read, not the last state alone")
    kind = {"LSTM": "lstm", "GRU": "gru", "RNN": "rnn_tanh"}[node.proto.op_type]
    length, directions, batch, width = node.result.shape
    weights = [node.input(i) for i in (1, 2, 3) if node.has(i)]
    shape = (length, batch, directions * width)
    row = node.step(kind, shape, input=node.input(0), params=weights, batch_first=False)
    states = node.step("getitem", shape, **{"0": row, "1": 0})
    apart = node.step("reshape", (length, batch, directions, width), self=states)
    node.ends("permute", self=apart, dims=[0, 2, 1, 3])


@translates("Gather")
def _gather(node: NodeView) -> None:
    """Translate rows of a table by numbers from the data, or rows of an axis by constant numbers."""
    axis, table = node.attribute("axis", 0), node.proto.input[0]
    found = node.known.elements.get(node.proto.input[1])
    if found is not None and found.ndim == 0:
        node.ends("select", self=node.input(0), dim=axis, index=int(found))
    elif found is not None and found.ndim == 1:
        node.ends("index_select", self=node.input(0), dim=axis, index=node.input(1))
    elif table in node.parameters and axis == 0:
        node.ends("embedding", weight=node.input(0), indices=node.input(1))
    else:
        dims = [None] * (axis % len(node.shape()))
        node.ends("index", self=node.input(0), indices=[*dims, node.input(1)])
