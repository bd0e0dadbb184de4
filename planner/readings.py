"""The readings of a program: the task graph that an engine replays, with or without overlap and contention.

Without overlap, the groups of tasks that are the phases of Eq. 1 run one after the other.  Without
contention, a group of transfers or collectives is one activity that loads all its links at once and meets
nobody else.  Without both, the replay is Eq. 1.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from planner.network import Network, network_of
from planner.program import Program
from simulator.task_graph import TaskGraph

__all__ = ["Reading", "read"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class Reading:
    """A program of several iterations as a task graph."""

    graph: TaskGraph
    task_of: Ints
    """Shape (iterations, T): the engine's task that stands for each task of the program."""


@dataclass(frozen=True, slots=True, eq=False)
class _Uses:
    """Uses of resources, pair by pair, in order of the activities."""

    activity: Ints
    resource: Ints
    weight: Floats


@dataclass(frozen=True, slots=True, eq=False)
class _Activities:
    """One iteration's engine tasks: the program's own, or one for a whole group of transfers."""

    of: Ints
    """Shape (T,): activity of each task of the program."""
    work: Floats
    latency_s: Floats
    stream: Ints
    uses: _Uses
    group: Ints


def read(program: Program, *, overlap: bool = True, contention: bool = True, iterations: int = 1) -> Reading:
    """Build the task graph of a reading.

    Args:
        program: One iteration.
        overlap: Tasks wait for what they depend on, not for the whole phase before.
        contention: Every transfer on its own, sharing links; else joined by group.
        iterations: Iterations in a row, >= 1.

    Returns:
        The task graph; the resources are the cluster's links, then its devices.
    """
    network = network_of(program.cluster)
    activities = _separate(program, network) if contention else _joined(program, network)
    if overlap:
        return _repeat(activities, *_dependencies(program, activities.of), iterations, program)
    return _repeat(*_with_barriers(activities), iterations, program)


def _separate(program: Program, network: Network) -> _Activities:
    work, latency_s = program.work_s.copy(), np.zeros(program.size)
    sends = np.flatnonzero(program.peer >= 0)
    work[sends] = program.size_bytes[sends]
    latency_s[sends] = network.latencies_s(program.device[sends], program.peer[sends], program.size_bytes[sends])
    counts, links = network.routes(program.device[sends], program.peer[sends])
    activity = [np.repeat(sends, counts), np.flatnonzero(program.is_compute)]
    resource = [links, _arithmetic(program, network)]
    weight = [np.ones(len(links)), np.ones(len(activity[1]))]
    for task in program.collectives:
        loads, latency_s[task] = _collective(program, network, task)
        used = np.flatnonzero(loads)
        work[task] = loads.max()
        activity.append(np.full(len(used), task))
        resource.append(used)
        weight.append(loads[used] / work[task])
    order = np.argsort(np.concatenate(activity), kind="stable")
    uses = _Uses(*(np.concatenate(column)[order] for column in (activity, resource, weight)))
    stream = np.where(program.is_compute, program.device, -1)
    return _Activities(np.arange(program.size), work, latency_s, stream, uses, program.group)


def _arithmetic(program: Program, network: Network) -> Ints:
    """Resource of each compute task: the devices come after the links."""
    return np.asarray(len(network.seconds_per_byte) + program.device[program.is_compute])


def _collective(program: Program, network: Network, task: int) -> tuple[Floats, float]:
    """Bytes on every link, and the latency of all repeats."""
    collective = program.collectives[task]
    step, message = collective.round, collective.round.share * collective.buffer_bytes
    sent = np.full(len(step.source), message * step.repeats)
    classes = np.unique(network.latency_classes(step.source, step.target))
    wait = float(network.class_latencies(classes, np.full(len(classes), message)).max())
    return network.link_loads(step.source, step.target, sent), step.repeats * wait


def _joined(program: Program, network: Network) -> _Activities:
    compute = np.flatnonzero(program.is_compute)
    moving = np.flatnonzero(~program.is_compute)
    groups, joined = np.unique(program.group[moving], return_inverse=True)
    of = np.empty(program.size, dtype=np.int64)
    # keep program order: a joined activity stands where its first member stood
    first = np.full(len(groups), program.size, dtype=np.int64)
    np.minimum.at(first, joined, moving)
    place = np.concatenate([compute, first])
    rank = np.empty(len(place), dtype=np.int64)
    rank[np.argsort(place, kind="stable")] = np.arange(len(place))
    of[compute], of[moving] = rank[: len(compute)], rank[len(compute) :][joined]
    size = len(place)
    work, latency_s, stream = np.zeros(size), np.zeros(size), np.full(size, -1, dtype=np.int64)
    work[of[compute]], stream[of[compute]] = program.work_s[compute], program.device[compute]
    uses = _Uses(of[compute], _arithmetic(program, network), np.ones(len(compute)))
    for g in range(len(groups)):
        busy, latency_s[of[first[g]]] = _joint(program, network, moving[joined == g])
        work[of[first[g]]] = busy
    group = np.empty(size, dtype=np.int64)
    group[of] = program.group
    return _Activities(of, work, latency_s, stream, uses, group)


