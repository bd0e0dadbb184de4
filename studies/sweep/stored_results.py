"""Results as a table: filtered, sorted, exported."""

import difflib
from collections.abc import Iterable
from pathlib import Path

import pandas as pd

from hwprofiles import ConfigError
from studies.sweep.sweep_file import selected

__all__ = ["check_suffix", "exported", "result_table"]

_ALL = "all"
"""In place of names of columns."""


def result_table(frame: pd.DataFrame, *, where: Iterable[str] = (), sort: str = "", columns: str = "") -> pd.DataFrame:
    """Rows that meet all conditions, sorted, with the columns asked for.

    Args:
        frame: As ``Store.to_frame`` gives it.
        where: Conditions such as ``devices <= 96 and strategy == 'data'``; a name with points stands in backticks.
        sort: Column, descending with ``-`` before it; empty: as stored.
        columns: Names, separated by commas; empty or ``all``: all.

    Raises:
        ConfigError: A condition cannot be used, or there is no such column.
    """
    for condition in where:
        frame = frame.loc[selected(frame, condition, "where")]
    if sort:
        name = _column(frame, "sort", sort.removeprefix("-"))
        frame = frame.sort_values(name, ascending=not sort.startswith("-"), kind="stable")
    if columns and columns != _ALL:
        frame = frame[[_column(frame, "columns", name.strip()) for name in columns.split(",")]]
    return frame.reset_index(drop=True)


def _column(frame: pd.DataFrame, option: str, name: str) -> str:
    if name in frame.columns:
        return name
    near = difflib.get_close_matches(name, frame.columns, n=1)
    hint = f"; did you mean {near[0]!r}?" if near else ""
    raise ConfigError(f"{option} must name one of {', '.join(frame.columns)}, got {name!r}{hint}")


def check_suffix(path: Path, suffix: str) -> None:
    """Refuse a file whose name ends otherwise than its kind.

    Raises:
        ConfigError: It does.
    """
    if path.suffix != suffix:
        raise ConfigError(f"{suffix.removeprefix('.')} must be written to a {suffix} file, got {path.name!r}")


def exported(frame: pd.DataFrame, path: Path) -> None:
    """Write a frame as CSV or Parquet, as the file's name ends.

    Raises:
        ConfigError: The name ends otherwise, or Parquet's library is not installed.
    """
    if path.suffix == ".csv":
        frame.to_csv(path, index=False)
    elif path.suffix == ".parquet":
        try:
            frame.to_parquet(path, index=False)
        except ImportError:
            raise ConfigError("Parquet needs the extra: pip install 'orrery[parquet]'") from None
    else:
        raise ConfigError(f"table must be written to a .csv or .parquet file, got {path.name!r}")
