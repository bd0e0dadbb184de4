"""The table of the README, from the recorded results: ``python tests/studies/fidelity_readme.py`` writes it again."""

import math
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
README = ROOT / "README.md"
TABLE = re.compile(r"(?<=<!-- fidelity -->\n).*?(?=<!-- end of fidelity -->)", re.DOTALL)

__all__ = ["README", "TABLE", "readme_table"]


def readme_table():
    """Return the measures with their bars, and the coverages, in Markdown."""
    from planner.expected.likely_times import RECORDED
    from reports.tables.fidelity_text import STUDY_SENTENCE, STUDY_TITLE, fidelity_cells
    from studies.fidelity.error_summary import ErrorSummary
    from studies.fidelity.recorded_results import read_recorded

    recorded = read_recorded(RECORDED)
    header = [
        "| measure | rows | fitted to | median error | 90th percentile | worst | bias |",
        "|---|--:|--:|--:|--:|--:|--:|",
    ]
    lines, study = [*header], ["", f"**{STUDY_TITLE}.** {STUDY_SENTENCE}", "", *header]
    for each in recorded.measures:
        values = {name: math.nan if value is None else value for name, value in each.model_dump().items()}
        values |= {"median_bar": each.median_bar, "p90_bar": each.p90_bar}
        if each.rows:
            summary = ErrorSummary(**values)
            table = study if summary.by_study else lines
            table.append(f"| {' | '.join([each.name, *fidelity_cells(summary)[:6]])} |")
    lines += [*study, "", "| 80 % interval of | rows inside, their device or system left out |", "|---|--:|"]
    lines += [f"| {part} | {share:.0%} |".replace("% |", " % |") for part, share in recorded.coverages.items() if share]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    README.write_text(TABLE.sub(lambda _: readme_table(), README.read_text()))
