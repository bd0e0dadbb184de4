"""The errors of one comparison in a few numbers, and those that profiles hold of rows left out of their fits."""

import math
from collections.abc import Iterator
from dataclasses import dataclass

from groundwork.input_files import yaml_input
from hwprofiles.compute.profile_file import catalogue
from studies.calibrate.device_sheets import device_labels
from studies.fidelity.judged_row import Measure

_NETWORK = "network"


@dataclass(frozen=True, slots=True, kw_only=True)
class WorstRow:
    """One of the rows with the largest errors."""

    label: str
    measured: float
    predicted: float
    error: float
    reason: str
    """Why it is so far off, where that is known; else empty."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorSummary:
    """The errors of a comparison: predicted over measured value, minus 1.  What is not known is NaN."""

    name: str
    kind: str
    fitted: str
    """``no``; ``yes``; ``part`` where some of the rows were fitted to; or ``held out`` where they were in turn left out
    of the fit that they judge."""
    rows: int
    arithmetic: str = ""
    """Arithmetic of the rows, and how many there are of each where there are several."""
    software: str = ""
    """Software that measured them, likewise."""
    without: int = 0
    without_reason: str = ""
    """The most frequent reason of those."""
    median: float = math.nan
    p90: float = math.nan
    """90th percentile of the absolute errors."""
    worst: float = math.nan
    bias: float = math.nan
    """Mean of the logarithm of predicted over measured value: positive where predictions are too slow."""
    centre: float = math.nan
    """Median of predicted over measured value."""
    low: float = math.nan
    """10th percentile of predicted over measured value."""
    high: float = math.nan
    """90th percentile of it."""
    close: float = math.nan
    """Share of all rows, also those without a prediction, whose error is at most 10 %."""
    median_bar: float | None = None
    p90_bar: float | None = None
    worst_rows: tuple[WorstRow, ...] = ()


def held_out_errors(only: str | None = None) -> Iterator[ErrorSummary]:
    """Yield the errors on held-out rows of every profile of the catalogue that was fitted by ``orrery calibrate``.

    Rows count once.  Profiles that tables know by one label, such as those of cards that differ in memory alone, are
    fitted to the same rows: of as many rows of one kind the first profile by name counts.
    """
    seen = set[tuple[str, int, str]]()
    for name, path in sorted(catalogue().items()):
        content = yaml_input(path, "compute profile")
        fit = content.get("fit") if isinstance(content, dict) else None
        for case, errors in (fit or {}).get("errors", {}).items():
            kind = "one-gpu" if _NETWORK in case else "kernels"
            same = {(case, int(errors["rows"]), label) for label in device_labels(name)}
            if only in (None, kind) and errors["rows"] and seen.isdisjoint(same):
                seen |= same
                yield ErrorSummary(
                    name=f"{case}, {name}, held out",
                    kind=kind,
                    fitted="held out",
                    rows=errors["rows"],
                    median=float(errors["median"]),
                    p90=float(errors["p90"]),
                    bias=float(errors["bias"]),
                )


def held_out_measure(measure: Measure, summaries: list[ErrorSummary]) -> ErrorSummary:
    """Return the errors of one measure over all profiles: means of their medians and percentiles, weighted by rows."""
    rows = sum(each.rows for each in summaries)

    def mean(name: str) -> float:
        return math.fsum(each.rows * getattr(each, name) for each in summaries) / rows

    return ErrorSummary(
        name=f"{measure.name}, held out",
        kind=measure.kind,
        fitted="held out",
        rows=rows,
        median=mean("median"),
        p90=mean("p90"),
        bias=mean("bias"),
        median_bar=measure.median_bar,
        p90_bar=measure.p90_bar,
    )
