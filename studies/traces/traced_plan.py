"""Traces of PyTorch's profiler set against a plan's timeline, task by task."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from groundwork.errors import ConfigError
from planner.simulation.program_replay import Replay, iteration_rows
from studies.traces.profiler_events import traced_iterations
from studies.traces.traced_layers import LayerTimes, traced_layer_times

if TYPE_CHECKING:
    import pandas as pd

    from planner.lowering.program import Program


@dataclass(frozen=True, slots=True)
class TracedPlan:
    """A plan's tasks, predicted and traced."""

    layers: "pd.DataFrame"
    """A row for each layer and phase: layer, phase, predicted_s, measured_s, error.  Measured times are medians of
    iterations, then means of ranks; NaN where a trace does not show the layer."""
    timeline: "pd.DataFrame"
    """Tasks of a typical iteration in the form of a simulated timeline; those that the traces show."""
    predicted_s: float
    measured_s: float
    """Median time of an iteration, of the slowest rank."""
    covered: float
    """Least share of an iteration's time that the layers and the update account for."""
    missing: tuple[str, ...]
    """Layers and phases that the plan has and no trace shows."""


def traced_plan(program: "Program", replay: Replay, paths: Sequence[Path]) -> TracedPlan:
    """Return a plan's tasks beside those of traces.

    Args:
        program: Program of the plan.
        replay: Its replay.
        paths: A trace for each rank, in their order; fewer than there are devices leave the others out.

    Raises:
        ConfigError: A file is no trace with the fields needed, is of another network, or there are more files than
            devices.
    """
    devices = len(program.cluster.devices)
    if len(paths) > devices:
        raise ConfigError(f"traces must be at most one for each of {devices} devices, got {len(paths)}")
    traces = [[traced_layer_times(program.graph, each) for each in traced_iterations(path)] for path in paths]
    start_s, end_s = _task_times(
        program, [sorted(rows, key=lambda each: each.iteration_s)[(len(rows) - 1) // 2] for rows in traces]
    )
    shown = ~np.isnan(start_s)
    timeline = iteration_rows(program, start_s, end_s, iteration=0, origin="measured")[shown].reset_index(drop=True)
    layers = _layer_rows(program, traces)
    absent = layers[layers["measured_s"].isna()]
    return TracedPlan(
        layers=layers,
        timeline=timeline,
        predicted_s=replay.iteration_s,
        measured_s=max(float(np.median([each.iteration_s for each in rows])) for rows in traces),
        covered=min(each.covered for rows in traces for each in rows),
        missing=tuple(f"{row.layer}, {row.phase}" for row in absent.itertuples()),
    )


def _phases(program: "Program") -> list[tuple[str, np.ndarray]]:
    """Return the computing tasks of each phase, as flags."""
    from planner.lowering.program import KINDS

    update = program.kind == KINDS.index("update")
    computes = program.is_compute & ~program.is_codec
    return [
        ("forward", computes & ~program.backward & ~update & ~program.recomputed),
        ("backward", computes & program.backward & ~update),
        ("update", computes & update),
    ]


def _task_times(program: "Program", ranks: Sequence[LayerTimes]) -> tuple[np.ndarray, np.ndarray]:
    """Return start and end of each task of one iteration, NaN where no trace shows it.

    What a trace shows as one, such as both gradients of a layer, is divided in proportion to the predicted times.
    """
    start_s, end_s = np.full(program.size, np.nan), np.full(program.size, np.nan)
    names = [layer.name for layer in program.graph.layers]
    for phase, tasks in _phases(program):
        for device, times in enumerate(ranks):
            here = tasks & (program.device == device)
            spans = {"forward": times.forward, "backward": times.backward}.get(phase)
            for layer in np.unique(program.layer[here]) if spans is not None else [-1]:
                span = spans.get(names[layer]) if spans is not None else times.update
                own = np.flatnonzero(here & (program.layer == layer) if layer >= 0 else here)
                if span is None or not len(own):
                    continue
                work_s = np.maximum(program.work_s[own], 1e-12)
                ends = span[0] + np.cumsum(work_s) / work_s.sum() * (span[1] - span[0])
                start_s[own], end_s[own] = np.concatenate([[span[0]], ends[:-1]]), ends
    return start_s, end_s


def _layer_rows(program: "Program", traces: Sequence[Sequence[LayerTimes]]) -> "pd.DataFrame":
    """Return predicted and measured times by layer and phase."""
    import pandas as pd

    names = [layer.name for layer in program.graph.layers]
    rows = []
    for phase, tasks in _phases(program):
        for layer in [-1] if phase == "update" else range(len(names)):
            predicted, measured = [], []
            for device, iterations in enumerate(traces):
                own = tasks & (program.device == device) & ((program.layer == layer) | (layer < 0))
                if not own.any():
                    continue
                predicted.append(float(program.work_s[own].sum()))
                spans = [_span_of(each, phase, names[layer] if layer >= 0 else "") for each in iterations]
                measured.append(float(np.median(spans)) if spans else np.nan)
            if predicted:
                rows.append(
                    {
                        "layer": names[layer] if layer >= 0 else "all layers",
                        "phase": phase,
                        "predicted_s": float(np.mean(predicted)),
                        "measured_s": float(np.mean(measured)),
                    }
                )
    table = pd.DataFrame(rows)
    return table.assign(error=table["predicted_s"] / table["measured_s"] - 1)


def _span_of(times: LayerTimes, phase: str, layer: str) -> float:
    """Return the time that a layer took in a phase; NaN where the trace does not show it."""
    if phase == "update":
        return times.update[2] if times.update else np.nan
    span = (times.forward if phase == "forward" else times.backward).get(layer)
    return span[2] if span else np.nan
