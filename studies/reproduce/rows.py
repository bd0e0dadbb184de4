"""A printed value beside ours, and the printed values, which are kept as data."""

import csv
from dataclasses import dataclass
from importlib.resources import files

__all__ = ["PaperRow", "Value", "range_text", "row", "stored"]

Value = float | str
"""A number; or a range ``low-high``, a bound ``>number`` or a configuration as text."""


@dataclass(frozen=True, slots=True)
class PaperRow:
    """One printed value beside ours."""

    source: str
    """Table, figure or section, and what is claimed."""
    printed: Value
    ours: Value
    """Computed now, by the models of this project."""
    unit: str
    note: str
    """Difference; where it is large the assumption behind it; where the source contradicts itself, that."""


def stored(name: str) -> list[dict[str, str]]:
    """Rows of a file of printed values, columns by name."""
    text = (files("studies") / "data" / f"{name}.csv").read_text()
    return list(csv.DictReader(text.splitlines()))


def row(source: str, printed: str, ours: Value, unit: str, why: str = "") -> PaperRow:
    """A row whose note starts with the difference.

    Args:
        source: What is claimed, and where.
        printed: As the paper prints it: a number, a range, a bound or a configuration.
        ours: Our value: a number, or text where the printed value is a range or a configuration.
        unit: Unit of both.
        why: What else there is to say.
    """
    value = _number(printed)
    note = _difference(printed if value is None else value, ours)
    return PaperRow(source, printed if value is None else value, ours, unit, f"{note}; {why}" if why else note)


def range_text(values: list[float]) -> str:
    """The range of some values as text, low to high; three digits."""
    return f"{min(values):.3g}-{max(values):.3g}"


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def _difference(printed: Value, ours: Value) -> str:
    if isinstance(printed, float) and isinstance(ours, float):
        if printed == 0:
            return "equal" if ours == 0 else f"{ours:+.3g}"
        return f"{ours / printed - 1:+.0%}"
    if isinstance(printed, str) and isinstance(ours, float):
        return "as printed" if ours > float(printed.removeprefix(">")) else "less than the printed bound"
    ends = [str(text).split("-") for text in (printed, ours)]
    if all(_number(end) is not None for pair in ends for end in pair):
        low, high = (float(b) / float(a) - 1 for a, b in zip(*ends, strict=True))
        return f"{low:+.0%} and {high:+.0%} at the ends"
    return "equal" if printed == ours else "differs"
