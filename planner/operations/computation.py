"""Recorded computations: what an imported layer computes, step by step, without code.

A step applies one operation of PyTorch to tensors.  Each tensor is a view of a layer's output, written as its axes in
terms of that output's dimensions, from the outside in::

    [sample, length, channel]                          samples x positions x channels
    [sample, channel.12.64, length, channel.64.1]      12 heads of 64 channels each: size and stride in the dimension
    [sample-height.8.7, height.7.1-width.7.1, one]     factors of one axis joined by a hyphen; an axis of one element
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from groundwork.errors import ConfigError

FORMS = (
    "pointwise",
    "dropout",
    "contract",
    "attention",
    "along",
    "reduce",
    "norm",
    "take",
    "join",
    "pad",
    "embedding",
    "dispatch",
    "combine",
    "whole",
)
"""Ways in which a step is divided; ``whole``: by samples only."""

_POINTWISE_WORDS = """
    relu relu6 hardtanh sigmoid tanh silu gelu hardswish hardsigmoid leaky_relu elu selu celu softplus mish exp log
    log2 log1p sqrt rsqrt pow square neg abs sin cos erf reciprocal clamp clamp_min clamp_max round floor ceil sign
    logical_not logical_and logical_or logical_xor bitwise_not bitwise_and bitwise_or prelu masked_fill where
    threshold log_sigmoid softsign hardshrink softshrink tanhshrink add sub mul div rsub maximum minimum fmod
    remainder floor_divide atan2 eq ne gt ge lt le addcmul addcdiv lerp isnan isinf nan_to_num expm1 true_divide
    multiply subtract exp2
"""
POINTWISE = frozenset(_POINTWISE_WORDS.split())
"""Operations of PyTorch that work element by element, whatever their tags say: imported by one rule, and run."""

Plain = bool | int | float | str | tuple[Any, ...] | None
"""An argument that is no tensor; ``inf``, ``-inf`` and ``nan`` are words."""


@dataclass(frozen=True, slots=True)
class DimFactor:
    """A factor of a dimension, or all of it."""

    dim: str | None
    """Dimension; None for a repetition, in which all indices are the same element."""
    size: int = 0
    """Number of indices; 0: all of the dimension."""
    stride: int = 1
    """Distance of neighbours in the dimension."""


def is_matrix_product(first: Sequence[str], second: Sequence[str], out: Sequence[str]) -> bool:
    """Return whether labels say a product of rows with one matrix, ``n`` columns of it, as of a linear layer."""
    return set(second) == {"n", "k"} and len(second) == 2 and tuple(out) == (*first[:-1], "n") and first[-1] == "k"


def axis_of(factors: tuple[DimFactor, ...]) -> str:
    """Return an axis as text; without factors it has one element."""
    words = []
    for each in factors:
        name = each.dim or "repeat"
        words.append(name if not each.size else f"{name}.{each.size}.{each.stride}")
    return "-".join(words) or "one"


@lru_cache(maxsize=4096)  # a network's layers have few different axes
def parse_axis(text: str) -> tuple[DimFactor, ...]:
    """Return the factors of an axis that ``axis_of`` wrote.

    Raises:
        ConfigError: The text is no axis.
    """
    factors = []
    for word in () if text == "one" else text.split("-"):
        name, *numbers = word.split(".")
        whole = not numbers and name != "repeat"
        sized = len(numbers) == 2 and all(
            each.isascii() and each.isdecimal() and 0 < len(each) < 13 for each in numbers
        )
        if not name.isidentifier() or not (whole or sized) or (sized and not all(map(int, numbers))):
            raise ConfigError(f"an axis must be written such as channel, channel.12.64 or one, got {text!r}")
        size, stride = map(int, numbers) if sized else (0, 1)
        factors.append(DimFactor(None if name == "repeat" else name, size, stride))
    return tuple(factors)


@dataclass(frozen=True, slots=True, kw_only=True)
class Constant:
    """A tensor that does not depend on the data: a parameter, a buffer, or what is computed from them."""

    parameter: str = ""
    """Name of the layer's parameter that it is; empty for others."""
    buffer: str = ""
    """Key of the buffer that it is; empty for others."""
    call: str = ""
    """Operation that computes it; empty for parameters and buffers."""
    shape: tuple[int, ...]
    along: int | None = None
    """Axis that a split of the layer's channels splits; None: every part holds all of it."""
    operands: tuple[tuple[str, "Constant"], ...] = ()
    """Tensors that it is computed from, by the name of the argument."""
    arguments: tuple[tuple[str, Plain], ...] = ()

    def leaves(self) -> Iterator["Constant"]:
        """Yield the parameters and buffers that it is computed from."""
        if not self.call:
            yield self
        for _, each in self.operands:
            yield from each.leaves()


@dataclass(frozen=True, slots=True, kw_only=True)
class Operand:
    """A tensor that a step reads: of an input of the layer, of a step before, or a constant."""

    name: str
    """Argument of the operation; ``tensors.1`` is the second of a list."""
    input: int | None = None
    """Slot of the layer's input."""
    step: int | None = None
    """Index of a step before."""
    constant: Constant | None = None
    axes: tuple[str, ...] = ()
    """Axes of the view; none for constants."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One operation of a layer."""

    form: str
    """How it is divided: one of ``FORMS``."""
    call: str
    """Name of PyTorch's operation."""
    out: tuple[str, ...]
    """Axes of the result in terms of the layer's output."""
    operands: tuple[Operand, ...]
    arguments: tuple[tuple[str, Plain], ...] = field(default=())
    """Arguments that are no tensors."""

    def __post_init__(self) -> None:
        if self.form not in FORMS:
            raise ConfigError(f"form of a step must be one of {', '.join(FORMS)}, got {self.form!r}")
        if not self.call.isidentifier():
            raise ConfigError(f"call of a step must be the name of an operation, got {self.call!r}")
        for axis in (*self.out, *(axis for each in self.operands for axis in each.axes)):
            parse_axis(axis)

    def argument(self, name: str, default: Plain = None) -> Plain:
        """Return an argument that is no tensor."""
        given = dict(self.arguments).get(name)
        return default if given is None else given

    def operand(self, name: str) -> Operand | None:
        """Return an operand by the name of its argument; None if there is none."""
        return next((each for each in self.operands if each.name == name), None)
