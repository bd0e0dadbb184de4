"""The readings of a program: the task graph that an engine replays, with or without overlap and contention.

Without overlap, the groups of tasks that are the phases of Eq. 1 run one after the other.  Without
contention, a group of transfers or collectives is one activity that loads all its links at once and meets
nobody else, waits for no copy engine, and takes no arithmetic from devices whose processor moves messages; and encoding
and decoding share no arithmetic.  Without both, the replay is Eq. 1.  With contention, transfers of earlier sub-batches
go before those of later ones.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from hwprofiles import Floats, Ints
from planner.lowering import Collective, Program
from planner.simulation.message_overhead_use import message_overheads_of
from planner.topology import ClusterRoutes, CopyEngineUses, copy_engines_of, routes_of_cluster
from simulator.graph import TaskGraph

__all__ = ["ITERATIONS", "ProgramGraph", "build_program_graph"]


ITERATIONS = 4
"""Replayed in a row, for the steady state."""


@dataclass(frozen=True, slots=True, eq=False)
class ProgramGraph:
    """A program of several iterations as a task graph."""

    graph: TaskGraph
    task_of: Ints
    """Shape (iterations, T): the engine's task that stands for each task of the program."""


@dataclass(frozen=True, slots=True, eq=False)
class _Uses:
    """Uses of resources, row by row: activity ``i`` has rows ``start[i]`` to ``start[i + 1]``."""

    start: Ints
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
    priority: Ints
    uses: _Uses
    group: Ints


def build_program_graph(
    program: Program, *, overlap: bool = True, contention: bool = True, iterations: int = 1
) -> ProgramGraph:
    """Build the task graph of a reading.

    Args:
        program: One iteration.
        overlap: Tasks wait for what they depend on, not for the whole phase before.
        contention: Every transfer on its own, sharing links; else joined by group.
        iterations: Iterations in a row, >= 1.

    Returns:
        The task graph; the resources are the cluster's links, then its devices, then their copy engines.
    """
    network = routes_of_cluster(program.cluster)
    engines = copy_engines_of(program.cluster)
    activities = _separate(program, network, engines) if contention else _joined(program, network)
    if overlap:
        pairs = _dependencies(program, activities.of, len(activities.work))
        return _repeat(activities, *pairs, iterations, program, engines)
    return _repeat(*_with_barriers(activities), iterations, program, engines)


def _separate(program: Program, network: ClusterRoutes, engines: CopyEngineUses) -> _Activities:
    work, latency_s = program.work_s.copy(), np.zeros(program.size)
    sends = np.flatnonzero(program.peer >= 0)
    work[sends] = program.size_bytes[sends]
    latency_s[sends] = network.latencies_s(program.device[sends], program.peer[sends], program.size_bytes[sends])
    counts, links = network.routes(program.device[sends], program.peer[sends])
    compute = np.flatnonzero(program.is_compute)
    copying, engine, busy = engines.of(program.device[sends], program.peer[sends])
    first_device = len(network.seconds_per_byte)
    first_engine = first_device + len(program.cluster.devices)
    blocks = [
        (sends, counts, links, np.ones(len(links))),
        (sends, copying, first_engine + engine, busy),
        (compute, np.ones_like(compute), _arithmetic(program, network, compute), np.ones(len(compute))),
    ]
    overheads = message_overheads_of(program.cluster)
    if overheads.declared:
        counts, device, busy = overheads.of(program.device[sends], program.peer[sends], program.size_bytes[sends])
        blocks.append((sends, counts, first_device + device, busy))
    shares, copies = _Shares(network), _Copies(engines)
    for task, collective in program.collectives.items():
        used, share, latency_s[task] = shares.of(collective)
        engine, busy = copies.of(collective)
        device, taken = overheads.of_collective(collective)
        busiest, resource = share.max(), np.concatenate([used, first_engine + engine, first_device + device])
        work[task] = busiest * collective.buffer_bytes
        weight = np.concatenate([share, busy, taken]) / busiest
        blocks.append((np.array([task]), np.array([len(resource)]), resource, weight))
    uses = _uses(program.size, blocks)
    everyone, priority = np.arange(program.size), overheads.priority(program.priority, program.is_compute)
    return _Activities(everyone, work, latency_s, _streams(program), priority, uses, program.group)


def _streams(program: Program) -> Ints:
    """A device computes in program order; it encodes and decodes beside that, whatever is ready."""
    return np.where(program.is_compute & ~program.is_codec, program.device, -1)


