"""Rules that the content of a file breaks, in words: one text for every kind of file."""

import re
import reprlib
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from groundwork.suggestions import did_you_mean

if TYPE_CHECKING:
    from pydantic import ValidationError


_UNKNOWN_KEYS = ("extra_forbidden", "unexpected_keyword_argument")


def broken_rules(
    error: "ValidationError", *, known: Callable[[Sequence[int | str]], Sequence[str]] = lambda location: ()
) -> str:
    """Return all rules that a content breaks on one line: path of the field, rule, and the value given.

    Args:
        error: Errors of pydantic; their kinds decide, and their texts are adapted to those of other messages.
        known: Keys that are allowed at a location; the message has the nearest to an unknown key, or else all.
    """
    return "; ".join(_broken_rule(dict(row), known) for row in error.errors(include_url=False))


def _broken_rule(row: Mapping[str, Any], known: Callable[[Sequence[int | str]], Sequence[str]]) -> str:
    """Return one broken rule in words."""
    location, kind = row["loc"], row["type"]
    where = ".".join(map(str, location)) or "file"
    if kind in _UNKNOWN_KEYS:
        keys = known(location)
        near = did_you_mean(location[-1], keys)
        return f"{where}: unknown key" + (near or (f", must be one of {', '.join(keys)}" if keys else ""))
    if kind == "missing":
        return f"{where}: missing"
    if kind in ("value_error", "assertion_error"):
        rule = str(row["ctx"]["error"])  # a check of ours has written the whole rule
    else:
        rule = re.sub(r"^(Input|Tuple) should", "must", row["msg"]).replace("dictionary", "mapping")
    got = "" if isinstance(row["input"], Mapping) or "got " in rule else f", got {reprlib.repr(row['input'])}"
    return f"{where}: {rule}{got}"
