"""Page of a timeline: every task of one iteration on every device and link."""

from pathlib import Path
from typing import Any

from planner.simulation import Stretch
from reports.drawings import PlanView, timeline_data
from reports.pages.page_file import write_page
from reports.pages.page_template import Links, rendered
from reports.style import kind_colours, time_unit

__all__ = ["timeline_html", "write_timeline_page"]

_GRADIENTS = ("epilogue_gradient", "activation_gradient", "weight_gradient", "bias_gradient")


def write_timeline_page(view: PlanView, path: Path, *, links: Links = ()) -> None:
    """Write the page; a reader of ``path`` sees the old file or the whole new one.

    Raises:
        OSError: The folder does not exist or cannot be written.
    """
    write_page(timeline_html(view, links=links), path)


def timeline_html(view: PlanView, *, links: Links = ()) -> str:
    """Return the page as HTML; it draws on a canvas, without Plotly."""
    data = timeline_data(view.replay, view.path, view.measured)
    kinds = sorted(set(view.replay.timeline()["kind"]))
    return rendered(
        "timeline.html",
        headline=view.headline,
        draws=False,
        links=links,
        subject=view.subject,
        tiles=view.tiles,
        notes=view.notes,
        both=view.measured is not None,
        stretches=_stretches(view),
        data={**data, "colours": kind_colours(kinds)},
    )


def _stretches(view: PlanView) -> dict[str, Any]:
    """Return the critical path in order of time, with one row for consecutive steps of one kind and layer."""
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
            "run": _run(stretch, at),
        }
        for at, stretch in enumerate(stretches)
    ]
    whole_s, iteration_s = sum(stretch.seconds for stretch in stretches), view.replay.iteration_s
    total = time_unit([iteration_s])
    return {
        "unit": unit.name,
        "rows": rows,
        "whole": total.full(whole_s),
        "iteration": total.full(iteration_s),
        "rest": total.text(whole_s) != total.text(iteration_s),
    }


def _run(stretch: Stretch, at: int) -> str:
    """Return what the arithmetic of a pass that lost no time has in common; everything else stands alone."""
    passes = {"forward": "forward", "update": "update"} | dict.fromkeys(_GRADIENTS, "backward")
    return passes.get(stretch.kind, str(at)) if not stretch.wait_s else str(at)


def _words(reasons: tuple[str, ...], most: int = 2) -> str:
    more = f" and {len(reasons) - most} more" if len(reasons) > most else ""
    return ", ".join(reasons[:most]) + more
