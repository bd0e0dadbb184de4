"""One strategy's measurements joined to its predictions, by task."""

from collections.abc import Sequence

import numpy as np
import pandas as pd

from executor.measurement import WARM_UP, Measurement
from executor.validation.spread import median_interval
from executor.validation.validation_result import StrategyValidation
from hwprofiles import Floats
from planner.lowering import KINDS, Program
from planner.simulation import iteration_rows, replay
from simulator.timelines import union

__all__ = ["evaluated"]


def evaluated(
    name: str, program: Program, turns: Sequence[Measurement], *, computed: bool = True, plain: str = ""
) -> StrategyValidation:
    """Replay a program under every reading, and join what was measured of it.

    Args:
        name: The strategy.
        program: As it is predicted: on the cluster that it is simulated on.
        turns: What was measured, a turn each.
        computed: Whether there was arithmetic, so that losses mean something.
        plain: The same strategy without compression, if there is one.
    """
    readings = {
        "additive": replay(program, overlap=False, contention=False),
        "overlap": replay(program, contention=False),
        "contention": replay(program),
    }
    rows = [turn.iterations_s for turn in turns]
    iterations_s = np.concatenate(rows)
    median_s = float(np.median(iterations_s))
    simulated = readings["contention"].timeline()
    shown = min(turns, key=lambda turn: float(np.abs(turn.iterations_s - median_s).min()))
    measured = _timeline(program, shown, median_s)
    tasks = _tasks(simulated, measured, _durations_s(turns))
    sent = turns[-1].sent_bytes[-1]
    low, high = np.quantile(iterations_s, [0.25, 0.75]).tolist()
    return StrategyValidation(
        name=name,
        ladder_s={**{key: reading.iteration_s for key, reading in readings.items()}, "measured": median_s},
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
        plain=plain,
        compressed=program.compressed.describe(),
    )


def _durations_s(turns: Sequence[Measurement]) -> Floats:
    """Median duration of every task, shape (T,)."""
    rows = [(turn.end_s - turn.start_s)[WARM_UP:] for turn in turns]
    return np.asarray(np.median(np.concatenate(rows), axis=0))


def _timeline(program: Program, turn: Measurement, median_s: float) -> pd.DataFrame:
    """Of the iteration of a turn whose time is nearest the median of all; from its first task."""
    k = len(turn.ends_s) - len(turn.iterations_s) + int(np.abs(turn.iterations_s - median_s).argmin())
    origin_s = float(np.nanmin(turn.start_s[k]))
    return iteration_rows(program, turn.start_s[k] - origin_s, turn.end_s[k] - origin_s, iteration=k, origin="measured")


def _tasks(simulated: pd.DataFrame, measured: pd.DataFrame, durations_s: Floats) -> pd.DataFrame:
    joined = simulated[["id", "name", "kind", "layer", "device", "bytes"]].copy()
    joined["predicted_s"], joined["measured_s"] = simulated["end_s"] - simulated["start_s"], durations_s
    joined["error"] = _errors(joined["predicted_s"], joined["measured_s"])
    joined["predicted_end_s"], joined["measured_end_s"] = simulated["end_s"], measured["end_s"]
    return joined


def _errors(predicted: pd.Series, measured: pd.Series) -> pd.Series:
    return (predicted / measured - 1).where(measured > 0)


def _kinds(tasks: pd.DataFrame, simulated: pd.DataFrame, measured: pd.DataFrame) -> pd.DataFrame:
    """Sums of durations; of collectives the time in which any runs, for they may run side by side or in turn."""
    rows = tasks.groupby("kind").agg(
        tasks=("id", "size"), predicted_s=("predicted_s", "sum"), measured_s=("measured_s", "sum")
    )
    rows = rows.reindex([kind for kind in KINDS if kind in rows.index])
    if "collective" in rows.index:
        for key, timeline in (("predicted_s", simulated), ("measured_s", measured)):
            mine = timeline[timeline["kind"] == "collective"]
            starts, ends = union(mine["start_s"].to_numpy(), mine["end_s"].to_numpy())
            rows.loc["collective", key] = (ends - starts).sum()
    rows = rows.reset_index()
    rows["error"] = _errors(rows["predicted_s"], rows["measured_s"])
    return rows


def _layers(program: Program, tasks: pd.DataFrame) -> pd.DataFrame:
    rows = pd.DataFrame({"layer": [layer.name for layer in program.graph.layers]})
    for what, mine in (("compute", program.is_compute), ("communication", ~program.is_compute)):
        sums = tasks[mine].groupby("layer")[["predicted_s", "measured_s"]].sum()
        sums = sums.reindex(rows["layer"], fill_value=0.0).reset_index(drop=True)
        sums["error"] = _errors(sums["predicted_s"], sums["measured_s"])
        rows = rows.join(sums.add_prefix(f"{what}_"))
    return rows


def _edges(program: Program, sent_bytes: Floats) -> pd.DataFrame:
    """Bytes by tensor and direction; what the back end sends by itself within collectives, nobody counts."""
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
    found = grouped.agg(
        messages=("predicted_bytes", "size"),
        predicted_bytes=("predicted_bytes", "sum"),
        measured_bytes=("measured_bytes", "sum"),
    )
    return found.reset_index()
