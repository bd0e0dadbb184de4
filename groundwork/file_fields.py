"""Types of the fields of files that several kinds of file have, as pydantic checks them."""

from typing import Annotated

from pydantic import BeforeValidator, Field


def one_or_more(value: object) -> object:
    """Return a value as a list: files may give one value in place of a list of one."""
    return value if isinstance(value, list) else [value]


def _whole(value: object) -> object:
    if isinstance(value, bool) or not isinstance(value, int):
        raise ValueError("must be a whole number")
    return value


Whole = Annotated[int, Field(ge=1), BeforeValidator(_whole)]
"""A whole number from 1 on; neither a text nor a truth value stands for one."""
SomeTexts = Annotated[tuple[str, ...], Field(min_length=1), BeforeValidator(one_or_more)]
"""A text, or a list of at least one."""
Switch = Annotated[bool | None, Field(strict=True)]
"""True or false; None, as where the key is left out, takes what is usual."""
