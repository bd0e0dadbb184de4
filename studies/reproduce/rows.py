"""Rows that compare a printed value with ours, and the printed values, which are kept as data."""

import csv
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

from groundwork.progress import Progress

Value = float | str
"""A number; or a range ``low-high``, a bound ``>number`` or a configuration as text."""
ClaimResult = tuple[Value, str]
"""Our value for a claim, and a note."""


@dataclass(frozen=True, slots=True)
class PaperRow:
    """One printed value beside ours."""

    source: str
    """Table, figure or section, and the claim."""
    printed: Value
    ours: Value
    """Value computed now, by the models of this project."""
    unit: str
    note: str
    """Difference; where it is large, the assumption behind it; where the source contradicts itself, how it does."""


def stored(name: str) -> list[dict[str, str]]:
    """Return the rows of a file of printed values, columns by name."""
    text = (files("studies") / "data" / f"{name}.csv").read_text()
    return list(csv.DictReader(text.splitlines()))


def claims_of(paper: str, progress: Progress | None) -> Iterator[dict[str, str]]:
    """Yield the claims of a paper one by one, and report each."""
    claims = stored(f"{paper}_claims")
    for done, claim in enumerate(claims):
        if progress:
            progress(claim["claim"], done, len(claims))
        yield claim


def claim_row(
    paper: str, claim: Mapping[str, str], functions: Mapping[str, Callable[..., ClaimResult]], *shared: Any
) -> PaperRow:
    """Recompute one claim of a file of printed values."""
    name, *words = claim["key"].split()
    ours, note = functions[name](*shared, *words)
    return row(f"{paper}, {claim['source']}: {claim['claim']}", claim["value"], ours, claim["unit"], note)


def row(source: str, printed: str, ours: Value, unit: str, note: str = "") -> PaperRow:
    """Return a row whose note starts with the difference.

    Args:
        source: Claim, and where the paper makes it.
        printed: Value as the paper prints it: a number, a range, a bound or a configuration.
        ours: Our value: a number, or text where the printed value is a range or a configuration.
        unit: Unit of both.
        note: Note that follows the difference.
    """
    value = _number(printed)
    difference = _difference(printed if value is None else value, ours)
    text = f"{difference}; {note}" if note else difference
    return PaperRow(source, printed if value is None else value, ours, unit, text)


def range_text(values: list[float]) -> str:
    """Return the range of some values as text, low to high, with three digits."""
    return f"{min(values):.3g}-{max(values):.3g}"


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def _difference(printed: Value, ours: Value) -> str:
    """Return the difference in words: of two numbers in percent, of two ranges at their ends."""
    if isinstance(printed, float) and isinstance(ours, float):
        if printed == 0:
            return "equal" if ours == 0 else f"{ours:+.3g}"
        return f"{ours / printed - 1:+z.0%}"
    if isinstance(printed, str) and isinstance(ours, float):
        return "as printed" if ours > float(printed.removeprefix(">")) else "less than the printed bound"
    ends = [str(text).split("-") for text in (printed, ours)]
    if all(_number(end) is not None for pair in ends for end in pair):
        low, high = (float(b) / float(a) - 1 for a, b in zip(*ends, strict=True))
        return f"{low:+z.0%} and {high:+z.0%} at the ends"
    return "equal" if printed == ours else "differs"