def _uses(size: int, blocks: Sequence[tuple[Ints, Ints, Ints, Floats]]) -> _Uses:
    """Put blocks (activities, number of uses of each, their resources and weights) in order of the activities."""
    counts = np.zeros(size, dtype=np.int64)
    for activities, number, _, _ in blocks:
        counts[activities] += number
    start = np.concatenate([[0], np.cumsum(counts)])
    uses, free = _Uses(start, np.empty(start[-1], dtype=np.int64), np.empty(start[-1])), start[:-1].copy()
    for activities, number, resource, weight in blocks:
        row = np.repeat(free[activities] - np.cumsum(number) + number, number) + np.arange(len(resource))
        uses.resource[row], uses.weight[row] = resource, weight
        free[activities] += number
    return uses


def _arithmetic(program: Program, network: ClusterRoutes, tasks: Ints) -> Ints:
    """Resource of each of some compute tasks: the devices come after the links."""
    return np.asarray(len(network.seconds_per_byte) + program.device[tasks])


class _Shares:
    """What collectives put on the links, as shares of their buffers; equal rounds are looked at once."""

    def __init__(self, network: ClusterRoutes) -> None:
        self._network = network
        self._known: dict[int, tuple[Ints, Floats, Ints]] = {}

    def of(self, collective: Collective) -> tuple[Ints, Floats, float]:
        """The links used, the share of the buffer on each, and the latency of all repeats."""
        step, network = collective.round, self._network
        if id(step) not in self._known:
            loads = network.link_loads(step.source, step.target, np.full(len(step.source), step.share * step.repeats))
            used = np.flatnonzero(loads)
            self._known[id(step)] = used, loads[used], np.unique(network.latency_classes(step.source, step.target))
        used, share, classes = self._known[id(step)]
        waits = network.class_latencies(classes, np.full(len(classes), step.share * collective.buffer_bytes))
        return used, share, step.repeats * float(waits.max())


class _Copies:
    """How long collectives keep copy engines busy, per byte of their buffers; equal rounds are looked at once."""

    def __init__(self, engines: CopyEngineUses) -> None:
        self._engines = engines
        self._known: dict[int, tuple[Ints, Floats]] = {}

    def of(self, collective: Collective) -> tuple[Ints, Floats]:
        """The engines used, and the seconds per byte of the buffer on each."""
        step = collective.round
        if id(step) not in self._known:
            _, engine, busy = self._engines.of(step.source, step.target)
            loads = np.bincount(engine, busy * step.share * step.repeats, minlength=len(self._engines.names))
            used = np.flatnonzero(loads)
            self._known[id(step)] = used, loads[used].astype(np.float64)
        return self._known[id(step)]


def _joined(program: Program, network: ClusterRoutes) -> _Activities:
    compute = np.flatnonzero(program.is_compute)
    moving = np.flatnonzero(~program.is_compute)
    groups, start, joined = np.unique(program.group[moving], return_index=True, return_inverse=True)
    of = np.empty(program.size, dtype=np.int64)
    # keep program order: a joined activity stands where its first member stood
    first = moving[start]
    place = np.concatenate([compute, first])
    rank = np.empty(len(place), dtype=np.int64)
    rank[np.argsort(place, kind="stable")] = np.arange(len(place))
    of[compute], of[moving] = rank[: len(compute)], rank[len(compute) :][joined]
    size = len(place)
    work, latency_s, stream = np.zeros(size), np.zeros(size), np.full(size, -1, dtype=np.int64)
    work[of[compute]], stream[of[compute]] = program.work_s[compute], _streams(program)[compute]
    alone = compute[~program.is_codec[compute]]
    uses = _uses(size, [(of[alone], np.ones_like(alone), _arithmetic(program, network, alone), np.ones(len(alone)))])
    shares = _Shares(network)
    for members in np.split(moving, start[1:]) if len(groups) else ():  # groups follow each other
        work[of[members[0]]], latency_s[of[members[0]]] = _joint(program, network, shares, members)
    group = np.empty(size, dtype=np.int64)
    group[of] = program.group
    return _Activities(of, work, latency_s, stream, np.zeros_like(stream), uses, group)


