"""Measured schedules in the form of simulated ones, for the same page, and as values."""

from typing import Any

import numpy as np

from executor.streams.stream_results import MeasuredSchedule, MeasuredStreams
from groundwork.array_types import Floats
from planner.simulation.program_replay import iteration_rows
from simulator.timelines.timeline import lower_bound
from studies.streams.critical_paths import paths_of
from studies.streams.schedule_comparison import BINS, ScheduleResult, StreamComparison
from studies.streams.stream_plan import streamed_graph


def as_stream_comparison(measured: MeasuredStreams) -> StreamComparison:
    """Return the median steps as a comparison, with their timelines and the cores in use over time."""
    paths = paths_of(measured.results[-1].work.program)
    errors = ", ".join(f"{row.name} {row.error:+z.0%}" for row in measured.results)
    return StreamComparison(
        model=measured.model,
        batch=measured.batch,
        device=f"{measured.cores} cores",
        occupancy_model="measurement",
        layer_paths=paths.layer_paths,
        blocks=len(paths.blocks),
        results=tuple(map(_result, measured.results)),
        notes=(
            f"Measured: median of {measured.rounds} steps of each schedule, in turns; "
            "timelines are those of the median.",
            f"Predicted from single sub-tasks, against the measured steps: {errors}.",
            "Lower bounds are of the sub-tasks' times alone; a bias's gradient is made with that of the weights.",
        ),
    )


def _result(row: MeasuredSchedule) -> ScheduleResult:
    """Return a measured schedule in the form of a simulated one."""
    program, times, plan = row.work.program, row.times, row.plan
    timeline = iteration_rows(program, times.start_s, times.end_s, iteration=0, origin="measured")
    timeline["stream"] = np.array([*plan.labels, "updates"])[plan.shown]
    edges_s = np.linspace(0.0, times.step_s, BINS + 1)
    use = _use(times.start_s, times.end_s, row.work.occupancy, edges_s)
    back = timeline["kind"] == "activation_gradient"
    return ScheduleResult(
        name=row.name,
        method="",
        iteration_s=row.step_s,
        streams=plan.streams,
        labels=plan.labels,
        occupancy=float(use.mean()),
        gradient_end_s=float(times.end_s[back.to_numpy()].max(initial=0.0)),
        held_bytes=row.held_bytes,
        bound_s=lower_bound(streamed_graph(row.work, plan, iterations=1).graph).seconds,
        timeline=timeline,
        edges_s=edges_s,
        use=use.clip(0.0, 1.0),
    )


def _use(start_s: Floats, end_s: Floats, share: Floats, edges_s: Floats) -> Floats:
    """Return the mean share of the cores in use in each bin, shape (bins,)."""
    inside = np.minimum(end_s[:, None], edges_s[None, 1:]) - np.maximum(start_s[:, None], edges_s[None, :-1])
    return np.asarray((inside.clip(min=0.0) * share[:, None]).sum(axis=0) / np.diff(edges_s))


def measured_values(measured: MeasuredStreams) -> dict[str, Any]:
    """Return all values but the timelines, in seconds and bytes."""
    names = ("name", "step_s", "quartiles_s", "gain", "predicted_s", "error", "threads", "held_bytes", "loss")
    return {
        **{name: getattr(measured, name) for name in ("model", "batch", "cores", "rounds")},
        "schedules": [{name: getattr(row, name) for name in names} for row in measured.results],
    }
