"""Execution models of a program: the task graphs that an engine replays, with or without overlap and contention.

* Without overlap, the groups of tasks that are the phases of Eq. 1 run one after the other, with barriers between.
* Without contention, a group of transfers or collectives is one activity that takes the time of its busiest link.  It
  shares links with no other activity, waits for no copy engine, and takes no arithmetic from devices whose own
  processor moves messages; compression and decompression share no arithmetic either.
* Without both, the replay is the additive model: its time is Eq. 1.
* With both, the replay is the most detailed model; transfers of earlier micro-batches go before those of later ones.

Source:
    Eq. 1: Jia et al., "Exploring Hidden Dimensions in Parallelizing Convolutional Neural Networks", ICML 2018.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, pairwise

import numpy as np

from groundwork.array_types import Floats, Ints
from groundwork.rows_on_demand import JoinedNames
from groundwork.sparse_rows import row_owners
from planner.layouts.device_classes import MessageClasses
from planner.lowering.program import Collective, Program
from planner.simulation.collective_use import CollectiveEngines, CollectiveLinks, collective_loads, sent_loads
from planner.simulation.message_overhead_use import message_overheads_of
from planner.topology.copy_engine_use import CopyEngineUses, copy_engines_of
from planner.topology.network_routes import ClusterRoutes, routes_of_cluster
from simulator.graph.task_graph import TaskGraph

ITERATIONS = 4
"""Iterations that are replayed in a row, so that there is a steady state."""


@dataclass(frozen=True, slots=True, eq=False)
class ProgramGraph:
    """Task graph of several iterations of a program under an execution model."""

    graph: TaskGraph
    task_of: Ints
    """Task of the graph that represents each task of the program, shape (iterations, T)."""
    unit_bytes: float = 1.0
    """Bytes of a unit of work on links."""
    launches: Ints | None = None
    """Program task that each task of the graph launches, -1 for all others; None where launches take no time."""
    inputs: Ints | None = None
    """Task of the graph that brings the samples of each iteration; None where their rate is no bound."""


@dataclass(frozen=True, slots=True, eq=False)
class _Uses:
    """Uses of resources by activities: activity ``i`` has rows ``start[i]`` to ``start[i + 1]``."""

    start: Ints
    """First row of each activity, then the number of rows, shape (activities + 1,)."""
    resource: Ints
    """Resource of each use."""
    weight: Floats
    """Units of the resource that the activity, with all for which it stands, uses per unit of its rate."""
    own: Floats
    """Units of it that the activity uses by itself."""


@dataclass(frozen=True, slots=True, eq=False)
class _Activities:
    """Tasks of the task graph for one iteration: one for each task of the program, or for each group of transfers."""

    of: Ints
    """Activity of each task of the program, shape (T,)."""
    work: Floats
    """Bytes or seconds of work of each activity, as for all that follow."""
    latency_s: Floats
    stream: Ints
    """Device whose compute tasks run one after another; -1 for activities without an order."""
    priority: Ints
    uses: _Uses
    group: Ints
    """Phase of Eq. 1 of each activity."""


def build_program_graph(
    program: Program, *, overlap: bool = True, contention: bool = True, iterations: int = 1
) -> ProgramGraph:
    """Build the task graph of a program under an execution model.

    Args:
        program: One iteration.
        overlap: True if tasks wait only for those that they depend on, False if for the whole phase before.
        contention: True if every transfer is an activity that shares links with others, False if the transfers of a
            group are one activity that takes the time of the busiest link.
        iterations: Iterations in a row, >= 1.

    Returns:
        The task graph; its resources are the cluster's links, then its devices, then their copy engines.

    Source:
        Without overlap and contention: Eq. 1 of Jia et al., "Exploring Hidden Dimensions in Parallelizing
        Convolutional Neural Networks", ICML 2018.
    """
    network = routes_of_cluster(program.cluster)
    engines = copy_engines_of(program.cluster)
    activities = _contending(program, network, engines) if contention else _grouped(program, network)
    if overlap:
        pairs = _dependencies(program, activities.of, len(activities.work))
        return _repeat(activities, *pairs, iterations, program, engines)
    return _repeat(*_with_barriers(activities), iterations, program, engines)


def _contending(program: Program, network: ClusterRoutes, engines: CopyEngineUses) -> _Activities:
    """Return an activity for every task; transfers and collectives share links, copy engines and processors.

    The work of a transfer is its bytes.  That of a collective is the bytes over its busiest link, and its other uses
    have weights relative to that link: a ring over 4 devices with a buffer of 1 MB moves 1.5 MB over each link, so its
    work is 1.5 MB and the weight of each of these links is 1.
    """
    # Resources are numbered in one row: links, then the processors of devices, then copy engines.
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
        (sends, counts, links, np.repeat(program.link_use[sends], counts)),
        (sends, copying, first_engine + engine, busy * np.repeat(program.link_use[sends], copying)),
        (compute, np.ones_like(compute), first_device + program.device[compute], np.ones(len(compute))),
    ]
    overheads = message_overheads_of(program.cluster)
    if overheads.declared:
        counts, device, busy = overheads.of(program.device[sends], program.peer[sends], program.size_bytes[sends])
        blocks.append((sends, counts, first_device + device, busy))
    for task, copy in program.host_copies.items():
        work[task], latency_s[task] = program.size_bytes[task], copy.latency_s
        links = np.array(copy.links)
        blocks.append((np.array([task]), np.array([len(links)]), links, np.array(copy.shares)))
    links_of, engines_of, like = CollectiveLinks(network), CollectiveEngines(engines), resources_like(program)
    for collective, tasks in _alike(program.collectives):
        used, share, latency_s[tasks] = links_of.of(collective)
        engine, busy = engines_of.of(collective)
        device, taken = overheads.of_collective(collective)
        # Weights are relative to the busiest link, whose bytes are the work: it has the weight 1.
        busiest, resource = share.max(), np.concatenate([used, first_engine + engine, first_device + device])
        work[tasks] = busiest * collective.buffer_bytes
        weight = np.concatenate([share, busy, taken]) / busiest
        if not isinstance(program.classes, MessageClasses):
            itself = like[resource] == resource  # of resources that are used alike, one stands for all
            resource, weight = resource[itself], weight[itself]
        count = len(tasks)
        blocks.append((tasks, np.full(count, len(resource)), np.tile(resource, count), np.tile(weight, count)))
    uses = _of_classes(program, _ordered_uses(program.size, blocks), like)
    of, priority = np.arange(program.size), overheads.priority(program.priority, program.is_compute)
    return _Activities(of, work, latency_s, _streams(program), priority, uses, program.group)


def _of_classes(program: Program, uses: _Uses, like: Ints) -> _Uses:
    """Return the uses of messages and collectives that stand for others: what all use of one resource of a class.

    Args:
        program: The program.
        uses: Uses of each message, or collective, alone.
        like: As of ``resources_like``.
    """
    if not isinstance(program.classes, MessageClasses):
        return uses
    owner = row_owners(uses.start)
    moves, members = ~program.is_compute[owner], np.bincount(like, minlength=len(like))
    resource = np.where(moves, like[uses.resource], uses.resource)
    weight = np.where(moves, uses.weight * program.stands_for[owner] / members[resource].clip(min=1), uses.weight)
    # a message may use several resources of one class
    keys, row = np.unique(owner * len(like) + resource, return_inverse=True)
    own = np.zeros(len(keys))
    np.maximum.at(own, row, uses.weight)
    owner, resource = np.divmod(keys, len(like))
    start = np.concatenate([[0], np.cumsum(np.bincount(owner, minlength=program.size))])
    return _Uses(start, resource, np.bincount(row, weight, minlength=len(keys)).astype(np.float64), own)


def _alike(collectives: Mapping[int, Collective]) -> list[tuple[Collective, Ints]]:
    """Return the different collectives with their tasks: those of all micro-batches are one object."""
    tasks: dict[int, list[int]] = {}
    for task, each in collectives.items():
        tasks.setdefault(id(each), []).append(task)
    return [(collectives[of[0]], np.array(of)) for of in tasks.values()]


def resources_like(program: Program) -> Ints:
    """Return the resource whose use is that of each; others than itself where one replica is lowered for all."""
    engines, replicas, links = copy_engines_of(program.cluster), program.classes, len(program.cluster.links)
    like = np.arange(links + len(program.cluster.devices) + len(engines.names))
    if replicas is not None:
        devices = replicas.device_like
        like[:links], like[links : links + len(devices)] = replicas.link_like, links + devices
        for known in engines.by_kind.values():
            there = known >= 0
            like[links + len(devices) + known[there]] = links + len(devices) + known[devices][there]
    return like


def _streams(program: Program) -> Ints:
    """Return the stream of each task: compute tasks of a device run in program order, codec tasks in any order."""
    return np.where(program.is_compute & ~program.is_codec, program.device, -1)


def _ordered_uses(size: int, blocks: Sequence[tuple[Ints, Ints, Ints, Floats]]) -> _Uses:
    """Return the uses of several blocks in order of their activities.

    Args:
        size: Number of activities.
        blocks: Activities, number of uses of each, and the resources and weights of these uses one after another.
            Two blocks and the resulting rows are::

                block 1  activities [0, 2]  numbers [2, 1]  resources [a, b, c]
                block 2  activities [2]     numbers [2]     resources [d, e]
                rows     start [0, 2, 2, 5]                 resources [a, b, c, d, e]
    """
    counts = np.zeros(size, dtype=np.int64)
    for activities, number, _, _ in blocks:
        counts[activities] += number
    start = np.concatenate([[0], np.cumsum(counts)])
    weight = np.empty(start[-1])
    uses, free = _Uses(start, np.empty(start[-1], dtype=np.int64), weight, weight), start[:-1].copy()
    for activities, number, resource, weight in blocks:
        # the next free row of the activity, plus the index of the use within its activity
        row = np.repeat(free[activities] - np.cumsum(number) + number, number) + np.arange(len(resource))
        uses.resource[row], uses.weight[row] = resource, weight
        free[activities] += number
    return uses


def _grouped(program: Program, network: ClusterRoutes) -> _Activities:
    """Return an activity for every compute task, and one without resources for every group of communication tasks.

    Activities are numbered in program order, a group at its first task::

        task      0 compute   1 transfer (g)   2 transfer (g)   3 compute
        activity  0           1                1                2
    """
    compute = np.flatnonzero(program.is_compute)
    moving = np.flatnonzero(~program.is_compute)
    groups, start, joined = np.unique(program.group[moving], return_index=True, return_inverse=True)
    of = np.empty(program.size, dtype=np.int64)
    first = moving[start]
    # Every activity stands where its first task does; its number is its rank among all of them.
    position = np.concatenate([compute, first])
    rank = np.empty(len(position), dtype=np.int64)
    rank[np.argsort(position, kind="stable")] = np.arange(len(position))
    of[compute], of[moving] = rank[: len(compute)], rank[len(compute) :][joined]
    size = len(position)
    work, latency_s, stream = np.zeros(size), np.zeros(size), np.full(size, -1, dtype=np.int64)
    work[of[compute]], stream[of[compute]] = program.work_s[compute], _streams(program)[compute]
    alone = compute[~program.is_codec[compute]]  # codec tasks share no arithmetic without contention
    processors = len(network.seconds_per_byte) + program.device[alone]
    uses = _ordered_uses(size, [(of[alone], np.ones_like(alone), processors, np.ones(len(alone)))])
    links_of, known = CollectiveLinks(network), dict[bytes, tuple[float, float]]()
    kinds, bounds = _sent_kinds(program, moving), [*start.tolist(), len(moving)]
    seconds = np.empty((len(groups), 2))
    for number, (begin, end) in enumerate(pairwise(bounds)):  # tasks of a group follow each other
        key = kinds[begin:end].tobytes()  # all micro-batches send the same
        if key not in known:
            known[key] = _group_s(program, network, links_of, moving[begin:end])
        seconds[number] = known[key]
    work[of[first]], latency_s[of[first]] = seconds.T
    group = np.empty(size, dtype=np.int64)
    group[of] = program.group
    return _Activities(of, work, latency_s, stream, np.zeros_like(stream), uses, group)


def _sent_kinds(program: Program, tasks: Ints) -> Ints:
    """Return a number for each task that is the same where its time is; copies of a collective are one object."""
    shared = np.zeros(program.size, dtype=np.int64)
    for task, each in chain(program.collectives.items(), program.host_copies.items()):
        shared[task] = id(each)
    kinds = np.zeros(len(tasks), dtype=np.int64)
    for column in (program.device, program.peer, program.size_bytes, program.link_use, program.work_s, shared):
        values, number = np.unique(column[tasks], return_inverse=True)
        kinds = np.unique(kinds * len(values) + number, return_inverse=True)[1]
    return kinds


def _group_s(program: Program, network: ClusterRoutes, links_of: CollectiveLinks, tasks: Ints) -> tuple[float, float]:
    """Return the seconds that the busiest link or a coordination takes for all of a group, and the longest latency."""
    loads, longest_s = np.zeros(len(network.seconds_per_byte)), 0.0
    for task in tasks[(program.peer[tasks] < 0)].tolist():
        if task in program.host_copies:
            copy = program.host_copies[task]
            loads[list(copy.links)] += program.size_bytes[task] * np.array(copy.shares)
            longest_s = max(longest_s, copy.latency_s)
        if task not in program.collectives:
            continue
        used, share, latency_s = links_of.of(program.collectives[task])
        loads += collective_loads(program, task, used, share * program.collectives[task].buffer_bytes)
        longest_s = max(longest_s, latency_s)
    sends = tasks[program.peer[tasks] >= 0]
    if len(sends):
        source, target, size = program.device[sends], program.peer[sends], program.size_bytes[sends]
        loads += sent_loads(program, network, sends, size * program.link_use[sends])
        longest_s = max(longest_s, float(network.latencies_s(source, target, size).max()))
    return max(float((loads * network.seconds_per_byte).max()), float(program.work_s[tasks].max())), longest_s


def _dependencies(program: Program, of: Ints, size: int) -> tuple[Ints, Ints]:
    """Return the pairs (activity, activity that it waits for), packed: inside an iteration, and on the one before."""
    late, early = of[program.waiting], of[program.after]
    return _packed(late, early, size), _packed(of[program.carried[:, 0]], of[program.carried[:, 1]], size, over=True)


def _packed(late: Ints, early: Ints, size: int, *, over: bool = False) -> Ints:
    """Return pairs as single integers ``late * size + early``, sorted, each once.

    Inside an iteration an activity does not wait for itself; with ``over``, on the iteration before, it may.
    """
    packed = late * size + early
    packed = packed if over else packed[late != early]
    if not (np.diff(packed) > 0).all():  # most are sorted already
        packed = np.sort(packed, kind="stable")
        packed = packed[np.diff(packed, prepend=-1) > 0]
    return packed


def _with_barriers(activities: _Activities) -> tuple[_Activities, Ints, Ints]:
    """Add a barrier behind each phase, which the next phase waits for, and the first one of the next iteration.

    Returns:
        Activities with barriers, which have no work and are numbered behind their phases, so that everything waits for
        smaller numbers only; and packed pairs inside an iteration and on the one before::

            number    0 1                2                       3           4
            phase 0:  a b (wait for 4)   barrier, waits for a b
            phase 1:                                             c           barrier, waits for c
    """
    size = len(activities.work)
    phases, phase = np.unique(activities.group, return_inverse=True)
    count = len(phases)
    total = size + count
    # Activities and then barriers, sorted by their phases; a stable sort leaves a barrier behind its activities.
    order = np.argsort(np.concatenate([phase, np.arange(count)]), kind="stable")
    number = np.empty(total, dtype=np.int64)
    number[order] = np.arange(total)
    everyone, barrier = number[:size], number[size:]
    later = phase > 0
    # A barrier waits for the activities of its phase, an activity for the barrier of the phase before.
    late = np.concatenate([barrier[phase], everyone[later]])
    early = np.concatenate([everyone, barrier[phase[later] - 1]])
    inside = _packed(late, early, total)
    carried = _packed(everyone[~later], np.full(np.count_nonzero(~later), barrier[-1]), total)
    uses = activities.uses
    user = everyone[row_owners(uses.start)]
    by_user = np.argsort(user, kind="stable")
    start = np.concatenate([[0], np.cumsum(np.bincount(user, minlength=total))])
    extended = _Activities(
        everyone[activities.of],
        np.concatenate([activities.work, np.zeros(count)])[order],
        np.concatenate([activities.latency_s, np.zeros(count)])[order],
        np.concatenate([activities.stream, np.full(count, -1)])[order],
        np.concatenate([activities.priority, np.zeros_like(barrier)])[order],
        _Uses(start, uses.resource[by_user], uses.weight[by_user], uses.own[by_user]),
        np.concatenate([activities.group, phases])[order],
    )
    return extended, inside, carried


def _repeat(
    activities: _Activities, inside: Ints, carried: Ints, iterations: int, program: Program, engines: CopyEngineUses
) -> ProgramGraph:
    """Build the task graph of several iterations in a row.

    Args:
        activities: Activities of one iteration.
        inside: Packed pairs of an activity and one of its iteration that it waits for.
        carried: Packed pairs of an activity and one of the iteration before that it waits for.
        iterations: Number of iterations.
        program: The program.
        engines: Copy engines of the cluster.
    """
    size = len(activities.work)
    late, early = np.divmod(inside, size)
    over_late, over_early = np.divmod(carried, size)
    rows, after = [np.bincount(late, minlength=size)], [early]  # the first iteration
    if iterations > 1:
        # Activities of the iteration before count from -size; the first iteration has none before it.
        pairs = np.concatenate([late * 2 * size + early + size, over_late * 2 * size + over_early])
        late, early = np.divmod(np.sort(pairs, kind="stable"), 2 * size)
        rows += [np.bincount(late, minlength=size)] * (iterations - 1)
        after += [early + (k - 1) * size for k in range(1, iterations)]  # all later ones have one pattern, moved on
    counts = np.tile(np.diff(activities.uses.start), iterations)
    cluster, stand_for_others = program.cluster, activities.uses.own is not activities.uses.weight
    links, devices = cluster.links, cluster.devices
    exclusive = np.zeros(len(links) + len(devices) + len(engines.names), dtype=np.bool_)
    exclusive[: len(links)] = links.of_each(lambda link: link.exclusive)
    graph = TaskGraph(
        resource_names=JoinedNames(links.names, devices.names, engines.names),
        capacity=np.concatenate([cluster.bandwidth, np.ones(len(devices)), engines.capacity]),
        exclusive=exclusive,
        work=np.tile(activities.work, iterations),
        latency_s=np.tile(activities.latency_s, iterations),
        start_s=np.zeros(size * iterations),
        rate_limit=np.full(size * iterations, np.inf),
        priority=np.tile(activities.priority, iterations),
        stream=np.tile(activities.stream, iterations),
        use_start=np.concatenate([[0], np.cumsum(counts)]),
        use_resource=np.tile(activities.uses.resource, iterations),
        use_weight=np.tile(activities.uses.weight, iterations),
        own_weight=np.tile(activities.uses.own, iterations) if stand_for_others else None,
        after_start=np.concatenate([[0], np.cumsum(np.concatenate(rows))]),
        after=np.concatenate(after),
    )
    return ProgramGraph(graph, activities.of[None] + np.arange(iterations)[:, None] * size)
