"""``orrery fidelity`` and ``orrery reproduce``: predictions beside measurements, and beside printed results."""

import sys
from contextlib import nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Literal

import typer

from orrery.terminal.options import JsonOption
from orrery.terminal.output import Out, out_files, out_option, output_file, print_json, write_results
from orrery.terminal.progress import progress_bar
from orrery.terminal.views import print_rich, print_table

_OutOption = Annotated[Out | None, out_option("index.html")]
_SAMPLES = 25_000_000
"""Random numbers of each group of Table 2 of the eight-bit paper."""


def orrery_fidelity(
    *,
    out: _OutOption = None,
    only: Annotated[
        Literal["kernels", "one-gpu", "many-gpu", "collectives", "transformers", "memory", "papers"] | None,
        typer.Option(help="Kind of comparison to compute; else all of them."),
    ] = None,
    check: Annotated[
        bool, typer.Option("--check", help="Exit with code 1 where a comparison is worse than recorded.")
    ] = False,
    record: Annotated[
        bool, typer.Option("--record", help="Record the results, with which --check compares later ones.")
    ] = False,
    recorded: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Recorded results; else those that ship.")
    ] = None,
    json: JsonOption = False,
) -> None:
    """Compare predictions with public measurements: how many rows, how far off, and why."""
    from groundwork.errors import ConfigError
    from planner.expected.likely_times import RECORDED
    from reports.pages.fidelity_page import fidelity_html, fidelity_values
    from reports.tables.fidelity_text import fidelity_lines, fidelity_tables
    from studies.fidelity.error_summary import held_out_errors
    from studies.fidelity.fidelity_run import judged_rows
    from studies.fidelity.fidelity_table import summarised
    from studies.fidelity.recorded_results import read_recorded, recorded_text, worse_lines

    if record and (check or only):
        raise ConfigError(f"record must be given without {'check' if check else 'only'}: it records all that there is")
    path = recorded or RECORDED
    before = read_recorded(path) if check else None
    with (
        out_files(out) as page,
        output_file(path) if record else nullcontext() as numbers,
        progress_bar("fidelity") as progress,
    ):
        rows = judged_rows(only, progress=progress)
        table = summarised(rows, held_out_errors(only))
        worse = worse_lines(table, before, only=only) if before else []
        write_results(page, lambda: fidelity_html(table))
        if numbers:
            numbers.write_text(recorded_text(table), encoding="utf-8")
    if json:
        print_json({**fidelity_values(table), "worse": worse, "page": str(out.files[0]) if out else None})
    elif not check:
        for each in fidelity_tables(table):
            print_rich(each)
        print("\n".join(fidelity_lines(table)))
    if worse:
        sys.stderr.write("".join(f"orrery: {line}\n" for line in worse))
        raise typer.Exit(1)


def orrery_reproduce(
    paper: Annotated[Literal["deepa", "layerwise", "eight-bit", "paradl", "turbodl"], typer.Argument()],
    *,
    out: _OutOption = None,
    numbers: Annotated[
        int | None,
        typer.Option(
            min=1, metavar="N", help="Random numbers in each group of Table 2 of eight-bit; 25,000,000 if not given."
        ),
    ] = None,
    json: JsonOption = False,
) -> None:
    """Compare the printed results of a paper with ours."""
    from groundwork.errors import ConfigError
    from reports.pages.paper_pages import computed_values, paper_html, reproduce_html

    if numbers and paper != "eight-bit":
        raise ConfigError(f"numbers must be left out for {paper}, which draws none, got {numbers}")
    with out_files(out) as page, progress_bar(paper) as progress:
        if paper == "eight-bit":
            values = computed_values(numbers=numbers or _SAMPLES, progress=progress)
            found = [each.row for each in values]
            write_results(page, lambda: paper_html(values))
        else:
            from studies.reproduce.papers import reproduce

            found = reproduce(paper, progress=progress)
            write_results(page, lambda: reproduce_html(paper, found))
    rows = [asdict(row) for row in found]
    print_json({"rows": rows}) if json else print_table(rows)
