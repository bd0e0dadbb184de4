"""Requests: dataclasses whose fields say what a command line needs to offer them as options."""

from collections.abc import Callable
from dataclasses import field, fields
from functools import cache
from numbers import Integral, Real
from types import UnionType
from typing import Any, Literal, get_args, get_origin, get_type_hints

from groundwork.errors import ConfigError

_MOST_DIGITS = 15
"""Digits of the largest number that is read: more than any count has, and products of four fit a float."""


def option(
    default: Any = ...,
    *,
    help: str,
    metavar: str = "",
    names: tuple[str, ...] = (),
    parser: Callable[[str], Any] | None = None,
    low: int | None = None,
    typed: str = "",
    positional: bool = False,
) -> Any:
    """Declare a field of a request with what the command line says of it.

    A new option is such a field, one place that uses it, and its line of help.

    Args:
        default: Value where none is given; left out, the field is required.
        help: One line for ``--help``.
        metavar: Placeholder for the value in the help, such as ``N``.
        names: Names on the command line where they do not follow from the field's, such as ``("--update-each",)``.
        parser: Turns the text that was typed into the value; raises ``ValueError`` with the rule that it breaks.
        low: Smallest value of a number.
        typed: Default as it would be typed, of a field that holds a tuple: ``1..16`` for (1, 2, 4, 8, 16).
        positional: The field is an argument of the command, without a name before it.
    """
    said = {
        "help": help,
        "metavar": metavar or None,
        "names": names,
        "parser": parser,
        "low": low,
        "typed": typed,
        "positional": positional,
    }
    metadata = {"option": said}
    return field(metadata=metadata) if default is ... else field(default=default, metadata=metadata)


def whole_number(word: str | int) -> int:
    """Return the number that a word stands for, which must be whole and at least 1.

    Raises:
        ConfigError: The word is no such number.
    """
    number = positive_integer(str(word))  # a default comes as a number, not as a word
    if number is None:
        raise ConfigError(f"must be a whole number >= 1, got {str(word)!r}")
    return number


def positive_integer(text: str) -> int | None:
    """Return the number that a text stands for; None unless it is whole, at least 1 and of at most 15 digits."""
    is_number = text.isascii() and text.isdigit() and len(text) <= _MOST_DIGITS and int(text) > 0
    return int(text) if is_number else None


def check_fields(request: Any) -> None:
    """Refuse a request one of whose fields has a value of another type, or one that its ``Literal`` does not list.

    Numbers and texts of other classes, such as NumPy's, are replaced by Python's own, which files of plans hold.
    Fields that hold tuples are left to the request.

    Raises:
        ConfigError: Names the field, its choices or its type, and the value.
    """
    kind: Any = type(request)
    for name, (plain, optional) in _types(kind).items():
        value = getattr(request, name)
        if type(value) is plain or (optional and value is None):
            continue
        allowed, rule = _TYPES[plain]
        if not isinstance(value, allowed) or isinstance(value, bool):
            raise ConfigError(f"{name} must be {rule}, got {value!r}")
        if type(value) is not int:  # which a number with a fraction may be, and is printed as it was typed
            object.__setattr__(request, name, plain(value))
    for name, choices in _choices(kind).items():
        value = getattr(request, name)
        if value not in choices:
            named = [choice for choice in choices if choice is not None]
            listed = " or ".join(named) if len(named) == 2 else f"one of {', '.join(named)}"
            raise ConfigError(f"{name} must be {listed}, got {value!r}")


_TYPES: dict[Any, tuple[type, str]] = {
    bool: (bool, "true or false"),
    int: (Integral, "a whole number"),
    float: (Real, "a number"),
    str: (str, "text"),
}
"""Classes of the values of a field, and their rule, by the type that it is declared with."""


@cache
def _types(kind: Any) -> dict[str, tuple[Any, bool]]:
    """Return of each field that holds one of ``_TYPES`` that type, and whether it may be None."""
    found = {}
    for name, hint in get_type_hints(kind).items():
        either = get_args(hint) if isinstance(hint, UnionType) else (hint,)
        plain = [each for each in either if each is not type(None)]
        if len(plain) == 1 and plain[0] in _TYPES:
            found[name] = plain[0], len(either) > 1
    return found


@cache
def _choices(kind: Any) -> dict[str, tuple[str | None, ...]]:
    """Return the choices of each field of a dataclass whose type is a ``Literal``."""
    hints = get_type_hints(kind)
    return {each.name: listed for each in fields(kind) if (listed := _listed(hints[each.name]))}


def _listed(hint: Any) -> tuple[str | None, ...]:
    """Return the values of a ``Literal``, with None where the type allows it; nothing for other types."""
    if get_origin(hint) is Literal:
        return get_args(hint)
    optional = [each for each in get_args(hint) if get_origin(each) is Literal]
    return (*get_args(optional[0]), None) if optional and type(None) in get_args(hint) else ()
