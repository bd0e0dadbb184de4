"""Analysis of a program: time on the critical path, sensitivities, use of resources, memory over time."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from groundwork.progress import Progress
from groundwork.sparse_rows import grouped_rows
from hwprofiles.devices.device_graph import DeviceGraph
from planner.lowering.program import Program
from planner.simulation.collective_use import carried_bytes
from planner.simulation.execution_models import ITERATIONS, resources_like
from planner.simulation.memory_over_time import MemoryCurve, memory_curve
from planner.simulation.program_replay import Replay, Shares, replay
from planner.simulation.sensitivity import Sensitivity, sensitivities
from planner.simulation.steady_path import CriticalPath, program_path
from planner.topology.copy_engine_use import copy_engines_of
from planner.topology.network_routes import routes_of_cluster
from simulator.timelines.timeline import resource_use, union

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceUse:
    """Use of a link, of a device's arithmetic or of its copy engines over the steady iterations."""

    name: str
    of: str
    """Link class, compute profile, kind of copies, or ``board``."""
    is_link: bool
    busy: float
    """Share of the time in which it serves at least one task."""
    use: float
    """Share of its capacity that is used, averaged over time."""
    moved_bytes: float
    """Bytes that a link moves in one iteration; 0 for other resources."""
    alike: int = 1
    """Resources that are used alike because one replica stands for all, of which this is the first."""


@dataclass(frozen=True, kw_only=True)
class Analysis:
    """Results of a replay: time shares, critical path, sensitivities, resources and memory."""

    replay: Replay
    shares: Shares
    path: CriticalPath
    sensitivities: tuple[Sensitivity, ...]
    resources: tuple[ResourceUse, ...]
    """Resources that are used, the busiest first."""
    memory: MemoryCurve

    @property
    def alive_at_peak(self) -> "pd.DataFrame":
        """Return the tensors on the fullest device at the time of its peak."""
        return self.memory.alive(self.memory.fullest, self.memory.peak_time_s(self.memory.fullest))


def analyse(
    program: Program,
    lower_on: Callable[[DeviceGraph], Program],
    *,
    iterations: int = ITERATIONS,
    progress: Progress | None = None,
) -> Analysis:
    """Replay a program and analyse what its iteration waits for.

    Args:
        program: One iteration, lowered.
        lower_on: Lowers the same strategy on a changed cluster, as ``plan_lowering`` does; see ``sensitivities``.
        iterations: Iterations to replay until the steady state.
        progress: Called as ``progress(label, done, total)``.
    """
    replayed = replay(program, iterations=iterations)
    return Analysis(
        replay=replayed,
        shares=replayed.shares(),
        path=program_path(replayed),
        sensitivities=sensitivities(program, lower_on, iterations=iterations, progress=progress),
        resources=resource_uses(replayed),
        memory=memory_curve(replayed),
    )


def resource_uses(replayed: Replay) -> tuple[ResourceUse, ...]:
    """Return the use of links, devices and copy engines over the steady iterations, the busiest first."""
    graph, schedule, cluster = replayed.program_graph.graph, replayed.schedule, replayed.program.cluster
    begin, end, _ = replayed.steady_s
    carried = carried_bytes(replayed.program, routes_of_cluster(cluster))
    use = resource_use(graph, schedule, np.array([begin, end]))[:, 0].clip(min=0.0)
    # Uses grouped by resource: those of resource r are order[bounds[r] : bounds[r + 1]].
    owner = graph.use_owners
    bounds, order = grouped_rows(graph.use_resource, len(graph.capacity))
    start_s, end_s = (np.clip(times, begin, end)[owner[order]] for times in (schedule.start_s, schedule.end_s))
    kinds = [*cluster.links.classes.tolist(), *cluster.devices.of_each(lambda device: device.profile).tolist()]
    kinds += copy_engines_of(cluster).kinds
    kinds += ["board"] * (len(graph.capacity) - len(kinds))  # under interference, devices of a board share its power
    like = resources_like(replayed.program)
    more = len(use) - len(like)  # boards stand for themselves
    alike = np.append(np.bincount(like, minlength=len(like)), np.ones(more, dtype=np.int64))
    rows = []
    for resource in np.flatnonzero((use > 0) & (alike > 0)).tolist():
        uses = slice(bounds[resource], bounds[resource + 1])
        starts, ends = union(start_s[uses], end_s[uses])
        is_link = resource < len(cluster.links)
        rows.append(
            ResourceUse(
                name=graph.resource_names[resource],
                of=kinds[resource],
                is_link=is_link,
                busy=float((ends - starts).sum() / (end - begin)),
                use=float(use[resource]),
                moved_bytes=float(carried[resource]) if is_link else 0.0,
                alike=int(alike[resource]),
            )
        )
    return tuple(sorted(rows, key=lambda row: (-row.busy, -row.use)))
