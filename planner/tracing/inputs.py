"""Shapes of a model's inputs as they are written: ``32x3x224x224``, ``8x128:int``, ``input_ids=8x128:int``."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from groundwork.errors import ConfigError

_NAMED = re.compile(r"(?:(?P<name>[A-Za-z_]\w*)=)?(?P<sizes>[^:]*)(?::(?P<type>\w+))?")
MOST_ELEMENTS = 2**40
"""Most elements of an input."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InputSpec:
    """One input of a model."""

    shape: tuple[int, ...]
    floating: bool = True
    """False for integers, such as the numbers of words."""
    name: str = ""
    """Name of the argument; empty: by position."""


def input_specs(texts: Sequence[str]) -> tuple[InputSpec, ...]:
    """Read the shapes of inputs.

    Raises:
        ConfigError: A size is missing or is no whole number >= 1, a type is unknown, or there are no inputs.
    """
    if not texts:
        raise ConfigError("input must give the sizes of what the model reads, such as 32x3x224x224 or 8x128:int")
    return tuple(map(_spec, texts))


def _spec(text: str) -> InputSpec:
    """Read the shape of one input."""
    match = _NAMED.fullmatch(text.strip())
    if match is None:
        raise ConfigError(f"input must be sizes such as 32x3x224x224, 8x128:int or ids=8x128:int, got {text!r}")
    sizes = match["sizes"].split("x")
    wrong = next((size for size in sizes if not re.fullmatch(r"[1-9][0-9]{0,11}", size)), None)
    if wrong is not None:
        raise ConfigError(
            f"input must give every size as a whole number >= 1, such as 32x3x224x224: shapes are fixed, got {text!r}"
        )
    shape = tuple(map(int, sizes))
    elements = 1
    for size in shape:
        elements *= size
    if elements > MOST_ELEMENTS:
        raise ConfigError(f"input must have at most {MOST_ELEMENTS:,} elements, got {text!r}")
    kind = match["type"] or ("int" if (match["name"] or "").endswith("ids") else "float")
    if kind not in ("int", "float"):
        raise ConfigError(f"type of an input must be int or float, got {kind!r}")
    return InputSpec(shape=shape, floating=kind == "float", name=match["name"] or "")


def with_two_samples(inputs: Sequence[InputSpec]) -> tuple[tuple[InputSpec, ...], int]:
    """Return inputs of one sample with two of them, and 1; others as they are, and 0.

    Inputs that begin with another size, such as those without samples, stay as they are.
    """
    if not inputs or inputs[0].shape[0] != 1:
        return tuple(inputs), 0
    return tuple(replace(each, shape=(2, *each.shape[1:])) if each.shape[0] == 1 else each for each in inputs), 1


def one_sample_error(error: ConfigError) -> ConfigError:
    """Return the error that a program of one sample cannot be read with two, for the reason given."""
    return ConfigError(
        f"batch of the inputs must be 2 or more, as this program of one sample cannot be read with two: {error}; "
        f"export it with 2 or more, plans take any batch"
    )
