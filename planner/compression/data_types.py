"""Data types that messages are compressed with: names, parameters, sizes; how they encode is the executor's business.

The types are those of Dettmers, "8-Bit Approximations for Parallelism in Deep Learning", ICLR 2016 (dynamic tree,
static tree, linear quantization, mantissa) and those it is compared with: one bit a number (Seide et al.,
Interspeech 2014), a threshold (Strom, Interspeech 2015), half-width floats, and float32 itself.
"""

import difflib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from hwprofiles import ConfigError
from hwprofiles.compute import ComputeProfile

__all__ = ["COMPRESSIONS", "Compression", "check_codec_times", "compression", "compression_names"]

_Count = TypeVar("_Count", int, NDArray[np.int64])

SCALE_BYTES = 4
_BLOCKS = (0, *(2**power for power in range(6, 17)))


@dataclass(frozen=True, slots=True)
class _Field:
    """A parameter: its default, its rule in words, and the rule."""

    default: float
    rule: str
    holds: Callable[[float], bool]

    def read(self, name: str, value: object) -> float:
        try:
            number = float(value)  # type: ignore[arg-type]  # what is no number is caught
        except (TypeError, ValueError):
            number = float("nan")
        if isinstance(value, bool) or not self.holds(number):
            raise ConfigError(f"{name} must be {self.rule}, got {value!r}")
        return int(number) if isinstance(self.default, int) else number


def _whole(default: int, low: int, high: int) -> _Field:
    rule = f"an integer from {low} to {high}"
    return _Field(default, rule, lambda value: low <= value <= high and value == int(value))


def _block() -> _Field:
    return _Field(0, "0 (the whole tensor) or a power of two from 64 to 65536", lambda value: value in _BLOCKS)


def _table(*, normalised: int, **more: _Field) -> dict[str, _Field]:
    # offsets keep every value of every table a normal float32
    fields = {"normalised": _whole(normalised, 0, 1), "offset": _whole(0, -28, 37), "block": _block()}
    return fields | more


def _top() -> _Field:
    return _Field(1.0, "a number above 0.1 and up to 1", lambda value: 0.1 < value <= 1)


@dataclass(frozen=True, slots=True)
class _Kind:
    """A type: its parameters, and whether what one message leaves out is kept for the next."""

    fields: Mapping[str, _Field]
    feedback: bool = False


COMPRESSIONS: Mapping[str, _Kind] = {
    "dynamic-tree": _Kind(_table(normalised=1, top=_top())),
    "static-tree": _Kind(_table(normalised=0, top=_top())),
    "linear": _Kind(_table(normalised=1)),
    "mantissa": _Kind(_table(normalised=0)),
    "one-bit": _Kind({"block": _block()}, feedback=True),
    "threshold": _Kind(
        {
            "threshold": _Field(1e-3, "a number from 1e-30 to 1e30", lambda value: 1e-30 <= value <= 1e30),
            "every": _whole(32, 1, 65536),
        },
        feedback=True,
    ),
    "float16": _Kind({}),
    "bfloat16": _Kind({}),
    "float32": _Kind({}),
}
"""Every type, by name."""

_WIDTH_BYTES = {"float16": 2, "bfloat16": 2, "float32": 4}


def compression_names() -> list[str]:
    """Names of all types."""
    return list(COMPRESSIONS)


