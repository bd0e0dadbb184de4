"""Chakra's execution traces of any program as a task graph on a cluster, priced as plans are."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from groundwork.errors import ConfigError
from groundwork.units import MICRO
from hwprofiles.devices.device_graph import DeviceGraph
from planner.lowering.program import Collective
from planner.simulation.collective_use import CollectiveLinks
from planner.topology.network_routes import ClusterRoutes, routes_of_cluster
from simulator.collectives.parallel_rings import RING_COLLECTIVES, parallel_rings
from simulator.collectives.rounds import round_of
from simulator.formats.chakra import CHAKRA_COLLECTIVES, ChakraNode
from simulator.graph.task_graph import TaskGraph, pack_rows

_MOST_BYTES = 2**60


@dataclass(frozen=True, slots=True)
class ChakraGraph:
    """A task graph with the names and kinds of its tasks."""

    graph: TaskGraph
    names: list[str]
    kinds: list[str]


@dataclass(slots=True)
class _Rows:
    """Tasks collected so far."""

    work: list[float] = field(default_factory=list)
    latency_s: list[float] = field(default_factory=list)
    stream: list[int] = field(default_factory=list)
    uses: list[list[tuple[int, float]]] = field(default_factory=list)
    names: list[str] = field(default_factory=list)
    kinds: list[str] = field(default_factory=list)
    of: dict[tuple[int, int], int] = field(default_factory=dict)
    """Task of each rank and node."""

    def add(
        self, name: str, kind: str, work: float, latency_s: float, stream: int, uses: list[tuple[int, float]]
    ) -> int:
        """Add a task; returns its number."""
        self.work.append(work)
        self.latency_s.append(latency_s)
        self.stream.append(stream)
        self.uses.append(uses)
        self.names.append(name)
        self.kinds.append(kind)
        return len(self.work) - 1


def chakra_graph(traces: Sequence[Sequence[ChakraNode]], cluster: DeviceGraph) -> ChakraGraph:
    """Return the task graph of one trace for each rank, on the first devices of a cluster.

    Computations take the attribute ``seconds``, else the duration of their node; those of a rank run one after another
    in the order of their numbers.  A send and its receive, with one source, target and tag, are one transfer.
    Collectives of one group and tag, or else in the order in which each rank lists them, are one activity: rings over
    the devices in the cluster's order.

    Args:
        traces: Nodes of each rank.
        cluster: Cluster with at least as many devices.

    Raises:
        ConfigError: There are more ranks than devices, a message or a collective lacks a partner, a node waits for one
            that is not there, or an attribute is missing or no number.
    """
    if len(traces) > len(cluster.devices):
        raise ConfigError(f"cluster must have a device for each of {len(traces)} ranks, got {len(cluster.devices)}")
    network, rows = routes_of_cluster(cluster), _Rows()
    first_device = len(cluster.links)
    messages: dict[tuple[int, int, int, int], dict[str, tuple[int, ChakraNode]]] = {}
    groups: dict[tuple[str, ...], dict[int, ChakraNode]] = {}
    counters: dict[tuple[int, str], int] = {}
    sent: dict[tuple[str, int, int, int], int] = {}
    for rank, nodes in enumerate(traces):
        for node in sorted(nodes, key=lambda each: each.id):
            if node.type in ("send", "receive"):
                _enter_message(messages, sent, rank, node, len(traces))
            elif node.type == "collective":
                _enter_collective(groups, counters, rank, node, len(traces))
            else:
                seconds = _seconds(node)
                uses = [(first_device + rank, 1.0)] if seconds else []
                rows.of[rank, node.id] = rows.add(node.name, node.type, seconds, 0.0, rank, uses)
    _add_messages(rows, messages, network)
    _add_collectives(rows, groups, network)
    names = [link.name for link in cluster.links] + [device.name for device in cluster.devices]
    capacity = np.concatenate([cluster.bandwidth, np.ones(len(cluster.devices))])
    shared = np.zeros(len(cluster.devices), dtype=np.bool_)
    exclusive = np.append(cluster.links.of_each(lambda link: link.exclusive), shared)
    return ChakraGraph(_graph(rows, traces, names, capacity, exclusive), rows.names, rows.kinds)


def _whole(node: ChakraNode, key: str, most: int) -> int:
    """Return a whole number among the attributes of a node."""
    value = node.attributes.get(key)
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < most:
        raise ConfigError(f"node {node.id} ({node.name[:40]}): {key} must be in 0 .. {most - 1}, got {value!r}")
    return value


def _seconds(node: ChakraNode) -> float:
    """Return the time of a computation."""
    value = node.attributes.get("seconds", node.duration_us * MICRO)
    if isinstance(value, str) or not 0 <= value < 1e9:
        raise ConfigError(f"node {node.id} ({node.name[:40]}): seconds must be in 0 .. 1e9, got {value!r}")
    return float(value)


def _message_bytes(node: ChakraNode) -> float:
    """Return the bytes of a message: a whole number, or the attribute ``bytes`` beside it."""
    size = float(_whole(node, "comm_size", _MOST_BYTES))
    exact = node.attributes.get("bytes", size)
    if isinstance(exact, str) or not abs(exact - size) <= 1:
        raise ConfigError(f"node {node.id} ({node.name[:40]}): bytes must be comm_size before rounding, got {exact!r}")
    return float(exact)


def _enter_message(
    messages: dict[tuple[int, int, int, int], dict[str, tuple[int, ChakraNode]]],
    counters: dict[tuple[str, int, int, int], int],
    rank: int,
    node: ChakraNode,
    ranks: int,
) -> None:
    """Enter a send or a receive under what both have in common."""
    source, target = _whole(node, "comm_src", ranks), _whole(node, "comm_dst", ranks)
    if rank != (source if node.type == "send" else target) or source == target:
        raise ConfigError(f"node {node.id} of rank {rank}: a {node.type} from {source} to {target} is not of this rank")
    tag = _whole(node, "comm_tag", 2**62)
    kind = (node.type, source, target, tag)
    number = counters.get(kind, 0)  # messages of one tag follow each other
    counters[kind] = number + 1
    messages.setdefault((source, target, tag, number), {})[node.type] = (rank, node)


def _enter_collective(
    groups: dict[tuple[str, ...], dict[int, ChakraNode]],
    counters: dict[tuple[int, str], int],
    rank: int,
    node: ChakraNode,
    ranks: int,
) -> None:
    """Enter a collective under its group and its tag, or its place among those of the group on this rank."""
    group = str(node.attributes.get("pg_name", "")) or ",".join(map(str, range(ranks)))
    counters[rank, group] = counters.get((rank, group), 0) + 1
    tag = node.attributes.get("comm_tag")
    key = (group, f"tag {tag}" if tag is not None else f"number {counters[rank, group]}")
    if rank in groups.setdefault(key, {}):
        raise ConfigError(f"node {node.id} of rank {rank}: its group has a collective with the tag {tag} already")
    groups[key][rank] = node


def _add_messages(
    rows: _Rows,
    messages: Mapping[tuple[int, int, int, int], Mapping[str, tuple[int, ChakraNode]]],
    network: ClusterRoutes,
) -> None:
    for (source, target, tag, _), ends in messages.items():
        if len(ends) < 2:
            has = next(iter(ends))
            raise ConfigError(f"the {has} from rank {source} to {target} with tag {tag} has no partner")
        size = _message_bytes(ends["send"][1])
        pair = np.array([source]), np.array([target])
        latency_s = float(network.latencies_s(*pair, np.array([size]))[0])
        uses = [(int(link), 1.0) for link in network.route(source, target)]
        task = rows.add(ends["send"][1].name, "transfer", size, latency_s, -1, uses)
        for rank, node in ends.values():
            rows.of[rank, node.id] = task


def _add_collectives(
    rows: _Rows, groups: Mapping[tuple[str, ...], Mapping[int, ChakraNode]], network: ClusterRoutes
) -> None:
    links = CollectiveLinks(network)
    rings: dict[tuple[str, tuple[int, ...]], Collective] = {}
    for (group, tag), members in groups.items():
        ranks = tuple(sorted(members))
        listed = [int(part) for part in group.split(",") if part.isascii() and part.isdigit() and len(part) < 10]
        if len(listed) == len(group.split(",")) and len(listed) > 1 and sorted(listed) != list(ranks):
            raise ConfigError(f"a collective of the group {group[:60]!r} ({tag}) is missing on some of its ranks")
        nodes = list(members.values())
        kind = CHAKRA_COLLECTIVES[_whole(nodes[0], "comm_type", len(CHAKRA_COLLECTIVES))]
        size = float(max(_whole(node, "comm_size", _MOST_BYTES) for node in nodes))
        if len(ranks) < 2 or size == 0:
            seconds = max(_seconds(node) for node in nodes)
            task = rows.add(nodes[0].name, kind, seconds, 0.0, -1, [])
        else:
            if (kind, ranks) not in rings:
                rings[kind, ranks] = _as_rounds(network, kind, ranks)
            used, share, latency_s = links.of(replace(rings[kind, ranks], buffer_bytes=size))
            busiest = float(share.max())
            uses = [(int(link), float(weight / busiest)) for link, weight in zip(used, share, strict=True)]
            task = rows.add(nodes[0].name, kind, busiest * size, latency_s, -1, uses)
        for rank, node in members.items():
            rows.of[rank, node.id] = task


def _as_rounds(network: ClusterRoutes, kind: str, ranks: tuple[int, ...]) -> Collective:
    """Return a collective as messages between devices."""
    devices = np.array(sorted(ranks, key=lambda rank: int(network.rank[rank])))
    count = len(devices)
    kind = "reduce-scatter" if kind == "reduce-scatter-block" else kind
    if kind in RING_COLLECTIVES:
        rounds = parallel_rings(np.arange(count)[None], kind)
    elif kind in ("broadcast", "reduce"):  # a chain, the buffer in a pipeline
        ring = parallel_rings(np.arange(count)[None], "all-gather")
        rounds = replace(ring, chunks=1, low=np.zeros_like(ring.low), span=1, repeats=1)
    else:
        source, target = np.divmod(np.arange(count * count), count)
        apart = source != target
        if kind in ("scatter", "gather"):
            apart &= (source if kind == "scatter" else target) == 0
        rounds = replace(round_of(source[apart], target[apart]), chunks=count, low=target[apart])
    messages = replace(rounds, source=devices[rounds.source], target=devices[rounds.target])
    return Collective(tuple(devices.tolist()), messages, 1.0, len(devices))


def _graph(
    rows: _Rows, traces: Sequence[Sequence[ChakraNode]], names: list[str], capacity: np.ndarray, exclusive: np.ndarray
) -> TaskGraph:
    """Return the task graph of the rows, with what each node waits for."""
    after: list[set[int]] = [set() for _ in rows.work]
    for rank, nodes in enumerate(traces):
        for node in nodes:
            task = rows.of[rank, node.id]
            for before in node.after:
                if (rank, before) not in rows.of:
                    raise ConfigError(f"node {node.id} of rank {rank} waits for node {before}, which is not there")
                if rows.of[rank, before] != task:
                    after[task].add(rows.of[rank, before])
    use_start, use_resource = pack_rows([[resource for resource, _ in uses] for uses in rows.uses])
    after_start, waits = pack_rows([sorted(row) for row in after])
    size = len(rows.work)
    return TaskGraph(
        resource_names=tuple(names),
        capacity=capacity,
        exclusive=exclusive,
        work=np.array(rows.work),
        latency_s=np.array(rows.latency_s),
        start_s=np.zeros(size),
        rate_limit=np.full(size, np.inf),
        priority=np.zeros(size, dtype=np.int64),
        stream=np.array(rows.stream, dtype=np.int64),
        use_start=use_start,
        use_resource=use_resource,
        use_weight=np.array([weight for uses in rows.uses for _, weight in uses]),
        after_start=after_start,
        after=waits,
    )
