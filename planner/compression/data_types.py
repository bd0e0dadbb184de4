"""Data types that messages are compressed with: names, parameters, and sizes of messages; the executor has the codecs.

The types are those of Dettmers, "8-Bit Approximations for Parallelism in Deep Learning", ICLR 2016 (dynamic tree,
static tree, linear quantization, mantissa) and those it is compared with: one bit an element (Seide et al.,
Interspeech 2014), a threshold (Strom, Interspeech 2015), half-width floats, and float32 itself.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, ClassVar, TypeVar

import numpy as np
from numpy.typing import NDArray
from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from hwprofiles import ConfigError, did_you_mean
from hwprofiles.compute import ComputeProfile

__all__ = ["COMPRESSIONS", "SCALE_BYTES", "Compression", "check_codec_times", "compression", "compression_names"]

_Count = TypeVar("_Count", int, NDArray[np.int64])

SCALE_BYTES = 4
"""Size of a scale in a message."""
_WIDTH_BYTES = {"float16": 2, "bfloat16": 2, "float32": 4}
_BLOCKS = (0, *(2**power for power in range(6, 17)))


def _number(value: object) -> float:
    """Return a number or its text as a float; truth values are no numbers."""
    try:
        number = float("nan") if isinstance(value, bool) else float(value)  # type: ignore[arg-type]  # caught below
    except TypeError as error:
        raise ValueError("not a number") from error
    return number


def _block(value: int) -> int:
    """Return a size of blocks if it is allowed."""
    if value not in _BLOCKS:
        raise ValueError("not a size of blocks")
    return value


# the descriptions are the rules in error messages
_Number = BeforeValidator(_number)
_Flag = Annotated[int, Field(ge=0, le=1, description="an integer from 0 to 1"), _Number]
_Offset = Annotated[int, Field(ge=-28, le=37, description="an integer from -28 to 37"), _Number]
_Block = Annotated[
    int, Field(description="0 (the whole tensor) or a power of two from 64 to 65536"), AfterValidator(_block), _Number
]
_Top = Annotated[float, Field(gt=0.1, le=1, description="a number above 0.1 and up to 1"), _Number]
_Threshold = Annotated[float, Field(ge=1e-30, le=1e30, description="a number from 1e-30 to 1e30"), _Number]
_Every = Annotated[int, Field(ge=1, le=65536, description="an integer from 1 to 65536"), _Number]


class _Parameters(BaseModel):
    """Parameters of a data type; a type without any has this class."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    feedback: ClassVar[bool] = False
    """True if the part of a tensor that one message omits is kept and added to the next."""


class _Table(_Parameters):
    """Parameters of types whose values are those of a table."""

    normalised: _Flag = 1
    offset: _Offset = 0  # the bounds keep every value of every table a normal float32
    block: _Block = 0


class _Tree(_Table):
    """Parameters of the dynamic tree, whose bits bisect an interval."""

    top: _Top = 1.0


class _StaticTree(_Tree):
    """Parameters of the static tree."""

    normalised: _Flag = 0


class _Mantissa(_Table):
    """Parameters of a type of exponent and mantissa."""

    normalised: _Flag = 0


class _OneBit(_Parameters):
    """Parameters of one bit an element."""

    feedback = True

    block: _Block = 0


class _ThresholdType(_Parameters):
    """Parameters of a threshold."""

    feedback = True

    threshold: _Threshold = 1e-3
    every: _Every = 32


COMPRESSIONS: Mapping[str, type[_Parameters]] = {
    "dynamic-tree": _Tree,
    "static-tree": _StaticTree,
    "linear": _Table,
    "mantissa": _Mantissa,
    "one-bit": _OneBit,
    "threshold": _ThresholdType,
    "float16": _Parameters,
    "bfloat16": _Parameters,
    "float32": _Parameters,
}
"""Parameters of every type, by the type's name."""


def compression_names() -> list[str]:
    """Return the names of all types."""
    return list(COMPRESSIONS)


@dataclass(frozen=True, slots=True)
class Compression:
    """A data type with its parameters; made by ``compression``."""

    name: str
    parameters: tuple[tuple[str, float], ...] = ()
    """All parameters of the type with their values, in the order of its class in ``COMPRESSIONS``."""

    def __getitem__(self, parameter: str) -> float:
        """Return the value of a parameter."""
        return dict(self.parameters)[parameter]

    @property
    def text(self) -> str:
        """Text that ``compression`` reads: the name, and the parameters that are not at their defaults."""
        fields = COMPRESSIONS[self.name].model_fields
        given = ",".join(f"{key}={value}" for key, value in self.parameters if value != fields[key].default)
        return f"{self.name}:{given}" if given else self.name

    @property
    def feedback(self) -> bool:
        """True if the part of a tensor that one message omits is kept and added to the next."""
        return COMPRESSIONS[self.name].feedback

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
        raise ConfigError(f"data type must be one of {', '.join(COMPRESSIONS)}, got {name!r}{_suggestion(name)}")
    given = dict(parameters)
    for setting in text.split(",") if colon else ():
        key, equals, value = setting.partition("=")
        if not equals or key in given:
            raise ConfigError(f"{name} must be given each parameter once, as name=number, got {setting!r}")
        given[key] = value
    try:
        values: dict[str, float] = COMPRESSIONS[name].model_validate(given).model_dump()
    except ValidationError as error:
        raise ConfigError(_broken_rule(name, error, given)) from None
    _check_scaling(name, values)
    return Compression(name, tuple(values.items()))


def _broken_rule(name: str, error: ValidationError, given: Mapping[str, object]) -> str:
    """Return the message for the first parameter of a type that is unknown or breaks its rule."""
    fields = COMPRESSIONS[name].model_fields
    broken = {str(detail["loc"][0]) for detail in error.errors()}
    key = next(key for key in given if key in broken)
    if key not in fields:
        return f"parameter of {name} must be one of {', '.join(fields) or 'none'}, got {key!r}"
    return f"{name}:{key} must be {fields[key].description}, got {given[key]!r}"


def check_codec_times(profile: ComputeProfile) -> None:
    """Refuse measured codec times of a profile under names that no ``Compression.text`` is.

    Raises:
        ConfigError: A type is unknown, or written in another way than ``Compression.text``.
    """
    for text in dict.fromkeys(kind for kind, _, _ in profile.codecs):
        try:
            written = compression(text).text
        except ConfigError as error:
            raise ConfigError(f"compute profile {profile.name}: coding: {error}") from None
        if text != written:
            raise ConfigError(f"compute profile {profile.name}: coding: type must be {written!r}, got {text!r}")


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


def _suggestion(name: str) -> str:
    """Return a suggestion of the nearest type, whatever the case of ``name``, with hyphens for underscores."""
    written = name.lower().replace("_", "-")
    known = written in COMPRESSIONS
    return f"; did you mean {written!r}?" if known else did_you_mean(written, COMPRESSIONS, cutoff=0.5)