@dataclass(frozen=True, slots=True)
class Compression:
    """A type with its parameters; made by ``compression``."""

    name: str
    parameters: tuple[tuple[str, float], ...] = ()
    """All of them, in the order of ``COMPRESSIONS``."""

    def __getitem__(self, parameter: str) -> float:
        """Value of a parameter."""
        return dict(self.parameters)[parameter]

    @property
    def text(self) -> str:
        """As ``compression`` reads it: the name, and the parameters that are not at their defaults."""
        fields = COMPRESSIONS[self.name].fields
        given = ",".join(f"{key}={value}" for key, value in self.parameters if value != fields[key].default)
        return f"{self.name}:{given}" if given else self.name

    @property
    def feedback(self) -> bool:
        """Whether what one message leaves out is kept and added to the next."""
        return COMPRESSIONS[self.name].feedback

    def scales(self, elements: _Count) -> _Count:
        """Number of scales in the message of so many numbers: one, or one a block; none where nothing is scaled."""
        known = dict(self.parameters)
        block = int(known.get("block", 0))
        if "block" not in known or not known.get("normalised", 1):
            return elements * 0
        return -(-elements // block) if block else elements * 0 + 1

    def encoded_bytes(self, elements: _Count) -> _Count:
        """Size of the message of so many numbers, in bytes; it depends on nothing else.

        Args:
            elements: Numbers in the message, >= 0; an array gives an array.

        Raises:
            ConfigError: ``elements`` is negative.
        """
        if np.min(elements, initial=0) < 0:
            raise ConfigError(f"elements must be >= 0, got {np.min(elements)}")
        if self.name in _WIDTH_BYTES:
            return elements * _WIDTH_BYTES[self.name]
        if self.name == "threshold":
            return (1 + -(-elements // int(self["every"]))) * 4  # the count, then 32 bits a sent number
        if self.name == "one-bit":
            return self.scales(elements) * (2 * SCALE_BYTES) + -(-elements // 8)
        return self.scales(elements) * SCALE_BYTES + elements


def compression(spec: str, **parameters: object) -> Compression:
    """A type by name.

    Args:
        spec: Name, and parameters if any: ``dynamic-tree``, ``static-tree:offset=2``, ``linear:block=4096``; several
            are joined by commas.
        parameters: The same by keyword.

            * ``normalised`` (table types): 1: divide by the absolute maximum; 0: do not.
            * ``block`` (table types, ``one-bit``): numbers that share a scale; 0: the whole tensor.
            * ``offset`` (table types): exponent offset: the table times ten to this power.
            * ``top`` (trees): upper end of the bisected interval, whose lower end is 0.1.
            * ``threshold``: size from which a number is sent.
            * ``every`` (``threshold``): at most one number in so many is sent.

    Raises:
        ConfigError: The type (the nearest is named) or a parameter is unknown, or a value breaks its rule.
    """
    name, colon, text = spec.partition(":")
    kind = COMPRESSIONS.get(name)
    if kind is None:
        raise ConfigError(f"data type must be one of {', '.join(COMPRESSIONS)}, got {name!r}{_nearest(name)}")
    given = dict(parameters)
    for setting in text.split(",") if colon else ():
        key, equals, value = setting.partition("=")
        if not equals or key in given:
            raise ConfigError(f"{name} must be given each parameter once, as name=number, got {setting!r}")
        given[key] = value
    values = {key: field.default for key, field in kind.fields.items()}
    for key, setting_value in given.items():
        if key not in kind.fields:
            known = ", ".join(kind.fields) or "none"
            raise ConfigError(f"parameter of {name} must be one of {known}, got {key!r}")
        values[key] = kind.fields[key].read(f"{name}:{key}", setting_value)
    _check_scaling(name, values)
    return Compression(name, tuple(values.items()))


def check_codec_times(profile: ComputeProfile) -> None:
    """Refuse measured times that no type would ever find.

    Raises:
        ConfigError: Their type is unknown, or written in another way than ``Compression.text``.
    """
    for text in dict.fromkeys(kind for kind, _, _ in profile.coding):
        try:
            written = compression(text).text
        except ConfigError as error:
            raise ConfigError(f"compute profile {profile.name}: coding: {error}") from None
        if text != written:
            raise ConfigError(f"compute profile {profile.name}: coding: type must be {written!r}, got {text!r}")


def _check_scaling(name: str, values: Mapping[str, float]) -> None:
    if "normalised" not in values:
        return
    if values["normalised"] and values["offset"]:
        raise ConfigError(
            f"{name}:offset must be 0 with normalised=1: the maximum sets the exponent, got {values['offset']}"
        )
    if not values["normalised"] and values["block"]:
        raise ConfigError(f"{name}:block must be 0 with normalised=0: nothing is scaled, got {values['block']}")


def _nearest(name: str) -> str:
    near = difflib.get_close_matches(name.lower().replace("_", "-"), COMPRESSIONS, n=1, cutoff=0.5)
    return f"; did you mean {near[0]!r}?" if near else ""
