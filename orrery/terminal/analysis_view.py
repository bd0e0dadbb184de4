"""Results of ``orrery analyse``: one JSON value, or tables with the largest values first."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from orrery.terminal.plan_view import plan_headline
from orrery.terminal.views import print_pairs, print_table

if TYPE_CHECKING:
    from orrery.terminal.stored_plan import StoredPlan
    from planner.plan.analysis import Analysis
    from planner.simulation.steady_path import Stretch


_REASONS = 2
"""Reasons printed for one stretch; the rest are counted."""


def analysis_values(analysis: "Analysis", *, plan: "StoredPlan") -> dict[str, Any]:
    """Return the whole analysis; of the memory curves, that of the fullest device."""
    from planner.memory.peak_memory import peak_memory_bytes
    from planner.plan.pace import pace_of_analysis

    replay, path, memory = analysis.replay, analysis.path, analysis.memory
    pace = pace_of_analysis(analysis)
    shares, devices = analysis.shares, replay.program.cluster.devices
    times_s, held_bytes = memory.of(memory.fullest)
    return {
        "iteration_s": replay.iteration_s,
        "expected_s": replay.expected_s,
        "likely_s": replay.likely_s,
        "additive_s": plan.additive_s,
        "notes": plan.notes,
        "pace": {"sentence": pace.sentence, "left": pace.left, "remedy": pace.remedy, "setters": pace.setters},
        "busiest_device": {
            "device": devices[shares.device].name,
            "compute_s": shares.compute_s,
            "exposed_communication_s": shares.exposed_communication_s,
            "idle_s": shares.idle_s,
        },
        "critical_path": {
            "iterations": path.iterations,
            "steps": path.steps,
            "stretches": path.stretches(),
            "by_kind_s": path.seconds_by("kind"),
            "by_layer_s": path.seconds_by("layer"),
            "by_link_s": path.seconds_by("link", communication=True),
        },
        "exposed_communication": path.exposed(),
        "sensitivities": analysis.sensitivities,
        "resources": analysis.resources,
        "memory": {
            "peak_bytes": {device.name: peak for device, peak in zip(devices, memory.peak_bytes.tolist(), strict=True)},
            "program_order_peak_bytes": float(peak_memory_bytes(replay.program).max()),
            "fullest": devices[memory.fullest].name,
            "capacity_bytes": devices[memory.fullest].usable_bytes,
            "peak_time_s": memory.peak_time_s(memory.fullest),
            "alive_at_peak": analysis.alive_at_peak.to_dict("records"),
            "curve": {"time_s": times_s, "held_bytes": held_bytes},
        },
    }


def print_analysis(analysis: "Analysis", *, plan: "StoredPlan", top: int) -> None:
    """Print the analysis as tables of at most ``top`` rows."""
    from planner.plan.training_rates import training_rates
    from reports.style.units import memory_unit

    path, total_s = analysis.path, analysis.replay.iteration_s
    values = analysis_values(analysis, plan=plan)
    memory = values["memory"]
    pace = values["pace"]
    replayed = analysis.replay
    rates = training_rates(plan.costs, replayed.program, replayed.expected_s)
    print(plan_headline(plan.plan, replayed, rates))
    print(f"{pace['sentence']}; time left: {pace['left']}.\nTo be faster: {pace['remedy']}.\n")
    notes = {"notes": plan.notes} if plan.notes else {}
    busiest = {f"busiest device: {name}": value for name, value in values["busiest_device"].items()}
    times = {"expected_s": values["expected_s"], "iteration_s": total_s, "additive_s": plan.additive_s}
    print_pairs({**times, **busiest, **notes})
    _section("Critical path by kind", [_share("kind", *item, total_s) for item in path.seconds_by("kind").items()])
    stretches = sorted(path.stretches(), key=lambda stretch: -stretch.seconds)[:top]
    in_time = sorted(stretches, key=lambda stretch: stretch.start_s)
    _section("Longest stretches of the critical path, in time", [_stretch_row(stretch) for stretch in in_time])
    exposed = [
        {
            **_share("layer", row.layer, row.seconds, total_s),
            "kind": row.kind,
            "link class": row.link_class,
            "latency_s": row.latency_s,
            "wait_s": row.wait_s,
            "work_s": row.work_s,
        }
        for row in path.exposed()[:top]
    ]
    _section("Communication on the critical path", exposed)
    sensitivities = [
        {
            "change": row.change,
            "simulated iteration": f"{row.effect:+z.1%}",
            "elasticity": f"{row.elasticity:+z.3f} ± {row.elasticity_spread:.3f}",
            "other routes": "yes" if row.reroutes else "no",
        }
        for row in analysis.sensitivities[:top]
    ]
    _section("What faster hardware would change", sensitivities)
    uses = [
        {
            "name": row.name + (f" and {row.alike - 1:,} alike" if row.alike > 1 else ""),
            "of": row.of,
            "busy": f"{row.busy:.1%}",
            "use": f"{row.use:.1%}",
            "moved_bytes": row.moved_bytes,
        }
        for row in [row for row in analysis.resources if row.is_link][:top]
    ]
    _section("Busiest links", uses)
    peak = max(memory["peak_bytes"].values())
    share = memory["peak_bytes"][memory["fullest"]] / memory["capacity_bytes"]
    unit, planned = memory_unit([peak]), memory["program_order_peak_bytes"]
    # messages that the replay lets run beside tasks hold their buffers for longer
    other = f" ({unit.full(planned)} task by task, as plan says)" if unit.full(planned) != unit.full(peak) else ""
    title = (
        f"Memory: at most {unit.full(peak)} as simulated{other}; {memory['fullest']} is fullest, {share:.1%}, "
        "when it holds"
    )
    _section(title, memory["alive_at_peak"][:top])


def _section(title: str, rows: Sequence[Mapping[str, Any]]) -> None:
    """Print a table below its title, unless it is empty."""
    if rows:
        print(f"\n{title}")
        print_table(rows)


def _share(what: str, name: str, seconds: float, total_s: float) -> dict[str, Any]:
    """Return a row with a time and its share of the total, under a heading of its own."""
    return {what: name.replace("_", " "), "seconds": seconds, "share": f"{seconds / total_s:.1%}"}


def _stretch_row(stretch: "Stretch") -> dict[str, Any]:
    """Return a stretch of the critical path as a row, with the first reasons why it began when it did."""
    more = f" and {stretch.count - 1} more" if stretch.count > 1 else ""
    others = len(stretch.reasons) - _REASONS
    reasons = "; ".join(stretch.reasons[:_REASONS]) + (f"; {others} more" if others > 0 else "")
    return {
        "task": stretch.name + more,
        "start_s": stretch.start_s,
        "seconds": stretch.seconds,
        "wait_s": stretch.wait_s,
        "began upon": reasons,
    }
