"""Data of the timeline page besides the intervals: dependencies, routes, shares of links, the critical path."""

from typing import Any

import numpy as np
import pandas as pd

from hwprofiles import Ints
from planner.simulation import CriticalPath, Replay, stream_before
from reports.drawings.timeline_layout import pack_timeline, side_by_side
from reports.style import Packed, pack_array, pack_json
from simulator.timelines import alone_s

__all__ = ["timeline_data"]


def timeline_data(replay: Replay, path: CriticalPath, measured: pd.DataFrame | None = None) -> dict[str, Any]:
    """Pack one whole steady iteration, with the dependencies of each task.

    Args:
        replay: Replay with overlap and contention, in which each task of the program is one activity.
        path: Critical path of the replay.
        measured: Measured timeline of the same program, shown below the simulated one row by row.
    """
    names = [device.name for device in replay.program.cluster.devices]
    shown = replay.timeline()
    if measured is not None:
        shown, names = side_by_side(shown, measured, names)
    packed = pack_timeline(shown, names, ids=True)
    return {
        "timeline": packed,
        "tasks": _tasks(replay, packed["tick_s"]),
        "links": _links(replay),
        "path": _path(path, replay),
    }


def _tasks(replay: Replay, tick_s: float) -> dict[str, Any]:
    """Return for each task its latency and time alone in ticks, the task before in its stream, its dependencies.

    Dependencies within the iteration are stored as distances from the task itself, which are small integers and
    compress well; dependencies on the iteration before are stored as tasks.
    """
    program, engine_task = replay.program, replay.program_graph.task_of[replay.shown[0]]
    schedule = replay.schedule
    latency_s = (schedule.start_s - schedule.ready_s)[engine_task]
    task = program.waiting
    carried = program.carried[np.argsort(program.carried[:, 0], kind="stable")]
    return {
        "size": program.size,
        "latency": pack_array(np.rint(latency_s / tick_s).astype(np.int64)),
        "alone": pack_array(np.rint(alone_s(replay.program_graph.graph)[engine_task] / tick_s).astype(np.int64)),
        "stream_before": pack_array(stream_before(program) + 1),
        "after_count": pack_array(np.diff(program.after_start)),
        "after_back": _signed(task - program.after),
        "carried_count": pack_array(np.bincount(carried[:, 0], minlength=program.size)),
        "carried": pack_array(carried[:, 1]),
    }


def _signed(values: Ints) -> Packed:
    """Pack integers of either sign as 0, -1, 1, -2, 2, ... counted from 0."""
    return pack_array(np.where(values < 0, -2 * values - 1, 2 * values))


def _links(replay: Replay) -> dict[str, Any]:
    """Return the links, and for each task its work and the index of its route.

    A route lists the links that it loads with the weight on each, per byte of work, so that transfers between the same
    devices share one route.
    """
    program, graph = replay.program, replay.program_graph.graph
    count, engine_task = len(program.cluster.links), replay.program_graph.task_of[replay.shown[0]]
    codes, routes = np.zeros(program.size, dtype=np.int64), [(np.zeros(0, dtype=np.int64), np.zeros(0))]
    known: dict[bytes, int] = {}
    for task in np.flatnonzero(~program.is_compute).tolist():
        row = slice(graph.use_start[engine_task[task]], graph.use_start[engine_task[task] + 1])
        link = graph.use_resource[row] < count
        used, weight = graph.use_resource[row][link], graph.use_weight[row][link]
        key = used.tobytes() + weight.tobytes()
        if key not in known:
            known[key] = len(routes)
            routes.append((used, weight))
        codes[task] = known[key]
    work = np.where(program.is_compute, 0.0, graph.work[engine_task] * replay.program_graph.unit_bytes)
    links = program.cluster.links
    return {
        "names": pack_json([link.name for link in links]),
        "classes": pack_json([link.link_class for link in links]),
        "bandwidth_bytes_per_s": pack_array(program.cluster.bandwidth),
        "exclusive": pack_array(np.array([link.exclusive for link in links], dtype=np.int64)),
        "route": pack_array(codes),
        "work_bytes": pack_array(work),
        "route_count": pack_array(np.array([len(used) for used, _ in routes])),
        "route_link": pack_array(np.concatenate([used for used, _ in routes])),
        "route_weight": pack_array(np.concatenate([weight for _, weight in routes])),
    }


def _path(path: CriticalPath, replay: Replay) -> dict[str, Any]:
    """Return the steps of the critical path in the iteration shown: task, reason of its start, and waiting time."""
    steps = [step for step in path.steps if step.iteration == replay.shown[0]]
    return {
        "task": pack_array(np.array([step.task for step in steps], dtype=np.int64)),
        "words": pack_json([f"{step.reason} {step.resource}".strip() for step in steps]),
        "wait_s": pack_array(np.array([step.wait_s for step in steps], dtype=np.float64)),
    }
