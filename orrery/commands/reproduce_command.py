"""``orrery reproduce``: what a paper prints, beside what is computed here."""

from contextlib import nullcontext
from pathlib import Path
from typing import Annotated, Literal

import typer

from orrery.terminal import Json, print_json, print_table, progress_bar, row_values, whole_file

__all__ = ["reproduce"]

_NUMBERS = 25_000_000


def reproduce(
    paper: Annotated[Literal["deepa", "layerwise", "eight-bit", "paradl", "turbodl"], typer.Argument()],
    *,
    html: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Page to write, with the tables drawn; of eight-bit alone.")
    ] = None,
    numbers: Annotated[
        int | None,
        typer.Option(min=1, metavar="N", help="Random numbers of each group of eight-bit's Table 2; else 25,000,000."),
    ] = None,
    json: Json = False,
) -> None:
    """Set the printed results of a paper beside ours."""
    from hwprofiles import ConfigError

    if html and paper != "eight-bit":
        raise ConfigError(f"html must be left out for {paper}, which has no page, got {str(html)!r}")
    if numbers and paper != "eight-bit":
        raise ConfigError(f"numbers must be left out for {paper}, which draws none, got {numbers}")
    with whole_file(html) if html else nullcontext() as file, progress_bar(paper) as progress:
        if paper == "eight-bit":
            from reports.pages import paper_answers, write_paper_page

            found = paper_answers(numbers=numbers or _NUMBERS, progress=progress)
            rows = row_values([each.row for each in found])
            if file:
                write_paper_page(found, file)
        else:
            from studies.reproduce import reproduce as reproduce_paper

            rows = row_values(reproduce_paper(paper, progress=progress))
    print_json({"rows": rows}) if json else print_table(rows)
