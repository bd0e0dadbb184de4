"""Printed values of a paper beside ours, with the error of each, as pages show them."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from groundwork.units import GIGA
from studies.reproduce.rows import PaperRow

_NEAR = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class ReproducedValue:
    """One printed value beside ours."""

    table: str
    claim: str
    printed: str
    ours: str
    unit: str
    difference: str
    note: str
    error: float
    """Largest difference as a share of the printed value; 0 where texts are equal, infinite where they differ."""
    point: tuple[float, float] | None
    """Printed value and ours, if both are numbers above 0."""


def reproduced_values(rows: Sequence[PaperRow]) -> tuple[ReproducedValue, ...]:
    """Return the values of a paper, those farthest from the printed ones first."""
    values = [_value(row) for row in rows]
    return tuple(sorted(values, key=lambda each: -each.error))


def reproduced_headline(paper: str, values: Sequence[ReproducedValue]) -> str:
    """Return the finding in one sentence: how many values are near, how near half of them are, and the farthest."""
    near = sum(each.error <= _NEAR for each in values)
    finite = [each for each in values if math.isfinite(each.error)]
    if not finite:
        return f"{paper}: {near} of {len(values)} printed values come out."
    others = "of the others " * (len(finite) < len(values))
    half, worst = median(each.error for each in values), finite[0]
    middle = f"half of them within {100 * half:.2g}%" if math.isfinite(half) else "half of them do not"
    middle = middle if half > 5e-4 else "half of them exactly"
    return (
        f"{paper}: {near} of {len(values)} printed values come out within {_NEAR:.0%}, {middle}; {others}the farthest "
        f"is {worst.claim}: printed {worst.printed}, ours {worst.ours} {worst.unit}".rstrip()
        + "."
    )


def _value(row: PaperRow) -> ReproducedValue:
    table, _, claim = row.source.partition(": ")
    difference, _, note = row.note.partition("; ")
    printed, ours, unit = row.printed, row.ours, row.unit
    if unit.startswith("B") and isinstance(printed, float) and isinstance(ours, float) and printed >= GIGA:
        printed, ours, unit = printed / GIGA, ours / GIGA, f"G{unit}"
    numbers = isinstance(printed, float) and isinstance(ours, float) and printed > 0 and ours > 0
    return ReproducedValue(
        table=table,
        claim=claim or row.source,
        printed=_text(printed),
        ours=_text(ours),
        unit=unit,
        difference=difference,
        note=note,
        error=_error(row.printed, row.ours, difference),
        point=(float(printed), float(ours)) if numbers else None,
    )


def _text(value: float | str) -> str:
    return value if isinstance(value, str) else f"{value:,.4g}"


def _error(printed: float | str, ours: float | str, difference: str) -> float:
    """Return the error of a number, of the ends of a range, or of words."""
    if isinstance(printed, float) and isinstance(ours, float):
        return abs(ours / printed - 1) if printed else 0.0 if ours == 0 else math.inf
    if difference in ("equal", "as printed"):
        return 0.0
    ends = [str(value).split("-") for value in (printed, ours)]
    try:
        return max(abs(float(b) / float(a) - 1) for a, b in zip(*ends, strict=True))
    except (ValueError, ZeroDivisionError):
        return math.inf
