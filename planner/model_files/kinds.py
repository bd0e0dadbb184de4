"""Kinds of layers by the names that model files give them."""

from dataclasses import fields
from typing import Any

from groundwork.errors import ConfigError
from groundwork.suggestions import did_you_mean
from planner.operations.convolution import Convolution
from planner.operations.dropout import Dropout
from planner.operations.joining import Add, Concat
from planner.operations.linear import Linear
from planner.operations.loss import Loss
from planner.operations.normalisation import BatchNorm, LocalResponseNorm
from planner.operations.pooling import GlobalPooling, Pooling
from planner.operations.products import PRODUCTS, Attention, TensorProduct
from planner.operations.rearrangement import REARRANGEMENTS, Rearrangement
from planner.operations.streaming import Elementwise, Embedding, FeatureNorm, TensorReduction, Unknown

_ONE_NAME: tuple[type[Any], ...] = (
    Add,
    BatchNorm,
    Concat,
    Convolution,
    Dropout,
    Elementwise,
    Embedding,
    FeatureNorm,
    GlobalPooling,
    Linear,
    LocalResponseNorm,
    Pooling,
    TensorReduction,
    Unknown,
)
_KINDS: dict[str, type[Any]] = {
    **{each.kind: each for each in _ONE_NAME},
    "attention": Attention,
    **dict.fromkeys(("softmax", "softmax_per_position", "mean_squared_error"), Loss),
    **dict.fromkeys(PRODUCTS, TensorProduct),
    **dict.fromkeys(REARRANGEMENTS, Rearrangement),
}

COMPUTED_FIELDS = frozenset({"dims", "sizes", "reads", "weights", "computes", "fused", "zigzag", "calls"})
"""Fields of operations that no key of a layer is named after: others give them, or software does."""


def kind_names() -> list[str]:
    """Return the names of all kinds of layers."""
    return sorted(_KINDS)


def operation_class(kind: Any) -> type[Any]:
    """Return the class of a kind.

    Raises:
        ConfigError: There is no such kind.
    """
    if not isinstance(kind, str) or kind not in _KINDS:
        near = did_you_mean(str(kind), kind_names()) or f"; kinds are {', '.join(kind_names())}"
        raise ConfigError(f"kind must be a kind of layer, got {kind!r}{near}")
    return _KINDS[kind]


def single_field(made: type[Any], kind: str) -> dict[str, str]:
    """Return the field of an operation that the name of its kind gives, with its value."""
    if made is Loss:
        return {"function": kind}
    return {"kind": kind} if any(each.name == "kind" for each in fields(made)) else {}
