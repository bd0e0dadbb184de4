"""Columns and table of the results of sweeps, for the terminal."""

import math
import re
from collections.abc import Sequence
from typing import Any

import pandas as pd
from pandas.api.types import is_bool_dtype, is_integer_dtype, is_numeric_dtype
from rich.table import Table

from reports.style.units import Unit, byte_unit, memory_unit, plain_unit, time_unit
from reports.tables.text_table import text_table

_UNITS = {"_per_s": plain_unit, "memory_bytes": memory_unit, "_bytes": byte_unit, "_s": time_unit}
"""Functions that choose the unit, by the end of a column's name; the first that fits is taken."""

_OF_ITERATION = ("expected_s", "iteration_s", "likely_low_s", "likely_high_s", "additive_s")
"""Times of one iteration, which stand side by side and have one unit."""

_HEADER = 14
"""Largest number of characters of a header's line, if it can be broken."""

RESULTS = (
    "expected_s",
    "iteration_s",
    "status",
    "devices",
    "samples_per_s",
    "tokens_per_s",
    "mfu",
    "device_hours_per_million_samples",
    "money_per_million_samples",
    "money_per_million_tokens",
    "peak_memory_bytes",
    "exposed_communication_s",
    "moved_bytes",
    "compute_s",
    "additive_s",
    "likely_low_s",
    "likely_high_s",
    "idle_s",
    "hfu",
    "parameters_memory_bytes",
    "gradients_memory_bytes",
    "optimizer_state_memory_bytes",
    "activations_memory_bytes",
    "buffers_memory_bytes",
    "tasks",
    "seconds",
)
"""Columns of results, the most important first; all other columns identify the point."""


def column_texts(frame: pd.DataFrame, name: str) -> tuple[str, list[str]]:
    """Return a column's header with its unit, and its cells; a dash for missing values."""
    values = frame[name]
    if is_answer(values):
        return name, ["–" if pd.isna(value) else "yes" if value else "no" for value in values.astype(object)]
    if not is_numeric_dtype(values):
        return name, [text if text and not pd.isna(text) else "–" for text in values.astype(object)]
    numbers: list[float] = values.astype(float).tolist()
    if is_integer_dtype(values):
        return name, [f"{number:,.0f}" for number in numbers]
    unit, whole = column_unit(frame, name), is_whole(name, numbers)
    texts = [f"{number:,.0f}" if whole and number == number else unit.text(number) for number in numbers]
    return f"{column_label(name)} [{unit.name}]" if unit.name else name, texts


def is_answer(values: "pd.Series[Any]") -> bool:
    """Return whether a column holds answers, yes or no; missing ones aside."""
    known = values.dropna()
    return is_bool_dtype(values) or (len(known) > 0 and all(isinstance(each, bool) for each in known))


def is_whole(name: str, numbers: Sequence[float]) -> bool:
    """Return whether a column counts something: it has no unit, and no number in it has decimals."""
    has_unit = any(name.endswith(suffix) for suffix in _UNITS)
    return not has_unit and all(number == round(number) for number in numbers if math.isfinite(number))


def column_unit(frame: pd.DataFrame, name: str) -> Unit:
    """Choose the unit of a column by the end of its name, and by the values of all columns that share it."""
    shared = [each for each in _OF_ITERATION if each in frame] if name in _OF_ITERATION else [name]
    numbers: list[float] = frame[shared].astype(float).to_numpy().ravel().tolist()
    return next((choose for suffix, choose in _UNITS.items() if name.endswith(suffix)), plain_unit)(numbers)


def column_label(name: str) -> str:
    """Return a column's name without its SI unit."""
    return name if name.endswith("_per_s") else name.removesuffix("_bytes").removesuffix("_s")


def fitting_columns(frame: pd.DataFrame, width: int) -> list[str]:
    """Return the columns that fit: those that vary, then the most important results.

    Returns:
        Names in the frame's order.  A column with one value takes no room, because it is in the title; errors, which
        are sentences, are left to ``reason_lines``.
    """
    single = _single(frame)
    room = width - 1 - sum(_width(frame, name) for name in frame.columns if name not in {*RESULTS, "error", *single})
    shown = set(single)
    for name in (name for name in RESULTS if name in frame.columns and name not in single):
        room -= _width(frame, name)
        if room < 0 and name != RESULTS[0]:
            break
        shown.add(name)
    return [name for name in frame.columns if name in shown or name not in {*RESULTS, "error"}]


def _width(frame: pd.DataFrame, name: str) -> int:
    """Return the number of characters of a column, with its border and the space on both sides."""
    header, texts = column_texts(frame, name)
    return max(map(len, (*_broken(header).split("\n"), *texts)), default=0) + 3


def _broken(header: str) -> str:
    """Return a header with line breaks after points, underscores and spaces, if it is long."""
    lines = [""]
    for piece in re.split(r"(?<=[._ ])", header):
        if len(lines[-1] + piece.rstrip()) > _HEADER and lines[-1]:
            lines.append("")
        lines[-1] += piece
    return "\n".join(line.rstrip() for line in lines)


def _single(frame: pd.DataFrame) -> list[str]:
    """Return the columns that have the same value in all rows."""
    return [name for name in frame.columns if len(frame) > 1 and frame[name].nunique(False) == 1]


def reason_lines(frame: pd.DataFrame) -> list[str]:
    """Return a sentence for each status of points without a result, with its first reason."""
    if not {"status", "error"} <= set(frame.columns):
        return []
    rows = frame[frame["status"] != "ok"].groupby("status", sort=True)["error"]
    more = {status: reasons.nunique() - 1 for status, reasons in rows}
    return [
        f"{len(reasons):,} {status}: {reasons.iloc[0]}"
        + (f" (other reasons: {more[status]:,}, in the column error)" if more[status] else "")
        for status, reasons in rows
    ]


def sweep_table(frame: pd.DataFrame) -> Table:
    """Return the table with one row for each point; columns with one value are in the title, empty ones nowhere."""
    single = _single(frame)
    values = [(name, frame[name].iloc[0]) for name in single]
    shared = [f"{name} {value}" for name, value in values if value != "" and not pd.isna(value)]
    names = [name for name in frame.columns if name not in single]
    headers, columns = zip(*(column_texts(frame, name) for name in names), strict=True) if names else ((), ())
    words = [i for i, name in enumerate(names) if not is_numeric_dtype(frame[name])]
    rows = zip(*columns, strict=True)
    table = text_table(", ".join(shared) or None, [_broken(header) for header in headers], rows, words=words)
    for column in table.columns:
        column.overflow = "fold"
    return table
