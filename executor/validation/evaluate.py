"""Measurements of one strategy joined to its predictions, by task."""

from collections.abc import Sequence

import numpy as np
import pandas as pd

from executor.measurement.measured_run import WARM_UP, Measurement
from executor.validation.spread import median_interval
from executor.validation.validation_result import StrategyValidation
from groundwork.array_types import Floats
from planner.lowering.program import KINDS, Program
from planner.simulation.ladder import ladder_s
from planner.simulation.program_replay import replay
from simulator.timelines.timeline import union


def evaluated(
    name: str, program: Program, turns: Sequence[Measurement], *, computed: bool = True, plain: str = ""
) -> StrategyValidation:
    """Replay a program under every execution model, and join its measurements to the predictions.

    Args:
        name: Name of the strategy.
        program: Program as it is predicted, with the times of the cluster that it is simulated on.
        turns: Measurements, one a turn.
        computed: False where waits stood in for arithmetic, so that losses mean nothing.
        plain: Name of the same strategy without compression and orders of synchronisation; empty if this is it.

    Returns:
        Times, kinds of tasks, layers, tensors and tasks, each predicted and measured.
    """
    full = replay(program)
    rungs = ladder_s(program, replay(program, overlap=False, contention=False).iteration_s)
    rows = [turn.iterations_s for turn in turns]
    iterations_s = np.concatenate(rows)
    median_s = float(np.median(iterations_s))
    simulated = full.timeline()
    shown = min(turns, key=lambda turn: float(np.abs(turn.iterations_s - median_s).min()))
    # The turn's iteration whose time is nearest the median of all, from its first task.
    k = len(shown.ends_s) - len(shown.iterations_s) + int(np.abs(shown.iterations_s - median_s).argmin())
    measured = shown.iteration_timeline(program, k)
    every_s = np.concatenate([(turn.end_s - turn.start_s)[WARM_UP:] for turn in turns])
    durations_s = np.median(every_s, axis=0)
    tasks = simulated[["id", "name", "kind", "layer", "device", "bytes"]].copy()
    tasks["predicted_s"], tasks["measured_s"] = simulated["end_s"] - simulated["start_s"], durations_s
    tasks["error"] = _errors(tasks["predicted_s"], tasks["measured_s"])
    tasks["predicted_end_s"], tasks["measured_end_s"] = simulated["end_s"], measured["end_s"]
    sent = turns[-1].sent_bytes[-1]
    low, high = np.quantile(iterations_s, [0.25, 0.75]).tolist()
    return StrategyValidation(
        name=name,
        ladder_s={**rungs, "measured": median_s},
        iterations_s=tuple(iterations_s.tolist()),
        rounds=len(turns),
        quartiles_s=(low, high),
        rounds_s=tuple(float(np.median(row)) for row in rows),
        interval_s=median_interval(rows),
        losses=tuple(turns[0].loss.tolist() if computed else [float("nan")]),
        kinds=_kinds(tasks, simulated, measured),
        layers=_layers(program, tasks),
        edges=_edges(program, sent),
        tasks=tasks,
        simulated=simulated,
        measured=measured,
        collective_devices=program.collective_devices,
        plain=plain,
        compressed=program.compressed.describe(),
    )


def _errors(predicted: pd.Series, measured: pd.Series) -> pd.Series:
    return (predicted / measured - 1).where(measured > 0)


def _kinds(tasks: pd.DataFrame, simulated: pd.DataFrame, measured: pd.DataFrame) -> pd.DataFrame:
    """Return sums of durations by kind; of collectives the time in which any runs, for they may overlap one another."""
    rows = tasks.groupby("kind").agg(
        tasks=("id", "size"), predicted_s=("predicted_s", "sum"), measured_s=("measured_s", "sum")
    )
    rows = rows.reindex([kind for kind in KINDS if kind in rows.index])
    if "collective" in rows.index:
        for key, timeline in (("predicted_s", simulated), ("measured_s", measured)):
            collectives = timeline[timeline["kind"] == "collective"]
            starts, ends = union(collectives["start_s"].to_numpy(), collectives["end_s"].to_numpy())
            rows.loc["collective", key] = (ends - starts).sum()
    rows = rows.reset_index()
    rows["error"] = _errors(rows["predicted_s"], rows["measured_s"])
    return rows


def _layers(program: Program, tasks: pd.DataFrame) -> pd.DataFrame:
    rows = pd.DataFrame({"layer": [layer.name for layer in program.graph.layers]})
    for column, chosen in (("compute", program.is_compute), ("communication", ~program.is_compute)):
        seconds = {name: tasks[name].where(chosen).fillna(0.0).to_numpy() for name in ("predicted_s", "measured_s")}
        sums = pd.DataFrame({name: program.by_layer(each) for name, each in seconds.items()})
        sums["error"] = _errors(sums["predicted_s"], sums["measured_s"])
        rows = rows.join(sums.add_prefix(f"{column}_"))
    return rows


def _edges(program: Program, sent_bytes: Floats) -> pd.DataFrame:
    """Return the bytes by tensor and direction; the back end's own messages within collectives are not counted."""
    names = np.array([layer.name for layer in program.graph.layers])
    moved = np.flatnonzero(program.kind == KINDS.index("transfer"))
    rows = pd.DataFrame(
        {
            "producer": names[program.layer[moved]],
            "consumer": names[program.consumer[moved]],
            "direction": np.where(program.backward[moved], "backward", "forward"),
            "predicted_bytes": program.size_bytes[moved],
            "measured_bytes": sent_bytes[moved],
        }
    )
    grouped = rows.groupby(["producer", "consumer", "direction"], sort=False)
    sums = grouped.agg(
        messages=("predicted_bytes", "size"),
        predicted_bytes=("predicted_bytes", "sum"),
        measured_bytes=("measured_bytes", "sum"),
    )
    return sums.reset_index()
