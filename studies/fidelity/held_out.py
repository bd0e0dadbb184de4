"""Cross-validated errors that compute profiles hold themselves, from the rows that were left out of their fits."""

import math
from collections.abc import Iterator

from hwprofiles import yaml_input
from hwprofiles.compute import catalogue
from studies.fidelity.error_summary import ErrorSummary
from studies.fidelity.judged_row import MEASURES

__all__ = ["held_out_errors"]

_NETWORK = "network"


def held_out_errors(only: str | None = None) -> Iterator[ErrorSummary]:
    """Yield the errors on held-out rows of every profile of the catalogue that was fitted by ``orrery calibrate``.

    Args:
        only: Kind of comparison; None for all.
    """
    seen = set()  # devices that differ in their memory have the errors of one fit
    for name, path in sorted(catalogue().items()):
        content = yaml_input(path, "compute profile")
        fit = content.get("fit") if isinstance(content, dict) else None
        for case, errors in (fit or {}).get("errors", {}).items():
            kind = "one-gpu" if _NETWORK in case else "kernels"
            key = (case, *errors.values())
            if only in (None, kind) and errors["rows"] and key not in seen:
                seen.add(key)
                yield ErrorSummary(
                    name=f"{case}, {name}, held out",
                    kind=kind,
                    fitted="held out",
                    rows=errors["rows"],
                    median=float(errors["median"]),
                    p90=float(errors["p90"]),
                    bias=float(errors["bias"]),
                )


def held_out_measure(kind: str, summaries: list[ErrorSummary]) -> ErrorSummary:
    """Return the errors of one kind over all profiles: means of their medians and percentiles, weighted by rows."""
    measure = next(each for each in MEASURES if each.kind == kind)
    rows = sum(each.rows for each in summaries)

    def mean(name: str) -> float:
        return math.fsum(each.rows * getattr(each, name) for each in summaries) / rows

    return ErrorSummary(
        name=f"{measure.name}, held out",
        kind=kind,
        fitted="held out",
        rows=rows,
        median=mean("median"),
        p90=mean("p90"),
        bias=mean("bias"),
        median_bar=measure.median_bar,
        p90_bar=measure.p90_bar,
    )
