"""Tables of recorded errors in documents: ``python tests/studies/fidelity_readme.py`` writes them."""

import math
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TABLE = re.compile(r"(?<=<!-- fidelity -->\n).*?(?=<!-- end of fidelity -->)", re.DOTALL)
SHOWN = (
    "convolutions, products and attention, held out",
    "training on one GPU, held out",
    "training on one GPU, another device's shares",
    "training on one GPU, in PyTorch",
    "convolutions on H200 (PyTorch 2.11)",
    "training on one H200 (PyTorch 2.11)",
    "language models planned on one H200 (PyTorch 2.11)",
    "several GPUs relative to one, default options",
    "collectives between more machines above 1 MiB",
    "collectives between more machines, calibrated on two",
    "iterations of GPT, large layers",
    "iterations of GPT, small layers",
    "iterations of MPT",
    "iterations of Llama",
    "peak memory of GPT",
)
"""Measures of the README: rows that nothing was fitted to, the worst of today among them."""


def _measures(recorded):
    """Return (name, summary, cells) of every measure with rows."""
    from reports.tables.fidelity_text import fidelity_cells
    from studies.fidelity.error_summary import ErrorSummary

    found = []
    for each in recorded.measures:
        values = {name: math.nan if value is None else value for name, value in each.model_dump().items()}
        if each.rows:
            summary = ErrorSummary(**values | {"median_bar": each.median_bar, "p90_bar": each.p90_bar})
            found.append((each.name, summary, fidelity_cells(summary)))
    return found


def _few(measures):
    """Return the measures of the README with rows and errors, without bars."""
    cells_of = {name: cells for name, _, cells in measures}
    lines = ["| measure | rows | median error | 90th percentile |", "|---|--:|--:|--:|"]
    for name in SHOWN:
        rows, _, *errors = (cell.partition(" (bar")[0] for cell in cells_of[name][:4])
        lines.append(f"| {' | '.join([name, rows, *errors])} |")
    return lines


def _all(measures, coverages):
    """Return all measures with their bars, and the coverages."""
    header = [
        "| measure | rows | fitted to | median error | 90th percentile | worst | bias |",
        "|---|--:|--:|--:|--:|--:|--:|",
    ]
    lines = [*header, *(f"| {' | '.join([name, *cells[:6]])} |" for name, _, cells in measures)]
    lines += ["", "| 80 % interval of | rows inside, their device or system left out |", "|---|--:|"]
    return lines + [f"| {part} | {share:.0%} |".replace("% |", " % |") for part, share in coverages.items() if share]


def tables():
    """Return the tables that documents show, in Markdown, by the document."""
    from planner.expected.likely_times import RECORDED
    from studies.fidelity.recorded_results import read_recorded

    recorded = read_recorded(RECORDED)
    measures = _measures(recorded)
    lines = {"README.md": _few(measures), "docs/fidelity.md": _all(measures, recorded.coverages)}
    return {ROOT / name: "\n".join(each) + "\n" for name, each in lines.items()}


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    for document, table in tables().items():
        document.write_text(TABLE.sub(lambda _, table=table: table, document.read_text()))
