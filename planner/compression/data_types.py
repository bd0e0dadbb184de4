"""Data types that messages are compressed with: names, parameters, and sizes of messages; the executor has the codecs.

The types are those of Dettmers, "8-Bit Approximations for Parallelism in Deep Learning", ICLR 2016 (dynamic tree,
static tree, linear quantization, mantissa) and those it is compared with: one bit an element (Seide et al.,
Interspeech 2014), a threshold (Strom, Interspeech 2015), half-width floats, and float32 itself.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from groundwork.errors import ConfigError
from groundwork.suggestions import did_you_mean
from hwprofiles.compute.compute_profile import ComputeProfile

_Count = TypeVar("_Count", int, NDArray[np.int64])

SCALE_BYTES = 4
"""Size of a scale in a message."""
_WIDTH_BYTES = {"float16": 2, "bfloat16": 2, "float32": 4}


@dataclass(frozen=True, slots=True)
class _Rule:
    """Rule of a parameter."""

    text: str
    """What a value must be, in error messages."""
    allows: Callable[[float], bool]
    whole: bool = True


_RULES = {
    "normalised": _Rule("an integer from 0 to 1", lambda value: value in (0, 1)),
    # the bounds keep every value of every table a normal float32
    "offset": _Rule("an integer from -28 to 37", lambda value: -28 <= value <= 37),
    "block": _Rule(
        "0 (the whole tensor) or a power of two from 64 to 65536",
        lambda value: value in (0, *(2**power for power in range(6, 17))),
    ),
    "top": _Rule("a number above 0.1 and up to 1", lambda value: 0.1 < value <= 1, whole=False),
    "threshold": _Rule("a number from 1e-30 to 1e30", lambda value: 1e-30 <= value <= 1e30, whole=False),
    "every": _Rule("an integer from 1 to 65536", lambda value: 1 <= value <= 65536),
}
"""Rules of the parameters; a parameter has the same in every type."""
_DEFAULTS: Mapping[str, Mapping[str, float]] = {
    "dynamic-tree": {"normalised": 1, "offset": 0, "block": 0, "top": 1.0},
    "static-tree": {"normalised": 0, "offset": 0, "block": 0, "top": 1.0},
    "linear": {"normalised": 1, "offset": 0, "block": 0},
    "mantissa": {"normalised": 0, "offset": 0, "block": 0},
    "one-bit": {"block": 0},
    "threshold": {"threshold": 1e-3, "every": 32},
    "float16": {},
    "bfloat16": {},
    "float32": {},
}
"""Parameters of every type with their defaults, in order."""
COMPRESSIONS = tuple(_DEFAULTS)
"""Names of all types."""
_FEEDBACK = ("one-bit", "threshold")
"""Types that keep the part of a tensor that one message omits, and add it to the next."""


@dataclass(frozen=True, slots=True)
class Compression:
    """A data type with its parameters; made by ``compression``."""

    name: str
    parameters: tuple[tuple[str, float], ...] = ()
    """All parameters of the type with their values, in the order of the type."""

    def __getitem__(self, parameter: str) -> float:
        """Return the value of a parameter."""
        return dict(self.parameters)[parameter]

    @property
    def text(self) -> str:
        """Text that ``compression`` reads: the name, and the parameters that are not at their defaults."""
        defaults = _DEFAULTS[self.name]
        given = ",".join(f"{key}={value}" for key, value in self.parameters if value != defaults[key])
        return f"{self.name}:{given}" if given else self.name

    @property
    def feedback(self) -> bool:
        """True if the part of a tensor that one message omits is kept and added to the next."""
        return self.name in _FEEDBACK

    def scales(self, elements: _Count) -> _Count:
        """Return the number of scales in a message: one, or one a block; none if nothing is scaled.

        Args:
            elements: Elements in the message; an array gives an array.
        """
        values = dict(self.parameters)
        block = int(values.get("block", 0))
        if "block" not in values or not values.get("normalised", 1):
            return elements * 0
        return -(-elements // block) if block else elements * 0 + 1

    def compressed_bytes(self, elements: _Count) -> _Count:
        """Return the size of a message, in bytes; it depends on the number of elements alone.

        Args:
            elements: Elements in the message, >= 0; an array gives an array.

        Raises:
            ConfigError: ``elements`` is negative.
        """
        if np.min(elements, initial=0) < 0:
            raise ConfigError(f"elements must be >= 0, got {np.min(elements)}")
        if self.name in _WIDTH_BYTES:
            return elements * _WIDTH_BYTES[self.name]
        if self.name == "threshold":
            return (1 + -(-elements // int(self["every"]))) * 4  # the count, then 32 bits for each element sent
        if self.name == "one-bit":
            return self.scales(elements) * (2 * SCALE_BYTES) + -(-elements // 8)
        return self.scales(elements) * SCALE_BYTES + elements


def compression(spec: str, **parameters: object) -> Compression:
    """Return the data type of a name, with parameters.

    Args:
        spec: Name, and parameters if any: ``dynamic-tree``, ``static-tree:offset=2``, ``linear:block=4096``; several
            are joined by commas.
        **parameters: The same by keyword.

            * ``normalised`` (table types): 1: divide by the absolute maximum; 0: do not.
            * ``block`` (table types, ``one-bit``): elements that share a scale; 0: the whole tensor.
            * ``offset`` (table types): exponent offset: the table times ten to this power.
            * ``top`` (trees): upper end of the bisected interval, whose lower end is 0.1.
            * ``threshold``: least size of an element that is sent.
            * ``every`` (``threshold``): at most one element in so many is sent.

    Raises:
        ConfigError: The type (the message suggests the nearest) or a parameter is unknown, or a value breaks its rule.
    """
    name, colon, text = spec.partition(":")
    if name not in COMPRESSIONS:
        hint = did_you_mean(name, COMPRESSIONS, cutoff=0.5)
        raise ConfigError(f"data type must be one of {', '.join(COMPRESSIONS)}, got {name!r}{hint}")
    given = dict(parameters)
    for setting in text.split(",") if colon else ():
        key, equals, value = setting.partition("=")
        if not equals or key in given:
            raise ConfigError(f"{name} must be given each parameter once, as name=number, got {setting!r}")
        given[key] = value
    values = {**_DEFAULTS[name], **{key: _value(name, key, value) for key, value in given.items()}}
    _check_scaling(name, values)
    return Compression(name, tuple(values.items()))


def check_codec_times(profile: ComputeProfile) -> None:
    """Refuse measured codec times of a profile under names that no ``Compression.text`` is.

    Raises:
        ConfigError: A type is unknown, or written in another way than ``Compression.text``.
    """
    for text in dict.fromkeys(kind for kind, _, _ in profile.codecs):
        try:
            written = compression(text).text
        except ConfigError as error:
            raise ConfigError(f"compute profile {profile.name}: compression: {error}") from None
        if text != written:
            raise ConfigError(f"compute profile {profile.name}: compression: type must be {written!r}, got {text!r}")


def _value(name: str, key: str, given: object) -> float:
    """Return the value of a parameter of a type from a number or its text; truth values are no numbers.

    Raises:
        ConfigError: The type has no such parameter, or the value breaks its rule.
    """
    if key not in _DEFAULTS[name]:
        raise ConfigError(f"parameter of {name} must be one of {', '.join(_DEFAULTS[name]) or 'none'}, got {key!r}")
    rule = _RULES[key]
    try:
        value = math.nan if isinstance(given, bool) else float(given)  # type: ignore[arg-type]  # caught below
    except (TypeError, ValueError, OverflowError):
        value = math.nan
    if not rule.allows(value) or (rule.whole and not value.is_integer()):
        raise ConfigError(f"{name}:{key} must be {rule.text}, got {given!r}")
    return int(value) if rule.whole else value


def _check_scaling(name: str, values: Mapping[str, float]) -> None:
    """Refuse an exponent offset of normalised tables, and blocks of tables that are not normalised."""
    if "normalised" not in values:
        return
    if values["normalised"] and values["offset"]:
        raise ConfigError(
            f"{name}:offset must be 0 with normalised=1: the maximum sets the exponent, got {values['offset']}"
        )
    if not values["normalised"] and values["block"]:
        raise ConfigError(f"{name}:block must be 0 with normalised=0: nothing is scaled, got {values['block']}")