def _joint(program: Program, network: ClusterRoutes, shares: _Shares, tasks: Ints) -> tuple[float, float]:
    """Seconds that the busiest link needs for all tasks of a group, and the longest latency."""
    loads, wait = np.zeros(len(network.seconds_per_byte)), 0.0
    for task in tasks[program.peer[tasks] < 0].tolist():
        used, share, latency_s = shares.of(program.collectives[task])
        loads[used] += share * program.collectives[task].buffer_bytes
        wait = max(wait, latency_s)
    sends = tasks[program.peer[tasks] >= 0]
    if len(sends):
        source, target, size = program.device[sends], program.peer[sends], program.size_bytes[sends]
        loads += network.link_loads(source, target, size)
        wait = max(wait, float(network.latencies_s(source, target, size).max()))
    return float((loads * network.seconds_per_byte).max()), wait


def _dependencies(program: Program, of: Ints, size: int) -> tuple[Ints, Ints]:
    """Pairs (activity, waits for), packed, within an iteration and over to the one before."""
    late, early = of[program.waiting], of[program.after]
    return _packed(late, early, size), _packed(of[program.carried[:, 0]], of[program.carried[:, 1]], size, over=True)


def _packed(late: Ints, early: Ints, size: int, *, over: bool = False) -> Ints:
    """Pairs of different activities as single numbers, sorted, each once."""
    packed = late * size + early
    packed = packed if over else packed[late != early]
    if not (np.diff(packed) > 0).all():
        packed = np.sort(packed, kind="stable")
        packed = packed[np.diff(packed, prepend=-1) > 0]
    return packed


def _with_barriers(activities: _Activities) -> tuple[_Activities, Ints, Ints]:
    """Put a zero-work activity after each phase, which the next phase waits for; also over to the next iteration."""
    size = len(activities.work)
    phases, phase = np.unique(activities.group, return_inverse=True)
    count, everyone = len(phases), np.arange(size)
    barrier = size + np.arange(count)
    later, total = phase > 0, size + count
    late = np.concatenate([barrier[phase], everyone[later]])
    early = np.concatenate([everyone, barrier[phase[later] - 1]])
    inside = _packed(late, early, total)
    carried = _packed(everyone[~later], np.full(np.count_nonzero(~later), barrier[-1]), total)
    extended = _Activities(
        activities.of,
        np.concatenate([activities.work, np.zeros(count)]),
        np.concatenate([activities.latency_s, np.zeros(count)]),
        np.concatenate([activities.stream, np.full(count, -1)]),
        np.concatenate([activities.priority, np.zeros_like(barrier)]),
        replace(activities.uses, start=np.append(activities.uses.start, np.full(count, len(activities.uses.resource)))),
        np.concatenate([activities.group, phases]),
    )
    return extended, inside, carried


def _repeat(
    activities: _Activities, inside: Ints, carried: Ints, iterations: int, program: Program, engines: CopyEngineUses
) -> ProgramGraph:
    """Lay the iterations one after the other: ids, dependencies and the links between neighbours."""
    size = len(activities.work)
    late, early = np.divmod(inside, size)
    over_late, over_early = np.divmod(carried, size)
    rows, after = [np.bincount(late, minlength=size)], [early]
    if iterations > 1:
        # Activities of the iteration before count from -size; the first iteration has none before it.
        pairs = np.concatenate([late * 2 * size + early + size, over_late * 2 * size + over_early])
        late, early = np.divmod(np.sort(pairs, kind="stable"), 2 * size)
        rows += [np.bincount(late, minlength=size)] * (iterations - 1)
        after += [early + (k - 1) * size for k in range(1, iterations)]
    counts = np.tile(np.diff(activities.uses.start), iterations)
    cluster = program.cluster
    names = [link.name for link in cluster.links] + [device.name for device in cluster.devices] + list(engines.names)
    graph = TaskGraph(
        resource_names=tuple(names),
        capacity=np.concatenate([cluster.bandwidth, np.ones(len(cluster.devices)), engines.capacity]),
        exclusive=np.array([link.exclusive for link in cluster.links] + [False] * (len(names) - len(cluster.links))),
        work=np.tile(activities.work, iterations),
        latency_s=np.tile(activities.latency_s, iterations),
        start_s=np.zeros(size * iterations),
        rate_limit=np.full(size * iterations, np.inf),
        priority=np.tile(activities.priority, iterations),
        stream=np.tile(activities.stream, iterations),
        use_start=np.concatenate([[0], np.cumsum(counts)]),
        use_resource=np.tile(activities.uses.resource, iterations),
        use_weight=np.tile(activities.uses.weight, iterations),
        after_start=np.concatenate([[0], np.cumsum(np.concatenate(rows))]),
        after=np.concatenate(after),
    )
    return ProgramGraph(graph, activities.of[None] + np.arange(iterations)[:, None] * size)
