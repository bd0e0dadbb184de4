"""Pages of ``orrery reproduce``: the printed values of a paper beside ours, the farthest first."""

import math
from collections.abc import Sequence
from importlib.util import find_spec
from typing import Any

from groundwork.progress import Progress
from reports.figures.fidelity import printed_figure
from reports.pages.page_template import plain_figure, rendered
from reports.style.palette import BLUE, GREEN, ORANGE, PLAIN, PURPLE
from reports.tables.reproduced_values import reproduced_headline, reproduced_values
from studies.reproduce.eight_bit_claims import eight_bit_values
from studies.reproduce.paper_claims import ComputedValue
from studies.reproduce.rows import PaperRow

PRINTED = "printed"
_LOOKS = {
    PRINTED: {"colour": PLAIN, "symbol": "circle-open", "dash": "dot"},
    "closed form": {"colour": BLUE, "symbol": "square", "dash": "solid"},
    "simulation": {"colour": ORANGE, "symbol": "diamond", "dash": "solid"},
    "simulation of Sec. 2.4": {"colour": PURPLE, "symbol": "triangle-up", "dash": "dash"},
    "as published": {"colour": BLUE, "symbol": "square", "dash": "solid"},
    "our types": {"colour": GREEN, "symbol": "diamond", "dash": "solid"},
}
"""Colour, marker and dash of each way to compute a value."""

INCONSISTENCIES = (
    "Table 1 prints the speedups of Table 7, which names one sub-batch 2056 that all other tables call 2048.",
    "Table 2's absolute errors agree neither with its relative ones nor with one another: with 128 equal steps uniform "
    "numbers from 0 to 1 cannot have a mean error below 0.00195 (printed 0.0024), yet the static tree, whose relative "
    "error is twice as large, is printed with 0.0007.",
    "Section 3.1's examples of the trees, 0.236719 and 0.23125, need trees that are bisected first at 0.45, not in the "
    "middle of their interval; Section 3.2's search, as the implementation that it names has it, does not find the "
    "nearest value but rounds every second interval down.",
    "Table 3 prints activations whole where its caption says a fourth, and for conv1 twice a fourth of the gradient.",
    "Table 5's 8-bit messages are an eighth of the 32-bit ones, not a fourth; with a fourth 8 bits gain less.",
    "Table 6's single passes need 4.5 GB/s where the text says 6 GB/s, at 2048 a latency that Table 5 gives for 1024, "
    "and at 12288 ten times that of Table 5.",
    "Table 6 exposes 31 times what exceeds a product of 1.3 ms, whatever the number of sub-batches, and at 12288 in 32 "
    "bits subtracts nothing; Section 2.4 describes an overlap in which every pass hides the next.",
    "The appendix saves 3.16 ms by model parallelism, the time of one pass through the linear layers, where its "
    "speedups pay for four; and it takes 0.223 GiB for GB.",
)
"""Contradictions within the paper, in words; the rows of the page have the numbers."""


def computed_values(*, numbers: int = 25_000_000, progress: Progress | None = None) -> list[ComputedValue]:
    """Compute every value that the paper prints, in each way; Table 2 only if torch is installed."""
    values = list(eight_bit_values(progress))
    if find_spec("torch") is None:
        return values
    from executor.compression.printed import table_2

    return values + list(table_2(count=numbers, progress=progress))


def paper_html(values: Sequence[ComputedValue]) -> str:
    """Return the page of the 8-bit paper as HTML."""
    every = reproduced_values([each.row for each in values])
    rows = sorted((_values(each) for each in values), key=lambda row: -abs(row["difference"] or 0.0))
    tables = list(dict.fromkeys(row["table"] for row in rows))
    return rendered(
        "eight_bit_paper.html",
        headline=paper_headline(values),
        inconsistencies=INCONSISTENCIES,
        rows=rows,
        tables=tables,
        has_errors=any(row["key"][0] == "error" for row in rows),
        data={"rows": rows, "looks": _LOOKS, "printed": PRINTED, "scatter": plain_figure(printed_figure(every))},
    )


def paper_headline(values: Sequence[ComputedValue]) -> str:
    """Return the finding in one sentence: how close each way comes to the printed speedups or relative errors.

    ``simulation of Sec. 2.4`` is left out, because the paper did not measure that schedule.
    """
    words = []
    for way in ("closed form", "simulation", "as published", "our types"):
        differences = sorted(
            abs(row["difference"])
            for row in map(_values, (each for each in values if each.method == way))
            if row["key"][0] in ("speedup", "node") or row["key"][:2] == ["error", "relative"]
        )
        if differences:
            what = "relative errors" if way in ("as published", "our types") else "speedups"
            half, most = differences[len(differences) // 2], differences[-1]
            words.append(
                f"{way}: {len(differences)} {what}, half within {100 * half:.1f} %, all within {100 * most:.1f} %"
            )
    return f"Compared with the printed values: {'; '.join(words)}."


def _values(value: ComputedValue) -> dict[str, Any]:
    claim = value.claim
    printed = float(claim.printed)
    difference = value.ours / printed - 1 if printed else None
    return {
        "table": claim.source,
        "text": claim.text,
        "key": list(claim.key),
        "way": value.method,
        "printed": printed,
        "ours": value.ours if math.isfinite(value.ours) else None,
        "unit": claim.unit,
        "difference": difference,
        "why": value.note,
    }


_TITLES = {
    "deepa": "DeePa (Jia et al., 2018)",
    "layerwise": "Layer-wise parallelism (Jia et al., ICML 2018)",
    "paradl": "ParaDL (Kahira et al., 2021)",
    "turbodl": "TurboDL",
}


def reproduce_html(paper: str, rows: Sequence[PaperRow]) -> str:
    """Return the page as HTML."""
    values = reproduced_values(rows)
    return rendered(
        "reproduce.html",
        headline=reproduced_headline(_TITLES.get(paper, paper), values),
        paper=_TITLES.get(paper, paper),
        values=values,
        data={"scatter": plain_figure(printed_figure(values))},
    )
