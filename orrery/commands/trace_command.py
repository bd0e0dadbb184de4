"""``orrery trace``: traces of PyTorch's profiler beside a plan's timeline."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from orrery.terminal.options import JsonOption, PlanArgument
from orrery.terminal.output import Out, out_files, out_option, print_json
from orrery.terminal.progress import progress_bar
from orrery.terminal.stored_plan import open_plan
from orrery.terminal.views import print_pairs, print_table

if TYPE_CHECKING:
    from studies.traces.traced_plan import TracedPlan


_MOST_NAMED = 5


def orrery_trace(
    plan_file: PlanArgument,
    traces: Annotated[
        list[Path],
        typer.Argument(
            metavar="TRACE...",
            help="Traces that torch.profiler exported with record_shapes=True, one for each rank, in their order.",
        ),
    ],
    *,
    out: Annotated[Out | None, out_option("timeline.html")] = None,
    json: JsonOption = False,
) -> None:
    """Set traces of PyTorch's profiler beside a plan's timeline, layer by layer and task by task."""
    from planner.simulation.program_replay import replay
    from studies.traces.traced_plan import traced_plan

    with out_files(out) as page, progress_bar("reading traces"):
        stored = open_plan(plan_file)
        result = traced_plan(stored.program, replay(stored.program), traces)
        if page:
            from reports.pages.timeline_page import timeline_html

            view = replace(stored.view(stored.notes), measured=result.timeline, measured_s=result.measured_s)
            page[0].write_text(timeline_html(view), encoding="utf-8")
    values = _values(result, out)
    print_json(values) if json else _print(values)


def _values(result: "TracedPlan", out: Out | None) -> dict[str, Any]:
    """Return the times of an iteration and of each layer."""
    from math import isfinite

    rows = [
        {key: value if not isinstance(value, float) or isfinite(value) else None for key, value in row.items()}
        for row in result.layers.to_dict("records")
    ]
    return {
        "predicted_s": result.predicted_s,
        "measured_s": result.measured_s,
        "covered": result.covered,
        "missing": list(result.missing),
        "layers": rows,
    } | ({"page": str(out.files[0])} if out else {})


def _print(values: dict[str, Any]) -> None:
    """Print a row for each layer and phase, then the iteration."""
    print_table(
        [
            {
                "layer": row["layer"],
                "phase": row["phase"],
                "predicted_s": row["predicted_s"],
                "traced_s": row["measured_s"],
                "error": "–" if row["error"] is None else f"{row['error']:+z.1%}",
            }
            for row in values["layers"]
        ]
    )
    missing = values["missing"]
    more = f" and {len(missing) - _MOST_NAMED} more" if len(missing) > _MOST_NAMED else ""
    pairs = {
        "predicted_iteration_s": values["predicted_s"],
        "traced_iteration_s": values["measured_s"],
        "time that layers and update account for": f"{values['covered']:.1%}",
        "not in the traces": "; ".join(missing[:_MOST_NAMED]) + more or "none",
    }
    print_pairs(pairs | ({"page": values["page"]} if "page" in values else {}))
