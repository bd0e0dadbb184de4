"""``orrery timeline``, ``orrery show`` and ``orrery index``: pages of a plan, and of a folder of results."""

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated

import typer

from orrery.terminal.options import JsonOption, PlanArgument
from orrery.terminal.output import Out, out_files, out_option, print_json, write_results
from orrery.terminal.progress import progress_bar
from orrery.terminal.views import print_pairs, print_table

if TYPE_CHECKING:
    from reports.drawings.plan_view import PlanView


_Measured = Annotated[
    Path | None, typer.Option(metavar="FILE", help="measured.npz of a run of the plan, drawn beside the simulation.")
]


def orrery_timeline(
    plan_file: PlanArgument,
    *,
    out: Annotated[Out, out_option("timeline.html")],
    measured: _Measured = None,
    json: JsonOption = False,
) -> None:
    """Draw every task of an iteration on every device and link, and what it waited for, on one page."""
    from reports.pages.timeline_page import timeline_html

    with out_files(out) as files, progress_bar("simulating"):
        view = _view(plan_file, measured)
        write_results(files, lambda: timeline_html(view))
        size_bytes = files[0].stat().st_size
    values = {"page": str(out.files[0]), "iteration_s": view.replay.iteration_s, "tasks": view.replay.tasks}
    values |= {"size_bytes": size_bytes, "headline": view.headline}
    print_json(values) if json else print_pairs(values)


def orrery_show(
    plan_file: PlanArgument,
    *,
    out: Annotated[Out, out_option("index.html", "timeline.html", folder_only=True)],
    measured: _Measured = None,
    json: JsonOption = False,
) -> None:
    """Draw a plan as linked pages: strategy, cluster, memory and timeline."""
    from reports.pages.plan_page import write_plan_pages

    with out_files(out) as files, progress_bar("simulating"), TemporaryDirectory() as folder:
        view = _view(plan_file, measured)
        for page, file in zip(write_plan_pages(view, Path(folder)), files, strict=True):
            file.write_bytes(page.read_bytes())
    values = {"page": str(out.files[0]), "iteration_s": view.replay.iteration_s, "headline": view.headline}
    print_json(values) if json else print_pairs(values)


def orrery_index(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Folder of results.")],
    *,
    out: Annotated[Out | None, out_option("index.html")] = None,
    json: JsonOption = False,
) -> None:
    """List the pages and results of a folder, with their headlines, on one page: DIR/index.html without --out."""
    from reports.pages.index_page import check_no_other_page, found_results, index_html

    out = out or Out(folder, (folder / "index.html",))
    (page,) = out.files
    check_no_other_page(page, folder)
    results = found_results(folder, leave_out=page)
    with out_files(out) as (file,):
        file.write_text(index_html(folder, results, page=page), encoding="utf-8")
    if json:
        return print_json({"page": str(page), "results": results})
    print_table([{"file": each.file, "kind": each.kind, "headline": each.headline} for each in results])
    print(f"page: {page}")


def _view(plan_file: Path, measured: Path | None) -> "PlanView":
    """Return the drawings of a plan, with those of a measured run of it."""
    from orrery.terminal.stored_plan import open_plan
    from planner.layouts.replicas import Replicas

    stored = open_plan(plan_file, folded=measured is None)
    classes, notes = stored.program.classes, stored.notes
    if isinstance(classes, Replicas):
        drawn = len(classes.firsts)
        each = "one" if drawn == 1 else f"one of each of {drawn:,} kinds"
        notes = (*notes, f"{each} of {classes.count:,} replicas that do the same is drawn")
    elif classes is not None:
        drawn = int(classes.lowered.sum())
        notes = (*notes, f"{drawn:,} of {len(classes.lowered):,} devices are drawn, for all that do the same")
    view = stored.view(notes)
    return view.with_measurement(measured) if measured else view
