"""Tables of measurements that ship with the package: one CSV file each, units in the names of the columns."""

from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from groundwork.errors import ConfigError
from groundwork.suggestions import did_you_mean

if TYPE_CHECKING:
    import pandas as pd


_FOLDER = Path(__file__).parent


def measured_table_names() -> list[str]:
    """Return the names of the tables, sorted; ``hwprofiles/measured/README.md`` says where each is from."""
    return sorted(path.stem for path in _FOLDER.glob("*.csv"))


def measured_table(name: str) -> "pd.DataFrame":
    """Return a copy of a table.

    Raises:
        ConfigError: There is no such table.
    """
    if name not in measured_table_names():
        raise ConfigError(f"unknown table of measurements {name!r}{did_you_mean(name, measured_table_names())}")
    return _read(name).copy()


@cache
def _read(name: str) -> "pd.DataFrame":
    """Read a table once."""
    import pandas as pd  # imported here, as few commands read tables and pandas takes long to load

    return pd.read_csv(_FOLDER / f"{name}.csv")
