"""``orrery timeline``: pages of a plan."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from orrery.output import print_json, whole_file
from orrery.progress import progress_bar
from orrery.views import print_pairs

if TYPE_CHECKING:
    from reports.plan_view import PlanView

__all__ = ["timeline"]

PlanFile = Annotated[Path, typer.Argument(metavar="PLAN", help="Plan file.")]
Measured = Annotated[
    Path | None, typer.Option(metavar="FILE", help="measured.npz of a run of the plan, shown beside the simulation.")
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON value and nothing else.")]


def timeline(
    plan_file: PlanFile,
    *,
    out: Annotated[Path, typer.Option(metavar="FILE", help="Page to write.")],
    measured: Measured = None,
    json: Json = False,
) -> None:
    """Draw every task of an iteration on every device and link, and what each waited for: one page."""
    from reports.timeline_page import write_timeline_page

    with whole_file(out) as file, progress_bar("simulating"):
        view = _view(plan_file, measured)
        write_timeline_page(view, file)
        size_bytes = file.stat().st_size
    values = {"page": str(out), "iteration_s": view.replay.iteration_s, "tasks": view.replay.tasks}
    values |= {"size_bytes": size_bytes, "answer": view.headline}
    print_json(values) if json else print_pairs(values)


def _view(plan_file: Path, measured: Path | None) -> "PlanView":
    from orrery.stored_plan import open_plan
    from reports.plan_view import PlanView

    stored = open_plan(plan_file)
    view = PlanView(plan=stored.plan, program=stored.program, additive_s=stored.additive_s, notes=stored.notes)
    return view.with_measurement(measured) if measured else view
