"""Page of a sweep: axes chosen by the reader, Pareto fronts, and every point."""

from typing import Any

import numpy as np
import pandas as pd
from pandas.api.types import is_numeric_dtype

from groundwork.errors import ConfigError
from reports.pages.page_template import rendered
from reports.style.packing import pack_json
from reports.style.palette import MARK, SERIES, SYMBOLS
from reports.style.units import time_unit
from reports.tables.sweep_columns import RESULTS, column_label, column_unit, is_answer, is_whole

_ASIDE = ("tasks", "status", "error", "seconds")
_VALUES = {*RESULTS, "time_per_sample_s"} - {"devices", *_ASIDE}
"""Columns that can be drawn over the axes; all other columns are axes."""
_MORE_IS_BETTER = ("samples_per_s", "tokens_per_s", "mfu", "hfu")


def sweep_headline(frame: pd.DataFrame) -> str:
    """Return the finding in one sentence: the point with the most samples per second, of how many points."""
    done = frame[frame["expected_s"].notna()]
    left_out = f", {len(frame) - len(done):,} of them without a plan" if len(done) < len(frame) else ""
    points = f"{len(frame):,} point{'s' * (len(frame) != 1)}{left_out}"
    if not len(done):
        return f"No point has a plan: {points}."
    best = done.iloc[int((done["expected_s"] / done["batch"]).to_numpy().argmin())]
    on = f"{best['devices']:,.0f} devices of " if "devices" in done else ""
    where = f"{best['model']} on {on}{best['cluster']}"
    seconds = float(best["expected_s"])
    return (
        f"{best['strategy']} has the most samples per second, for {where}: batch {best['batch']:,} in "
        f"{time_unit([seconds]).full(seconds)} expected ({points})."
    )


def sweep_html(frame: pd.DataFrame, *, name: str) -> str:
    """Return the page as HTML.

    Raises:
        ConfigError: The frame has no point.
    """
    if frame.empty or "expected_s" not in frame:
        raise ConfigError("a sweep's page needs points with an expected time, the selected rows have none")
    rows = frame.assign(time_per_sample_s=frame["expected_s"] / frame["batch"])  # compares points of different batches
    columns = [_column(rows, column) for column in rows.columns]
    return rendered(
        "sweep.html",
        headline=sweep_headline(frame),
        store=name,
        fixed=[(each["label"], each["values"][0]) for each in columns if each["role"] == "fixed"],
        data={
            "columns": [{**each, "values": pack_json(each["values"])} for each in columns if each["role"] != "fixed"],
            "count": len(rows),
            "looks": {"colours": SERIES, "symbols": SYMBOLS, "mark": MARK},
        },
    )


def _column(frame: pd.DataFrame, name: str) -> dict[str, Any]:
    """Return a column with its unit and role: ``axis``, ``value``, ``aside``, or ``fixed`` if all rows are equal."""
    values = frame[name]
    if is_answer(values):
        values = values.map({True: "yes", False: "no"})
    numeric = is_numeric_dtype(values)
    role = "value" if name in _VALUES else "aside" if name in _ASIDE else "axis"
    if role == "axis" and len(frame) > 1 and values.nunique(dropna=False) == 1:
        role = "fixed"
    whole = bool(numeric) and is_whole(name, values.astype(float).tolist())
    unit = column_unit(frame, name) if numeric and not whole else None
    return {
        "name": name,
        "label": column_label(name).replace("_", " "),
        "unit": unit.name if unit else "",
        "factor": unit.factor if unit else 1.0,
        "role": role,
        "numeric": bool(numeric),
        "whole": whole,
        "more": name in _MORE_IS_BETTER,
        "values": [_plain(value) for value in values.tolist()],
    }


def _plain(value: Any) -> Any:
    """Return a value that JSON can represent; None for missing values."""
    if isinstance(value, float):
        return None if not np.isfinite(value) else int(value) if value == int(value) and abs(value) < 2**53 else value
    return None if value is None or value is pd.NaT else value
