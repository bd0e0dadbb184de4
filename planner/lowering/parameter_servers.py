"""Parameter servers in the memory of the hosts, as TensorFlow had them in 2017.

Variables lie in the memory of machines, which add up the gradients of all workers and update.  Workers fetch parameters
at the beginning of a step, once all workers have sent all gradients of the step before (one layer, two devices):

    step k      fetch to 0, fetch to 1  ->  forward ... weight gradient  ->  push from 0, push from 1
    step k + 1  fetches wait for all pushes of step k

Copies of a device in one direction follow one another.  TensorFlow has one device, ``/cpu:0``, for all processors of a
machine: the memory of a variable is taken to lie evenly at all hosts of its machine, so half of each copy crosses the
link between two sockets.  Machines without workers serve nothing.  The hosts' own arithmetic is not priced.

TensorFlow fetches parameters in a random order.  A layer that is the r-th to compute needs its own parameters and those
of the layers before it; of those behind it, each has arrived before the last of these r with probability r / (r + 1).
The copy of a layer has as many bytes as arrive, on average over all orders, between what the layer before waits for and
what it waits for itself; of three layers of 12 bytes each, whose copies are drawn as they follow one another:

    own order     12 bytes, then layer 1     12 bytes, then layer 2     12 bytes, then layer 3
    random order  24 bytes, then layer 1      8 bytes, then layer 2      4 bytes, then layer 3

Source:
    tensorflow/tensorflow, docs_src/performance/performance_models.md (2017): variables in ``parameter_server`` mode;
    Hashemi, Jyothi and Campbell, TicTac, MLSys 2019: the random order.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from groundwork.array_types import Floats, Ints
from groundwork.errors import ConfigError
from hwprofiles.devices.device_graph import DeviceGraph
from planner.lowering.batched_model import BatchedModel, LoweredUnit
from planner.lowering.program import HostCopy
from planner.lowering.task_builder import TaskPairs, Tasks


class ParameterServers:
    """Appends the copies of gradients to the hosts and of parameters from them.

    Args:
        batched: Costs and configurations.
        tasks: Tasks under construction.

    Raises:
        ConfigError: The cluster has no host, or a device holds a share of a layer's parameters only.
    """

    def __init__(self, batched: BatchedModel, tasks: Tasks) -> None:
        self._framework = batched.model.conditions.framework
        self._graph, self._spaces, self._tasks = batched.graph, batched.spaces, tasks
        self._cluster = batched.model.cluster
        self._check()
        self._machines: dict[int, list[int]] = {}  # hosts by machine
        for name, node in self._cluster.hosts.items():
            self._machines.setdefault(node, []).append(self._cluster.vertices.index(name))
        self._routes = _HostRoutes(self._cluster, [host for hosts in self._machines.values() for host in hosts])
        self.copies: dict[int, HostCopy] = {}
        """Copies by task."""
        self.fetched: dict[int, Ints] = {}
        """Task that brings the parameters of a layer to each part, by layer."""
        self._pushed: list[Ints] = []
        self._last: dict[str, dict[int, int]] = {"push": {}, "fetch": {}}
        """The last copy of each device, by direction."""
        self._machine = self._placed()

    def _check(self) -> None:
        """Raise where there is no host or a layer's parameters are split."""
        if not self._cluster.hosts:
            raise ConfigError(
                f"framework must not be ps on cluster {self._cluster.spec}: none of its switches is a host (is_host)"
            )
        for layer, space in zip(self._graph.layers, self._spaces, strict=True):
            if layer.parameters and int(space.shards(layer.split)[0]) > 1:
                raise ConfigError(
                    f"framework must not be ps where parameters are split: those of {layer.name} are in "
                    f"{space.shards(layer.split)[0]} shards"
                )

    def _placed(self) -> dict[int, int]:
        """Return the machine of each layer with parameters: the one that holds least when its turn comes."""
        held, machine_of = dict.fromkeys(self._machines, 0.0), {}
        for i in range(len(self._graph.layers)):
            if size := self._bytes(i):
                machine_of[i] = min(held, key=lambda machine: (held[machine], machine))
                held[machine_of[i]] += size
        return machine_of

    def _bytes(self, layer: int) -> float:
        """Return the bytes of a layer's parameters."""
        return float(sum(p.elements for p in self._graph.layers[layer].parameters) * self._graph.element_bytes)

    def fetch(self) -> None:
        """Append the copies of all parameters to the devices that hold them, layer by layer."""
        fetched_bytes = self._randomly_fetched_bytes() if self._framework.fetches_randomly else {}
        for i in self._machine:
            devices = self._spaces[i].devices
            size_bytes = fetched_bytes[i] if fetched_bytes else np.full(len(devices), self._bytes(i))
            self.fetched[i] = self._copies("fetch", (i, 0), devices, size_bytes)

    def _randomly_fetched_bytes(self) -> dict[int, Floats]:
        """Return the bytes of the copies of each layer to its parts, in whole bytes; machines send what they hold."""
        behind: dict[tuple[int, int], float] = defaultdict(float)  # bytes of the layers behind, by device and machine
        for i, machine in self._machine.items():
            for device in self._spaces[i].devices.tolist():
                behind[device, machine] += self._bytes(i)
        missing, rank, found = dict(behind), defaultdict[int, int](int), dict[int, Floats]()
        for i, machine in self._machine.items():
            devices = self._spaces[i].devices.tolist()
            found[i] = np.empty(len(devices))
            for part, device in enumerate(devices):
                rank[device] += 1
                behind[device, machine] -= self._bytes(i)
                still_missing = behind[device, machine] // (rank[device] + 1)
                found[i][part] = missing[device, machine] - still_missing
                missing[device, machine] = still_missing
        return found

    def await_parameters(self, layer: int, tasks: Ints) -> None:
        """Let the tasks of a layer, one a part, wait for its parameters, if it has any, or for those of all layers."""
        if self._framework.fetches_first:
            last = self._last["fetch"]
            rows = [
                (task, last[d])
                for task, d in zip(tasks, self._spaces[layer].devices.tolist(), strict=True)
                if d in last
            ]
            self._tasks.wait(*np.array(rows, dtype=np.int64).reshape(-1, 2).T)
        elif layer in self.fetched:
            self._tasks.wait(tasks, self.fetched[layer])

    def push(self, unit: LoweredUnit, ready: TaskPairs) -> None:
        """Append the copies of a layer's gradients.

        Args:
            unit: The layer, with the micro-batch whose gradients they are, or the last of several.
            ready: Pairs (part, task after which its gradients, or a share of them, are there).
        """
        devices = self._spaces[unit[0]].devices
        tasks = self._copies("push", unit, devices, np.full(len(devices), self._bytes(unit[0])), backward=True)
        self._tasks.wait(tasks[ready[0]], ready[1])
        self._pushed.append(tasks)

    def finish(self) -> Ints:
        """Append the task that waits for all gradients.

        Returns:
            Pairs (copy of parameters, that task of the iteration before), shape (copies, 2).
        """
        if not self._pushed:
            return np.empty((0, 2), dtype=np.int64)
        pushed, fetched = np.concatenate(self._pushed), np.concatenate(list(self.fetched.values()))
        self._tasks.group += 1
        (done,) = self._tasks.add("coordinate", max(self._machine), 1, backward=True)
        self._tasks.wait(np.full(len(pushed), done), pushed)
        return np.column_stack([fetched, np.full(len(fetched), done)])

    def _copies(
        self, kind: str, unit: LoweredUnit, devices: Ints, size_bytes: Floats, *, backward: bool = False
    ) -> Ints:
        """Append a copy between the machine of a layer and each of its devices, behind the device's copy before."""
        self._tasks.group += 1
        layer = unit[0]
        tasks = self._tasks.add(
            kind,
            layer,
            len(devices),
            device=devices,
            part=np.arange(len(devices)),
            micro_batch=unit[1],
            size_bytes=size_bytes,
            backward=backward,
        )
        last = self._last[kind]
        for task, device, size in zip(tasks.tolist(), devices.tolist(), size_bytes.tolist(), strict=True):
            self.copies[task] = self._copy(kind, device, self._machine[layer], size)
            if device in last:
                self._tasks.wait(np.array([task]), np.array([last[device]]))
            last[device] = task
        return tasks

    def _copy(self, kind: str, device: int, machine: int, size_bytes: float) -> HostCopy:
        """Return the ways of a copy between a device and the hosts of a machine, each of which holds as much."""
        hosts, shares, latency_s = self._machines[machine], defaultdict[int, float](float), 0.0
        for host in hosts:
            links = self._routes.links(kind, device, host)
            latency_s = max(latency_s, float(sum(self._cluster.links[link].latency.at(size_bytes) for link in links)))
            for link in links:
                shares[link] += 1.0 / len(hosts)
        return HostCopy(tuple(shares), tuple(shares.values()), latency_s)


