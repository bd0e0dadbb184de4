"""Transfers of the paper's clusters as task graphs, simulated on the links of a device graph.

A message waits for its latency, then shares its links; messages of one stream go one after another, each with its
latency, as the paper counts it.  Every schedule is simulated message by message.

Source: Dettmers, "8-Bit Approximations for Parallelism in Deep Learning", ICLR 2016, Secs. 2.3 and 2.4.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from hwprofiles.devices.device_graph import DeviceGraph
from planner.topology.network_routes import routes_of_cluster
from simulator.collectives.schemes import ALL_GATHERS
from simulator.engines.engine import simulate
from simulator.graph.task_graph import TaskGraph, pack_rows

NO_STREAM = -1


@dataclass(slots=True)
class _Schedule:
    """Tasks under construction, in the order in which streams run them."""

    cluster: DeviceGraph
    rows: list[tuple[int, int, float, int, Sequence[int]]] = field(default_factory=list)
    """Source and target, bytes or seconds, stream, and the tasks that it waits for; computation has no source (-1)."""

    def message(self, source: int, target: int, size_bytes: float, stream: int, after: Sequence[int] = ()) -> int:
        """Add a message between two devices, and return its task."""
        self.rows.append((source, target, size_bytes, stream, after))
        return len(self.rows) - 1

    def computation(self, seconds: float, stream: int, after: Sequence[int] = ()) -> int:
        """Add computation, and return its task."""
        self.rows.append((-1, -1, seconds, stream, after))
        return len(self.rows) - 1

    def makespan_s(self) -> float:
        """Simulate all tasks from an idle cluster, and return the time that they take."""
        source, target, work, stream = (np.array([row[i] for row in self.rows]) for i in range(4))
        network, count = routes_of_cluster(self.cluster), len(self.rows)
        sends = np.flatnonzero(source >= 0)
        latency_s, used = np.zeros(count), np.zeros(count, dtype=np.int64)
        latency_s[sends] = network.latencies_s(source[sends], target[sends], work[sends])
        used[sends], links = network.routes(source[sends], target[sends])
        after_start, after = pack_rows(row[4] for row in self.rows)
        graph = TaskGraph(
            resource_names=tuple(link.name for link in self.cluster.links),
            capacity=self.cluster.bandwidth,
            exclusive=self.cluster.links.of_each(lambda link: link.exclusive),
            work=work.astype(np.float64),
            latency_s=latency_s,
            start_s=np.zeros(count),
            rate_limit=np.full(count, np.inf),
            priority=np.zeros(count, dtype=np.int64),
            stream=stream,
            use_start=np.concatenate([[0], np.cumsum(used)]),
            use_resource=links,
            use_weight=np.ones(len(links)),
            after_start=after_start,
            after=after,
        )
        return simulate(graph).makespan_s


@dataclass(frozen=True, slots=True, kw_only=True)
class SubBatchGraph:
    """Sub-batches of an iteration on n machines; one device of each machine sends for all of them."""

    cluster: DeviceGraph
    senders: Sequence[int]
    """Device of each machine that sends and receives between machines, shape (n,)."""
    size_bytes: float
    passes: int
    """Number k of sub-batches in the mini-batch."""
    linear_s: float
    product_s: float
    """Time of the first linear layer's product, which hides a round in Table 6."""
    before_s: float = 0.0
    """Computation before the first sub-batch."""


def all_to_all_s(size_bytes: float, cluster: DeviceGraph) -> float:
    """Return the time of a direct all-gather, in which all messages are sent at once."""
    (step,) = ALL_GATHERS["direct"](len(cluster.devices))
    schedule = _Schedule(cluster)
    for source, target in zip(step.source.tolist(), step.target.tolist(), strict=True):
        schedule.message(source, target, size_bytes, NO_STREAM)
    return schedule.makespan_s()


def serial_pass_s(size_bytes: float, cluster: DeviceGraph, senders: Sequence[int]) -> float:
    """Return the time in which every machine sends its message to the others, one after another.

    Source: Dettmers, "8-Bit Approximations ...", Table 6, single pass.
    """
    schedule = _Schedule(cluster)
    _everyone_sends(schedule, senders, size_bytes, [])
    return schedule.makespan_s()


def in_turn_s(load: SubBatchGraph) -> float:
    """Return the time of an iteration up to the end of the linear layers, with the schedule that is nearest to Table 6.

    Machines send their parts one after the other.  Round r is machine r's n - 1 messages and begins when round
    r - 1 and its product have ended; each round but the first runs beside one product:

        messages     | round 0 | round 1 | round 2 |
        computation  |         | product | product | rest of all passes |

    Where all computation is less than n - 1 products, each product is an equal share of it.

    Source: Dettmers, "8-Bit Approximations ...", Table 6, full pass with overlap.
    """
    schedule, machines = _Schedule(load.cluster), len(load.senders)
    whole_s = load.passes * load.linear_s
    product_s = min(load.product_s, whole_s / (machines - 1))
    compute = machines
    before = [schedule.computation(load.before_s, compute)]
    for machine in range(machines):
        ended = _sends(schedule, load.senders, machine, load.size_bytes, before)
        if machine:
            ended.append(schedule.computation(product_s, compute, before))
        before = ended
    schedule.computation(whole_s - (machines - 1) * product_s, compute, before)
    return schedule.makespan_s()


def scheme_s(load: SubBatchGraph) -> float:
    """Return the same time with the schedule of Sec. 2.4: all machines send their parts of a sub-batch at once.

    A machine's messages of a sub-batch wait for its own messages of the previous sub-batch, and for the computation of
    that one to begin, which waits for the messages of all machines.

    Source: Dettmers, "8-Bit Approximations ...", Sec. 2.4.
    """
    schedule, compute = _Schedule(load.cluster), len(load.senders)
    begun = schedule.computation(load.before_s, compute)
    for _ in range(load.passes):
        arrived = _everyone_sends(schedule, load.senders, load.size_bytes, [begun])
        begun = schedule.computation(0.0, compute, arrived)
        schedule.computation(load.linear_s, compute)
    return schedule.makespan_s()


def _everyone_sends(schedule: _Schedule, senders: Sequence[int], size_bytes: float, after: Sequence[int]) -> list[int]:
    """Add the messages of all machines to all others, and return their tasks."""
    ended = [_sends(schedule, senders, machine, size_bytes, after) for machine in range(len(senders))]
    return [task for tasks in ended for task in tasks]


def _sends(
    schedule: _Schedule, senders: Sequence[int], machine: int, size_bytes: float, after: Sequence[int]
) -> list[int]:
    """Add a machine's messages to all others on its stream, and return their tasks.

    Each machine begins with the next one, so that no two send to the same target at once.
    """
    machines = len(senders)
    return [
        schedule.message(senders[machine], senders[(machine + step) % machines], size_bytes, machine, after)
        for step in range(1, machines)
    ]
