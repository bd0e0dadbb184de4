"""``orrery reproduce``: the printed results of a paper, beside those computed here."""

from contextlib import nullcontext
from pathlib import Path
from typing import Annotated, Literal

import typer

from orrery.terminal import JsonOption, output_file, print_json, print_table, progress_bar, row_values

__all__ = ["orrery_reproduce"]

_SAMPLES = 25_000_000
"""Random numbers of each group of Table 2 of the eight-bit paper."""


def orrery_reproduce(
    paper: Annotated[Literal["deepa", "layerwise", "eight-bit", "paradl", "turbodl"], typer.Argument()],
    *,
    html: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Page to write, with the tables drawn; for eight-bit only.")
    ] = None,
    numbers: Annotated[
        int | None,
        typer.Option(
            min=1, metavar="N", help="Random numbers in each group of Table 2 of eight-bit; 25,000,000 if not given."
        ),
    ] = None,
    json: JsonOption = False,
) -> None:
    """Compare the printed results of a paper with ours."""
    from hwprofiles import ConfigError

    if html and paper != "eight-bit":
        raise ConfigError(f"html must be left out for {paper}, which has no page, got {str(html)!r}")
    if numbers and paper != "eight-bit":
        raise ConfigError(f"numbers must be left out for {paper}, which draws none, got {numbers}")
    with output_file(html) if html else nullcontext() as file, progress_bar(paper) as progress:
        if paper == "eight-bit":
            from reports.pages import computed_values, write_paper_page

            values = computed_values(numbers=numbers or _SAMPLES, progress=progress)
            rows = row_values([each.row for each in values])
            if file:
                write_paper_page(values, file)
        else:
            from studies.reproduce import reproduce

            rows = row_values(reproduce(paper, progress=progress))
    print_json({"rows": rows}) if json else print_table(rows)