@dataclass(frozen=True, slots=True)
class _Tree:
    """Shortest routes between a host and all vertices, in one direction."""

    before: Ints
    """Vertex before each vertex on the way from the host, or behind it on the way to the host; negative if none."""
    link: dict[tuple[int, int], int]
    """Link between two vertices that follow each other from the host on."""


class _HostRoutes:
    """Shortest routes between the hosts and the devices of a cluster; devices forward nothing."""

    def __init__(self, cluster: DeviceGraph, hosts: Sequence[int]) -> None:
        arcs = [(link.source, link.target, i, link.routing_cost) for i, link in enumerate(cluster.links)]
        arcs += [
            (link.target, link.source, i, link.routing_cost) for i, link in enumerate(cluster.links) if link.both_ways
        ]
        devices, size = len(cluster.devices), len(cluster.vertices)
        outward = [arc for arc in arcs if arc[0] >= devices]
        inward = [(target, source, i, cost) for source, target, i, cost in arcs if target >= devices]
        self._trees = {
            (kind, host): _tree(rows, size, host)
            for kind, rows in (("fetch", outward), ("push", inward))
            for host in hosts
        }

    def links(self, kind: str, device: int, host: int) -> tuple[int, ...]:
        """Return the links between a device and a host: from it for ``fetch``, to it for ``push``."""
        tree, vertex, links = self._trees[kind, host], device, list[int]()
        while vertex != host:
            links.append(tree.link[int(tree.before[vertex]), vertex])
            vertex = int(tree.before[vertex])
        return tuple(links)


def _tree(arcs: Sequence[tuple[int, int, int, int]], size: int, root: int) -> _Tree:
    """Return the shortest routes from a vertex over arcs (from, to, link, cost)."""
    cheapest: dict[tuple[int, int], tuple[int, int]] = {}
    for source, target, link, cost in arcs:
        cheapest[source, target] = min(cheapest.get((source, target), (cost, link)), (cost, link))
    ends = np.array(list(cheapest), dtype=np.int64).reshape(-1, 2)
    costs = np.array([cost for cost, _ in cheapest.values()], dtype=np.float64)
    from scipy.sparse import csr_array  # here: it takes long to load, and few plans need it
    from scipy.sparse.csgraph import dijkstra

    matrix = csr_array((costs, (ends[:, 0], ends[:, 1])), shape=(size, size))
    _, before = dijkstra(matrix, indices=root, return_predecessors=True)
    return _Tree(before, {pair: link for pair, (_, link) in cheapest.items()})
