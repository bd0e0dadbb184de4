"""Recorded results of the comparisons, and what has become worse since."""

import json
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from hwprofiles import ConfigError, broken_rules, json_input
from studies.fidelity.fidelity_table import ErrorSummary, FidelityTable

__all__ = ["read_recorded", "recorded_text", "worse_lines"]

_LEAST = 0.005
"""Change of an error that is within rounding: half a point."""
_SHARE = 0.02
"""Change of an error, as a share of it, that counts as none."""
_FEW = 5
"""Rows below which a 90th percentile says nothing beside the median."""


class _Recorded(BaseModel):
    """One recorded comparison."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    rows: int
    median: float | None
    p90: float | None
    bias: float | None
    close: float


class _File(BaseModel):
    """The file of recorded results."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    tolerance: str
    comparisons: dict[str, _Recorded]
    errors: dict[str, dict[str, float]]


def recorded_text(table: FidelityTable) -> str:
    """Return the file of recorded results, with the errors from which intervals are made."""
    comparisons = {
        each.name: {
            "rows": each.rows,
            **{name: _rounded(getattr(each, name)) for name in ("median", "p90", "bias", "close")},
        }
        for each in _entries(table)
    }
    tolerance = (
        f"an error is worse if it grew by more than {_LEAST:.1%} of the time and by more than {_SHARE:.0%} of itself"
    )
    return (
        json.dumps(
            {
                "tolerance": tolerance,
                "comparisons": comparisons,
                "errors": {name: asdict(each) for name, each in table.errors.items()},
            },
            indent=1,
        )
        + "\n"
    )


def _rounded(value: float) -> float | None:
    """Return a number to six digits, or None for NaN."""
    return float(f"{value:.6g}") if value == value else None


def _entries(table: FidelityTable) -> Iterator[ErrorSummary]:
    """Yield all summaries that can be recorded: measures have names of their own."""
    yield from (*table.measures, *table.comparisons)


def read_recorded(path: Path) -> Any:
    """Return a file of recorded results, checked.

    Raises:
        ConfigError: It cannot be read or breaks a rule.
    """
    try:
        return _File.model_validate(json_input(path, "recorded results"))
    except ValidationError as error:
        raise ConfigError(f"recorded results {path}: {broken_rules(error)}") from None


def worse_lines(table: FidelityTable, path: Path, *, only: str | None = None) -> list[str]:
    """Return a line for each comparison that has become worse than recorded.

    Args:
        table: The summaries of today.
        path: File of recorded results.
        only: Kind that was computed; None for all, and then a recorded comparison that is missing counts as worse.

    Raises:
        ConfigError: The file cannot be read or breaks a rule.
    """
    today = {each.name: each for each in _entries(table)}
    lines = list[str]()
    for name, recorded in read_recorded(path).comparisons.items():
        if name in today:
            lines += _worse(today[name], recorded)
        elif only is None and recorded.rows:
            lines.append(f"{name}: {recorded.rows} rows were compared, now none are")
    return lines


def _worse(today: ErrorSummary, recorded: _Recorded) -> Iterator[str]:
    """Yield what has become worse in one comparison."""
    if today.rows < recorded.rows:
        yield f"{today.name}: {recorded.rows} rows had a prediction, now {today.rows} have"
    if not today.rows or not recorded.rows:
        return
    changes = {"median error": (recorded.median, today.median)}
    if today.rows >= _FEW:
        changes["90th percentile"] = (recorded.p90, today.p90)
    changes["bias"] = (abs(recorded.bias or 0.0), abs(today.bias))
    changes["share off by more than 10 %"] = (1 - recorded.close, 1 - today.close)
    for what, (before, now) in changes.items():
        if before is not None and now > before + max(_LEAST, _SHARE * before):
            yield f"{today.name}: {what} was {before:.1%}, now {now:.1%}"
            return
