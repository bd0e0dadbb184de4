"""Prints what the engines do on exact workloads: ``python tests/benchmarks/engines.py [--large]``.

Ring: devices in nodes, each node with one PCIe link a device (16e9 B/s a direction) and one NIC
(12.5e9 B/s a direction) on one switch; every flow has a latency of 5 us; an all-reduce of 240 MB cut in
layers one after the other, 2 (p - 1) steps each; the flow of rank r at step s waits only for the flow of
rank r - 1 at step s - 1.

All-to-all: 96 devices in the same nodes, every ordered pair and every device to itself at once.

Poisson: flows between random hosts of a three-level fat tree of 1,024 hosts (k = 16), routed at random,
arriving so that about 1,000 are in progress at a time.
"""

import sys
import time
from collections.abc import Callable

import numpy as np

from simulator import compiled_engine, simpy_engine
from simulator.task_graph import Schedule, TaskGraph

PCIE_BYTES_PER_S, NIC_BYTES_PER_S, LATENCY_S = 16e9, 12.5e9, 5e-6


def transfers(capacity, work_bytes, routes, *, latency_s=0.0, start_s=0.0, after=None):
    """Task graph of transfers; ``routes`` (T, L) holds resources, -1 where there is none; ``after`` likewise."""
    size = len(routes)
    after = np.full((size, 1), -1) if after is None else after

    def packed(rows):
        used = rows >= 0
        return np.concatenate(([0], np.cumsum(used.sum(axis=1)))), rows[used]

    (use_start, use_resource), (after_start, after_tasks) = packed(routes), packed(after)
    return TaskGraph(
        resource_names=tuple(f"link{r}" for r in range(len(capacity))),
        capacity=np.asarray(capacity, dtype=float),
        exclusive=np.zeros(len(capacity), dtype=bool),
        work=np.broadcast_to(np.asarray(work_bytes, dtype=float), size).copy(),
        latency_s=np.full(size, latency_s),
        start_s=np.broadcast_to(np.asarray(start_s, dtype=float), size).copy(),
        rate_limit=np.full(size, np.inf),
        priority=np.zeros(size, dtype=np.int64),
        stream=np.full(size, -1),
        use_start=use_start,
        use_resource=use_resource,
        use_weight=np.ones(len(use_resource)),
        after_start=after_start,
        after=after_tasks,
    )


def node_links(nodes, per_node):
    """Capacities of: PCIe up and down of each device, NIC out and in of each node."""
    devices = nodes * per_node
    return np.concatenate([np.full(2 * devices, PCIE_BYTES_PER_S), np.full(2 * nodes, NIC_BYTES_PER_S)])


def node_routes(source, target, nodes, per_node):
    """Links from device to device, shape (F, 4)."""
    devices = nodes * per_node
    away = source // per_node != target // per_node
    out = np.where(away, 2 * devices + source // per_node, -1)
    into = np.where(away, 2 * devices + nodes + target // per_node, -1)
    return np.stack([source, out, into, devices + target], axis=1)


def ring(nodes, per_node, layers, *, total_bytes=240e6):
    devices = nodes * per_node
    steps = 2 * (devices - 1) * layers
    rank = np.tile(np.arange(devices), steps)
    task = np.arange(devices * steps)
    before = np.where(task < devices, -1, task - devices - rank + (rank - 1) % devices)
    return transfers(
        node_links(nodes, per_node),
        total_bytes / layers / devices,
        node_routes(rank, (rank + 1) % devices, nodes, per_node),
        latency_s=LATENCY_S,
        after=before[:, None],
    )


def all_to_all(nodes, per_node):
    devices = nodes * per_node
    source, target = np.divmod(np.arange(devices**2), devices)
    return transfers(
        node_links(nodes, per_node), 1e6, node_routes(source, target, nodes, per_node), latency_s=LATENCY_S
    )


def poisson(flows, *, ports=16, seed=1):
    """Random flows in a fat tree of ``ports`` pods; about 1,000 in progress."""
    random = np.random.default_rng(seed)
    half, hosts = ports // 2, ports**3 // 4
    source = random.integers(hosts, size=flows)
    target = (source + random.integers(1, hosts, size=flows)) % hosts
    middle, core = random.integers(half, size=flows), random.integers(half, size=flows)

    def edge(host):
        return host // half

    def pod(host):
        return host // (half * half)

    other_edge, other_pod = edge(source) != edge(target), pod(source) != pod(target)
    links = hosts  # each level has as many links a direction as there are hosts
    routes = np.stack(
        [
            source,
            np.where(other_edge, links + edge(source) * half + middle, -1),
            np.where(other_pod, 2 * links + (pod(source) * half + middle) * half + core, -1),
            np.where(other_pod, 3 * links + (pod(target) * half + middle) * half + core, -1),
            np.where(other_edge, 4 * links + edge(target) * half + middle, -1),
            5 * links + target,
        ],
        axis=1,
    )
    # Alone a flow lasts 1 s; sharing makes that about twice as long, hence 500 arrivals a second.
    start_s = np.cumsum(random.exponential(1 / 500, size=flows))
    return transfers(np.full(6 * links, 1.0), random.exponential(1.0, size=flows), routes, start_s=start_s)


def timed(simulate: Callable[[TaskGraph], Schedule], graph: TaskGraph) -> tuple[float, Schedule]:
    start = time.perf_counter()
    schedule = simulate(graph)
    return time.perf_counter() - start, schedule


def concurrency(schedule: Schedule) -> float:
    return float((schedule.end_s - schedule.start_s).sum() / schedule.makespan_s)


def main() -> None:
    rows = [
        ("ring 8 (2 x 4), 4 layers", ring(2, 4, 4), True),
        ("ring 96 (32 x 3), 16 layers", ring(32, 3, 16), False),
        ("all-to-all 12 (4 x 3)", all_to_all(4, 3), True),
        ("all-to-all 96 (32 x 3)", all_to_all(32, 3), False),
        ("Poisson, 1,024 hosts", poisson(10_000), False),
    ]
    compiled_engine.simulate(rows[0][1])
    print(
        f"{'workload':30} {'engine':9} {'flows':>9} {'seconds':>8} {'flows/s':>11} {'makespan':>12} {'in progress':>11}"
    )
    if "--large" in sys.argv:
        rows += [
            ("ring 256 (32 x 8), 16 layers", ring(32, 8, 16), False),
            ("ring 1024 (128 x 8)", ring(128, 8, 1), False),
        ]
    for name, graph, clear in rows:
        engines = [("compiled", compiled_engine.simulate)] + [("simpy", simpy_engine.simulate)] * clear
        for engine, simulate in engines:
            seconds, schedule = min((timed(simulate, graph) for _ in range(3)), key=lambda pair: pair[0])
            print(
                f"{name:30} {engine:9} {graph.size:9,} {seconds:8.3f} {graph.size / seconds:11,.0f}"
                f" {schedule.makespan_s:12.6g} {concurrency(schedule):11.1f}"
            )


if __name__ == "__main__":
    main()
