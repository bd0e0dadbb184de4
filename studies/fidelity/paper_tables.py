"""The printed values of five papers as judged rows: ours over the printed one."""

from collections.abc import Iterator

from studies.fidelity.judged_row import JudgedRow
from studies.reproduce.papers import reproduce
from studies.reproduce.rows import PaperRow

_CLOCKED = ("depth-first search", "elimination", "search time")
"""Words of the rows for which a search is run and its time is measured here."""


def paper_rows(paper: str) -> Iterator[JudgedRow]:
    """Yield the printed values of a paper that this project computes.

    Two ends of a range are two rows.  Values that have no ratio count as equal or as not predicted: configurations and
    other texts, bounds, and zeros.

    Args:
        paper: As ``studies.reproduce.papers.reproduce`` names it.
    """
    for row in reproduce(paper):
        if row.unit == "s" and any(word in row.source for word in _CLOCKED):
            continue  # a time of this machine, which differs from run to run
        for end, (printed, ours) in _pairs(row):
            yield JudgedRow(
                measure="tables of papers",
                comparison=f"paper {paper}",
                label=f"{row.source.partition(', ')[2]}{end} [{row.unit}]",
                group=paper,
                measured_s=printed,
                predicted_s=ours,
                reason=f"printed {_text(row.printed)}, ours {_text(row.ours)}: {row.note}",
            )


def _text(value: float | str) -> str:
    """Return a value in few digits."""
    return value if isinstance(value, str) else f"{value:.4g}"


def _pairs(row: PaperRow) -> Iterator[tuple[str, tuple[float, float]]]:
    """Yield (what it is, (printed, ours)) for a row; (1, NaN) for values that differ and have no ratio."""
    printed, ours = row.printed, row.ours
    if isinstance(printed, float) and isinstance(ours, float):
        if printed > 0 and ours > 0:
            yield "", (printed, ours)
        else:
            yield "", (1.0, 1.0 if printed == ours else float("nan"))
        return
    ends = _ends(str(printed)), _ends(str(ours))
    if ends[0] and ends[1]:
        for i, name in enumerate((", low end", ", high end")):
            yield name, (ends[0][i], ends[1][i])
        return
    kept = row.note.startswith(("equal", "as printed"))
    yield "", (1.0, 1.0 if kept else float("nan"))


def _ends(text: str) -> tuple[float, float] | None:
    """Return the two ends of a range of positive numbers, or None."""
    try:
        low, high = (float(end) for end in text.split("-"))
    except ValueError:
        return None
    return (low, high) if low > 0 and high > 0 else None
