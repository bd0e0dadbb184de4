"""Data of the timeline page besides the intervals: dependencies, routes, shares of links, the critical path."""

from typing import Any

import numpy as np
import pandas as pd

from groundwork.array_types import Ints
from planner.simulation.program_replay import Replay, stream_before
from planner.simulation.steady_path import CriticalPath
from reports.drawings.timeline_layout import side_by_side, with_members
from reports.drawings.timeline_packing import alike_owners, pack_timeline
from reports.style.packing import pack_array, pack_json, pack_signed, pack_steps
from simulator.timelines.timeline import alone_s


def timeline_data(replay: Replay, path: CriticalPath, measured: pd.DataFrame | None = None) -> dict[str, Any]:
    """Pack one whole steady iteration, with the dependencies of each task.

    Args:
        replay: Replay with overlap and contention, in which each task of the program is one activity.
        path: Critical path of the replay.
        measured: Measured timeline of the same program, shown below the simulated one row by row.
    """
    names = list(replay.program.cluster.devices.names)
    members = replay.program.collective_devices
    shown = with_members(replay.timeline(), members)
    if measured is not None:
        shown, names = side_by_side(shown, with_members(measured, members), names)
    packed = pack_timeline(shown, names, ids=True)
    return {
        "timeline": packed,
        "tasks": _tasks(replay, packed["tick_s"]),
        "links": _links(replay),
        "path": _path(path, replay),
    }


def _tasks(replay: Replay, tick_s: float) -> dict[str, Any]:
    """Return for each task its time alone in ticks, the task before in its stream, and its dependencies.

    Dependencies within the iteration are stored as distances from the task itself, which are small integers and
    compress well; dependencies on the iteration before are stored as tasks.
    """
    program, engine_task = replay.program, replay.program_graph.task_of[replay.shown[0]]
    task = program.waiting
    carried = program.carried[np.argsort(program.carried[:, 0], kind="stable")]
    return {
        "size": program.size,
        "alone": pack_array(np.rint(alone_s(replay.program_graph.graph)[engine_task] / tick_s).astype(np.int64)),
        "stream_before": pack_steps(stream_before(program) + 1),
        "after_count": pack_array(np.diff(program.after_start)),
        "after_back": pack_signed(task - program.after),
        "carried_count": pack_array(np.bincount(carried[:, 0], minlength=program.size)),
        "carried": pack_steps(carried[:, 1]),
    }


def _links(replay: Replay) -> dict[str, Any]:
    """Return the links that tasks cross, and for each task its work and the index of its route.

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
    crossed, on_route = np.unique(np.concatenate([used for used, _ in routes]), return_inverse=True)
    links = program.cluster.links
    classes, exclusive = links.classes[crossed], links.of_each(lambda link: link.exclusive)[crossed]
    return {
        "names": pack_json([links.names[link] for link in crossed.tolist()]),
        "classes": pack_json(classes.tolist()),
        "bandwidth_bytes_per_s": pack_array(program.cluster.bandwidth[crossed]),
        "exclusive": pack_array(exclusive.astype(np.int64)),
        "route": pack_array(codes),
        "work_bytes": pack_array(work),
        "route_count": pack_array(np.array([len(used) for used, _ in routes])),
        "route_link": pack_array(on_route),
        "route_weight": pack_array(np.concatenate([weight for _, weight in routes])),
        "alike": pack_array(_links_alike(replay, crossed)),
    }


def _links_alike(replay: Replay, crossed: Ints) -> Ints:
    """Return for each of some links the first one of its class that the same amounts cross at the same times."""
    graph, schedule, links = replay.program_graph.graph, replay.schedule, replay.program.cluster.links
    engine_task = replay.program_graph.task_of[replay.shown[0]]
    mine = np.isin(graph.use_owners, engine_task) & (graph.use_resource < len(links))
    task, link = graph.use_owners[mine], graph.use_resource[mine]
    moved = graph.use_weight[mine] * graph.work[task] / graph.capacity[link]
    values = np.stack([schedule.start_s[task], schedule.end_s[task] - schedule.start_s[task], moved], axis=1)
    code = np.unique(links.classes[crossed], return_inverse=True)[1]
    slack = np.full(3, 1e-6 * replay.iteration_s)
    # each link has one entry that tells its class
    owner = np.append(np.searchsorted(crossed, link), np.arange(len(crossed)))
    codes = np.append(np.full(len(link), -1), code)
    return alike_owners(owner, codes, np.concatenate([values, np.zeros((len(crossed), 3))]), slack, len(crossed))


def _path(path: CriticalPath, replay: Replay) -> dict[str, Any]:
    """Return the steps of the critical path in the iteration shown: task, reason of its start, and waiting time."""
    steps = [step for step in path.steps if step.iteration == replay.shown[0]]
    return {
        "task": pack_array(np.array([step.task for step in steps], dtype=np.int64)),
        "words": pack_json([f"{step.reason} {step.resource}".strip() for step in steps]),
        "wait_s": pack_array(np.array([step.wait_s for step in steps], dtype=np.float64)),
    }
