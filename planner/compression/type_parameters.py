"""Parameters of the data types, checked by pydantic; loaded only where parameters are read, not by every rank."""

from collections.abc import Mapping
from typing import Annotated

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from groundwork.errors import ConfigError

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

    block: _Block = 0


class _ThresholdType(_Parameters):
    """Parameters of a threshold."""

    threshold: _Threshold = 1e-3
    every: _Every = 32


_PARAMETERS: Mapping[str, type[_Parameters]] = {
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


def default_parameters(name: str) -> dict[str, float]:
    """Return the parameters of a data type with their defaults, in order."""
    return {key: field.default for key, field in _PARAMETERS[name].model_fields.items()}


def read_type_parameters(name: str, given: Mapping[str, object]) -> dict[str, float]:
    """Return all parameters of a data type, in order: the given ones, and defaults.

    Raises:
        ConfigError: A parameter is unknown or breaks its rule.
    """
    try:
        return _PARAMETERS[name].model_validate(given).model_dump()
    except ValidationError as error:
        raise ConfigError(_broken_rule(name, error, given)) from None


def _broken_rule(name: str, error: ValidationError, given: Mapping[str, object]) -> str:
    """Return the message for the first parameter of a type that is unknown or breaks its rule."""
    fields = _PARAMETERS[name].model_fields
    broken = {str(detail["loc"][0]) for detail in error.errors()}
    key = next(key for key in given if key in broken)
    if key not in fields:
        return f"parameter of {name} must be one of {', '.join(fields) or 'none'}, got {key!r}"
    return f"{name}:{key} must be {fields[key].description}, got {given[key]!r}"
