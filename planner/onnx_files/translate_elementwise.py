"""Operations element by element, reductions and softmax."""

from typing import Any

from planner.onnx_files.node_view import NodeView, translates

_SAME_WORDS = """
    Abs:abs Acos:acos And:logical_and Atan:atan BitwiseAnd:bitwise_and BitwiseNot:bitwise_not BitwiseOr:bitwise_or
    Ceil:ceil Celu:celu Clip:clamp Cos:cos Div:div Elu:elu Equal:eq Erf:erf Exp:exp Floor:floor Gelu:gelu Greater:gt
    GreaterOrEqual:ge HardSigmoid:hardsigmoid HardSwish:hardswish IsInf:isinf IsNaN:isnan LeakyRelu:leaky_relu Less:lt
    LessOrEqual:le Log:log Mish:mish Mod:remainder Mul:mul Neg:neg Not:logical_not Or:logical_or PRelu:prelu Pow:pow
    Reciprocal:reciprocal Relu:relu Round:round Selu:selu Shrink:hardshrink Sigmoid:sigmoid Sign:sign Sin:sin
    Softplus:softplus Softsign:softsign Sqrt:sqrt Sub:sub Swish:silu Tanh:tanh ThresholdedRelu:threshold Where:where
    Xor:logical_xor Add:add
"""
_SAME = dict(pair.split(":") for pair in _SAME_WORDS.split())
_NARY = {"Max": "maximum", "Min": "minimum", "Sum": "add", "Mean": "add"}
_REDUCTIONS = {
    "ReduceMean": "mean",
    "ReduceSum": "sum",
    "ReduceMax": "amax",
    "ReduceMin": "amin",
    "ReduceProd": "prod",
    "ReduceL1": "norm",
    "ReduceL2": "linalg_vector_norm",
    "ReduceLogSumExp": "logsumexp",
}


@translates(*_SAME)
def _elementwise(node: NodeView) -> None:
    """Translate an operation on elements of one index."""
    arguments: dict[str, Any] = dict(zip(("self", "other", "third"), map(node.input, range(3)), strict=True))
    name = _SAME[node.proto.op_type]
    if name == "leaky_relu" and round(node.attribute("alpha", 0.01), 6) != 0.01:
        name = "prelu"  # layers take in leaky ReLU of the usual slope alone
    node.ends(name, **arguments)


@translates(*_NARY)
def _several(node: NodeView) -> None:
    """Translate a sum, mean or extreme of any number of tensors."""
    count, operation = len(node.proto.input), _NARY[node.proto.op_type]
    mean = node.proto.op_type == "Mean" and count > 1
    last = node.input(0)
    for i in range(1, count):
        arguments: dict[str, Any] = {"self": last, "other": node.input(i)}
        if i == count - 1 and not mean:
            node.ends(operation, **arguments)
            return
        last = node.step(operation, node.result.shape, **arguments)
    if mean:
        node.ends("div", self=last, other=count)
    else:
        node.ends("alias", self=last)


@translates(*_REDUCTIONS, "ReduceSumSquare", "ReduceLogSum")
def _reduction(node: NodeView) -> None:
    """Translate a reduction of some axes, or of all."""
    axes, kind = node.setting("axes", 1), node.proto.op_type
    if not axes and node.attribute("noop_with_empty_axes", 0):
        node.ends("alias", self=node.input(0))
        return
    dims: Any = list(axes) if axes else None
    value = node.input(0)
    if kind == "ReduceSumSquare":
        node.ends("sum", self=node.step("square", node.shape(), self=value), dim=dims)
    elif kind == "ReduceLogSum":
        node.ends("log", self=node.step("sum", node.result.shape, self=value, dim=dims))
    else:
        node.ends(_REDUCTIONS[kind], self=value, dim=dims)


@translates("ArgMax", "ArgMin", "TopK")
def _chosen(node: NodeView) -> None:
    """Translate a choice among the elements of an axis."""
    axis = node.attribute("axis", -1 if node.proto.op_type == "TopK" else 0)
    node.ends(node.proto.op_type.lower(), self=node.input(0), dim=axis)


@translates("Softmax", "LogSoftmax", "Hardmax")
def _softmax(node: NodeView) -> None:
    """Translate softmax: over one axis, in old versions over that and all behind it."""
    old, rank = node.opset < 13, len(node.shape())
    axis = node.attribute("axis", 1 if old else -1) % max(rank, 1)
    names = {"Softmax": "softmax", "LogSoftmax": "log_softmax", "Hardmax": "softmax"}
    node.ends(names[node.proto.op_type], self=node.input(0), dim=list(range(axis, rank)) if old else axis)


@translates("CumSum")
def _running_sum(node: NodeView) -> None:
    """Translate sums along an axis."""
    node.ends("cumsum", self=node.input(0), dim=int(node.elements(1, "axis").reshape(-1)[0]))


@translates("Cast", "CastLike", "Identity", "OptionalGetElement")
def _same(node: NodeView) -> None:
    """Translate an operation that keeps its elements."""
    node.ends("alias", self=node.input(0))


@translates("Dropout")
def _dropout(node: NodeView) -> None:
    """Translate dropout; a network that is imported will be trained, whatever its file was written for."""
    share = node.setting("ratio", 1, 0.5)
    node.ends(
        "native_dropout" if len([n for n in node.proto.output if n]) > 1 else "dropout",
        input=node.input(0),
        p=float(share),
        train=True,
    )
