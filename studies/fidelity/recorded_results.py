"""Recorded results of the comparisons, and what has become worse since."""

import json
import math
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from groundwork.errors import ConfigError
from groundwork.input_files import json_input
from groundwork.rule_texts import broken_rules
from studies.fidelity.error_quantiles import Coverage
from studies.fidelity.error_summary import ErrorSummary
from studies.fidelity.fidelity_table import FidelityTable

_LEAST = 0.005
"""Growth of an error that counts as none: half a point."""
_SHARE = 0.02
"""Growth of an error, as a share of it, that counts as none."""
_FEW = 5
"""Rows below which a 90th percentile says nothing beside the median."""
_AIM = 0.8
"""Share of rows that intervals are made for."""
_COVERED = 0.05
"""Growth of a coverage's distance from its aim that counts as none."""


class RecordedSummary(BaseModel):
    """The recorded errors of one comparison; None where it had no rows."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    name: str
    kind: str
    fitted: str
    rows: int
    without: int
    median: float | None
    p90: float | None
    worst: float | None
    bias: float | None
    close: float | None
    median_bar: float | None
    p90_bar: float | None


class RecordedFile(BaseModel):
    """The file of recorded results."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    tolerance: str
    measures: list[RecordedSummary]
    comparisons: list[RecordedSummary]
    coverages: dict[str, float | None]
    """Share of rows in the 80 % interval, by part of a prediction."""
    errors: dict[str, dict[str, float]]
    """Errors of the parts of predictions, from which intervals are made."""


def recorded_text(table: FidelityTable) -> str:
    """Return the file of recorded results, with the errors from which intervals are made."""
    names = tuple(RecordedSummary.model_fields)
    tolerance = (
        f"an error is worse if it grew by more than {_LEAST:.1%} of the time and by more than {_SHARE:.0%} of itself; "
        f"a coverage if it went away from {_AIM:.0%} by more than {_COVERED:.0%}"
    )
    values = {
        "tolerance": tolerance,
        "measures": [{name: _rounded(getattr(each, name)) for name in names} for each in table.measures],
        "comparisons": [{name: _rounded(getattr(each, name)) for name in names} for each in table.comparisons],
        "coverages": {each.part: _rounded(each.inside) for each in table.coverages},
        "errors": {name: asdict(each) for name, each in table.errors.items()},
    }
    return json.dumps(values, indent=1) + "\n"


def _rounded(value: Any) -> Any:
    """Return a number to six digits, None for NaN, and everything else as it is."""
    if not isinstance(value, float):
        return value
    return float(f"{value:.6g}") if math.isfinite(value) else None


def read_recorded(path: Path) -> RecordedFile:
    """Return a file of recorded results, checked.

    Raises:
        ConfigError: It cannot be read or breaks a rule.
    """
    try:
        return RecordedFile.model_validate(json_input(path, "recorded results"))
    except ValidationError as error:
        raise ConfigError(f"recorded results {path}: {broken_rules(error)}") from None


def worse_lines(table: FidelityTable, before: RecordedFile, *, only: str | None = None) -> list[str]:
    """Return a line for each comparison that has become worse than recorded.

    Args:
        table: The summaries of today.
        before: What was recorded.
        only: Kind that was computed; None for all, and then what is missing counts as worse, and coverages are
            compared.
    """
    today = {each.name: each for each in (*table.measures, *table.comparisons)}
    lines = list[str]()
    for recorded in (*before.measures, *before.comparisons):
        if recorded.name in today:
            lines += _worse(today[recorded.name], recorded)
        elif only is None and recorded.rows:
            lines.append(f"{recorded.name}: {recorded.rows:,} rows were compared, now none are")
    if only is None:
        lines += _worse_coverages(table.coverages, before)
    return lines


def _worse(today: ErrorSummary, recorded: RecordedSummary) -> Iterator[str]:
    """Yield what has become worse in one comparison, at most one line."""
    if today.rows < recorded.rows:
        yield f"{today.name}: {recorded.rows:,} rows had a prediction, now {today.rows:,} have"
        return
    if not recorded.rows or today.rows != recorded.rows:  # errors of other rows say nothing about these
        return
    changes = {"median error": (recorded.median, today.median)}
    if today.rows >= _FEW:
        changes["90th percentile of the error"] = (recorded.p90, today.p90)
    changes["bias"] = (abs(recorded.bias or 0.0), abs(today.bias))
    for what, (before, now) in changes.items():
        if before is not None and now > before + max(_LEAST, _SHARE * before):
            yield f"{today.name}: {what} was {before:.1%}, now {now:.1%}"
            return


def _worse_coverages(today: tuple[Coverage, ...], before: RecordedFile) -> Iterator[str]:
    """Yield the coverages that went away from their aim."""
    for part, _, _, inside in today:
        recorded = before.coverages.get(part)
        if recorded is not None and abs(inside - _AIM) > abs(recorded - _AIM) + _COVERED:
            yield f"80 % interval of {part}: {recorded:.0%} of the rows were inside, now {inside:.0%}"
