"""Keys and columns that were renamed: files, stores and conditions with the old names are still read."""

import re
import sys
from collections.abc import Mapping
from typing import Any

import pandas as pd

RENAMED_KEYS = {"exchange": "gradient_sync"}
"""New name of every key that was renamed, by its old name."""


def with_new_keys(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of a mapping by their new keys; an old key stays where the new one is there too."""
    return {
        new if (new := RENAMED_KEYS.get(key, key)) == key or new not in values else key: value
        for key, value in values.items()
    }


def with_old_columns(frame: pd.DataFrame, condition: str) -> pd.DataFrame:
    """Return a frame with the columns of old names that a condition uses, and warn of each."""
    for old, new in RENAMED_KEYS.items():
        if old not in frame.columns and new in frame.columns and re.search(rf"\b{old}\b", condition):
            warn_of_old_key(old, f"condition {condition!r}")
            frame = frame.assign(**{old: frame[new]})
    return frame


def new_column(frame: pd.DataFrame, option: str, name: str) -> str:
    """Return the new name of a column that an option names, and warn if it gives the old one."""
    if name in frame.columns or RENAMED_KEYS.get(name) not in frame.columns:
        return name
    warn_of_old_key(name, option)
    return RENAMED_KEYS[name]


def warn_of_old_key(old: str, where: str) -> None:
    """Print one line on standard error that a key has a new name, as the command line does for its options."""
    new = RENAMED_KEYS[old]
    print(f"orrery: {old} in {where} is now called {new}; the old name works in this version only", file=sys.stderr)
