"""Results of sweeps as a table: priced, filtered, sorted, exported."""

import math
from collections.abc import Iterable, Mapping
from pathlib import Path

import pandas as pd

from groundwork.errors import ConfigError
from groundwork.suggestions import did_you_mean
from studies.sweep.conditions import selected

_ALL = "all"
"""Word that stands for all columns."""


def priced(frame: pd.DataFrame, prices: Mapping[str, float]) -> pd.DataFrame:
    """Return the results with ``money_per_million_samples``, and ``money_per_million_tokens`` where there are tokens.

    Args:
        frame: Result of ``Store.to_frame``.
        prices: Price of an hour of one device by cluster; under the empty name that of all others.
    """
    if "device_hours_per_million_samples" not in frame:  # no point has a plan
        return frame
    price = frame["cluster"].map(lambda cluster: prices.get(cluster, prices.get("", math.nan)))
    money = frame["device_hours_per_million_samples"] * price
    frame = frame.assign(money_per_million_samples=money)
    if "tokens_per_s" not in frame:
        return frame
    return frame.assign(money_per_million_tokens=money * frame["samples_per_s"] / frame["tokens_per_s"])


def result_table(frame: pd.DataFrame, *, where: Iterable[str] = (), sort: str = "", columns: str = "") -> pd.DataFrame:
    """Return the rows that meet all conditions, sorted, with the chosen columns.

    Args:
        frame: Result of ``Store.to_frame``.
        where: Conditions such as ``devices <= 96 and strategy == 'data'``; a name with dots stands in backticks.
        sort: Column, descending with ``-`` before it; empty: as stored.
        columns: Names, separated by commas; empty or ``all``: all.

    Raises:
        ConfigError: A condition cannot be evaluated, a column is unknown, or one is named twice.
    """
    for condition in where:
        frame = frame.loc[selected(frame, condition, "where")]
    if sort:
        name = _column(frame, "sort", sort.removeprefix("-"))
        frame = frame.sort_values(name, ascending=not sort.startswith("-"), kind="stable")
    if columns and columns != _ALL:
        names = [_column(frame, "columns", name.strip()) for name in columns.split(",")]
        if len(set(names)) < len(names):
            raise ConfigError(f"columns must differ, got {max(names, key=names.count)!r} twice")
        frame = frame[names]
    return frame.reset_index(drop=True)


def _column(frame: pd.DataFrame, option: str, name: str) -> str:
    """Return the name of a column, or raise where there is none."""
    if name in frame.columns:
        return name
    hint = did_you_mean(name, frame.columns)
    raise ConfigError(f"{option} must name one of {', '.join(frame.columns)}, got {name!r}{hint}")


def exported(frame: pd.DataFrame, path: Path) -> None:
    """Write a frame as CSV or Parquet, by the suffix of the file's name.

    Raises:
        ConfigError: The suffix is another, or Parquet's library is not installed.
    """
    if path.suffix == ".csv":
        frame.to_csv(path, index=False)
    elif path.suffix == ".parquet":
        try:
            frame.to_parquet(path, index=False)
        except ImportError:
            raise ConfigError(
                "Parquet needs pyarrow, which is not installed: pip install 'orrery-training[parquet]'"
            ) from None
    else:
        raise ConfigError(f"table must be written to a .csv or .parquet file, got {path.name!r}")