def _joint(program: Program, network: Network, tasks: Ints) -> tuple[float, float]:
    """Seconds that the busiest link needs for all tasks of a group, and the longest latency."""
    loads, wait = np.zeros(len(network.seconds_per_byte)), 0.0
    for task in tasks.tolist():
        if task in program.collectives:
            load, latency = _collective(program, network, task)
            loads += load
            wait = max(wait, latency)
    sends = tasks[program.peer[tasks] >= 0]
    if len(sends):
        source, target, size = program.device[sends], program.peer[sends], program.size_bytes[sends]
        loads += network.link_loads(source, target, size)
        wait = max(wait, float(network.latencies_s(source, target, size).max()))
    return float((loads * network.seconds_per_byte).max()), wait


def _dependencies(program: Program, of: Ints) -> tuple[Ints, Ints]:
    """Pairs (activity, waits for) within an iteration and over to the one before, shapes (N, 2)."""
    tasks = np.repeat(np.arange(program.size), np.diff(program.after_start))
    inside = np.column_stack([of[tasks], of[program.after]])
    inside = np.unique(inside[inside[:, 0] != inside[:, 1]], axis=0)
    return inside, np.unique(of[program.carried], axis=0)


def _with_barriers(activities: _Activities) -> tuple[_Activities, Ints, Ints]:
    """Put a zero-work activity after each phase, which the next phase waits for; also over to the next iteration."""
    size = len(activities.work)
    phases, phase = np.unique(activities.group, return_inverse=True)
    count, everyone = len(phases), np.arange(size)
    barrier = size + np.arange(count)
    later = phase > 0
    inside = np.concatenate(
        [np.column_stack([barrier[phase], everyone]), np.column_stack([everyone[later], barrier[phase[later] - 1]])]
    )
    carried = np.column_stack([everyone[~later], np.full(np.count_nonzero(~later), barrier[-1])])
    extended = _Activities(
        activities.of,
        np.concatenate([activities.work, np.zeros(count)]),
        np.concatenate([activities.latency_s, np.zeros(count)]),
        np.concatenate([activities.stream, np.full(count, -1)]),
        activities.uses,
        np.concatenate([activities.group, phases]),
    )
    return extended, inside, carried


def _repeat(activities: _Activities, inside: Ints, carried: Ints, iterations: int, program: Program) -> Reading:
    """Lay the iterations one after the other: ids, dependencies and the links between neighbours."""
    size = len(activities.work)
    shift = np.arange(iterations)[:, None, None] * size
    pairs = (inside[None] + shift).reshape(-1, 2)
    over = (carried[None] + shift[1:] - np.array([0, size])).reshape(-1, 2)
    pairs = np.concatenate([pairs, over])
    pairs = pairs[np.lexsort((pairs[:, 1], pairs[:, 0]))]
    counts = np.bincount(activities.uses.activity, minlength=size)
    use_start = np.concatenate([[0], np.cumsum(np.tile(counts, iterations))])
    links = program.cluster.links
    graph = TaskGraph(
        resource_names=tuple(link.name for link in links) + tuple(device.name for device in program.cluster.devices),
        capacity=np.concatenate([program.cluster.bandwidth, np.ones(len(program.cluster.devices))]),
        exclusive=np.array([link.exclusive for link in links] + [False] * len(program.cluster.devices)),
        work=np.tile(activities.work, iterations),
        latency_s=np.tile(activities.latency_s, iterations),
        start_s=np.zeros(size * iterations),
        rate_limit=np.full(size * iterations, np.inf),
        priority=np.zeros(size * iterations, dtype=np.int64),
        stream=np.tile(activities.stream, iterations),
        use_start=use_start.astype(np.int64),
        use_resource=np.tile(activities.uses.resource, iterations),
        use_weight=np.tile(activities.uses.weight, iterations),
        after_start=np.searchsorted(pairs[:, 0], np.arange(size * iterations + 1)),
        after=np.ascontiguousarray(pairs[:, 1]),
    )
    return Reading(graph, activities.of[None] + np.arange(iterations)[:, None] * size)
