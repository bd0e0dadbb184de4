"""Names of options and JSON fields that were changed: the old ones work for one version, as ``CHANGELOG.md`` lists."""

import sys
from collections.abc import Sequence
from typing import Any

OLD_OPTIONS = {
    "--codings": "--codecs",
    "--exchange": "--gradient-sync",
    "--exchange-order": "--gradient-sync-order",
    "--stand-in-codes": "--stand-in-compression",
}
"""New name of every option that was renamed, by its old name, which the help does not show."""
OLD_FIELDS = {
    "gradient_sync": ("exchange",),
    "gradient_sync_order": ("exchange_order",),
    "gradient_sync_s": ("exchange_s", "gradient_exchange_s"),
    "gradient_syncs": ("exchanges",),
    "headline": ("answer",),
    "micro_batching": ("cut",),
    "occupancy_model": ("reading",),
    "stand_in_compression": ("stand_in_codes",),
}
"""Old names of every JSON field that was renamed, by its new name; JSON output has all of them."""


def with_new_options(words: Sequence[str]) -> list[str]:
    """Return the words of a command line with renamed options by their new names, and warn once of each old one.

    Args:
        words: Words after the program's name; ``--exchange ring`` and ``--exchange=ring`` are both known.
    """
    renamed, warned = list(words), set[str]()
    end = renamed.index("--") if "--" in renamed else len(renamed)
    for at, word in enumerate(renamed[:end]):
        name, is_assigned, value = word.partition("=")
        if name in OLD_OPTIONS:
            renamed[at] = OLD_OPTIONS[name] + is_assigned + value
            if name not in warned:
                new = OLD_OPTIONS[name]
                print(f"orrery: {name} is now called {new}; the old name works in this version only", file=sys.stderr)
            warned.add(name)
    return renamed


def with_old_fields(value: Any) -> Any:
    """Return a JSON value in which every renamed field has its old name, too.

    Args:
        value: Dictionaries, lists, numbers and text, as ``msgspec.to_builtins`` makes them.
    """
    if isinstance(value, dict):
        fields = {name: with_old_fields(each) for name, each in value.items()}
        old = {name: each for new, each in fields.items() for name in OLD_FIELDS.get(new, ())}
        return {**old, **fields}
    if isinstance(value, list) and value and not isinstance(value[0], int | float | str):
        return [with_old_fields(each) for each in value]  # long lists of numbers hold no fields
    return value
