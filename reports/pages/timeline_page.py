"""Page of a timeline: every task of one iteration on every device and link."""

from collections.abc import Sequence
from itertools import groupby

from planner.simulation.steady_path import Stretch
from reports.drawings.plan_view import PlanView
from reports.drawings.timeline_page_data import timeline_data
from reports.pages.page_template import Links, rendered
from reports.style.palette import kind_colours
from reports.style.units import time_unit

_GRADIENTS = ("epilogue_gradient", "activation_gradient", "weight_gradient", "bias_gradient")


def timeline_html(view: PlanView, *, links: Links = ()) -> str:
    """Return the page as HTML; it draws on a canvas, without Plotly."""
    data = timeline_data(view.replay, view.path, view.measured)
    kinds = sorted(set(view.replay.timeline()["kind"]))
    # One row for consecutive steps of one kind and layer.
    stretches = view.path.stretches()
    unit = time_unit([stretch.seconds for stretch in stretches])
    rows = [
        {
            "layer": stretch.layer,
            "kind": stretch.kind.replace("_", " "),
            "steps": f"{stretch.count:,}",
            "start": (stretch.start_s, unit.text(stretch.start_s)),
            "seconds": (stretch.seconds, unit.text(stretch.seconds)),
            "wait": (stretch.wait_s, unit.text(stretch.wait_s) if stretch.wait_s else "–"),
            "why": _words(stretch.reasons),
            "run": run,
        }
        for stretch, run in zip(stretches, _runs(stretches), strict=True)
    ]
    whole_s, iteration_s = sum(stretch.seconds for stretch in stretches), view.replay.iteration_s
    total = time_unit([iteration_s])
    return rendered(
        "timeline.html",
        headline=view.headline,
        draws=False,
        links=links,
        subject=view.subject,
        tiles=view.tiles,
        notes=view.notes,
        both=view.measured is not None,
        stretches={
            "unit": unit.name,
            "rows": rows,
            "whole": total.full(whole_s),
            "iteration": total.full(iteration_s),
            "rest": total.text(whole_s) != total.text(iteration_s),
        },
        data={**data, "colours": kind_colours(kinds)},
    )


def _runs(stretches: Sequence[Stretch], fewest: int = 3) -> list[int | None]:
    """Return for each stretch its run, if any: the arithmetic of one pass that lost no time, in ``fewest`` or more."""
    passes = {"forward": "forward", "update": "update"} | dict.fromkeys(_GRADIENTS, "backward")
    runs = list[int | None]()
    for name, run in groupby("" if each.wait_s else passes.get(each.kind, "") for each in stretches):
        count = len([*run])
        runs += [len(runs) if name and count >= fewest else None] * count
    return runs


def _words(reasons: tuple[str, ...], most: int = 2) -> str:
    more = f" and {len(reasons) - most} more" if len(reasons) > most else ""
    return ", ".join(reasons[:most]) + more
