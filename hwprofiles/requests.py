"""Fields of requests: what a command line needs to offer a dataclass's fields as options."""

from collections.abc import Callable
from dataclasses import field
from typing import Any

__all__ = ["option"]


def option(
    default: Any = ..., *, help: str, metavar: str = "", names: tuple[str, ...] = (),
    parser: Callable[[str], Any] | None = None, low: int | None = None, typed: str = "",
) -> Any:  # fmt: skip
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
    """
    said = {"help": help, "metavar": metavar or None, "names": names, "parser": parser, "low": low, "typed": typed}
    metadata = {"option": said}
    return field(metadata=metadata) if default is ... else field(default=default, metadata=metadata)
