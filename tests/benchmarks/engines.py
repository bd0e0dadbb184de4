"""Prints what the engines do on exact workloads: ``python tests/benchmarks/engines.py``.

Ring: devices in nodes, each node with one PCIe link a device (16e9 B/s a direction) and one NIC
(12.5e9 B/s a direction) on one switch; every flow has a latency of 5 us; an all-reduce of 240 MB cut in
layers one after the other, 2 (p - 1) steps each; the flow of rank r at step s waits only for the flow of
rank r - 1 at step s - 1.

All-to-all: 96 devices in the same nodes, every ordered pair and every device to itself at once.

Poisson: flows between random hosts of a three-level fat tree of 1,024 hosts (k = 16), routed at random,
arriving so that about 1,000 are in progress at a time.

``/ heap`` is the time over that of a bare heap loop with as many events (a readiness and an end a flow) and as
many flows in progress, compiled for the compiled engine.

What limits the compiled engine, measured on two cores:

* Rings: the events. 96 devices take 0.10 s, 256 take 1.2 s, 1,024 take 1.9 s (3.1, 1.7 and 1.1 million flows/s),
  1.4 to 2.2 times the bare heap. All links are free or bind alone, and one instant serves many ends: the
  291,840 flows of 96 devices change rates 291,840 times, in 10,133 instants. What grows from 96 to 1,024
  devices is the time of a memory access, once the records (330 bytes a flow, graph included) exceed the caches.
* Poisson: the solver. 20,000 starts and ends take 3.5 to 3.8 s, 1,500 times the bare heap: each couples to others
  through shared links, is solved 2.6 times on a growing part until nothing outside it changes (75 us a solution),
  and changes 10 rates in the end.
* Memory: 1 GB for two million flows, 0.15 GB of which is Python with numba.
"""

import heapq
import multiprocessing
import resource
import time
from collections.abc import Callable
from typing import Any

import numba
import numpy as np

from simulator.engines import compiled_engine, simpy_engine
from simulator.graph.task_graph import Schedule, TaskGraph

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


def ring(nodes, per_node, layers, *, total_bytes=240e6, steps=None):
    """All-reduce over all devices; only its first ``steps`` where they are given."""
    devices = nodes * per_node
    steps = steps or 2 * (devices - 1) * layers
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


WORKLOADS = {
    # name: (task graph, seconds of the compiled engine that are asked for, whether SimPy runs it too)
    "ring 8 (2 x 4), 4 layers": (lambda: ring(2, 4, 4), None, True),
    "ring 96 (32 x 3), 16 layers": (lambda: ring(32, 3, 16), 0.15, False),
    "ring 256 (32 x 8), 16 layers": (lambda: ring(32, 8, 16), 1.5, False),
    "ring 1024 (128 x 8), 1 layer": (lambda: ring(128, 8, 1), 3.0, False),
    "Poisson, 1,024 hosts": (lambda: poisson(10_000), 4.0, False),
    "Poisson, 1,024 hosts, first 500": (lambda: poisson(500), None, True),
    "all-to-all 12 (4 x 3)": (lambda: all_to_all(4, 3), None, True),
    "all-to-all 96 (32 x 3)": (lambda: all_to_all(32, 3), None, False),
}
ENGINES = {"compiled": compiled_engine.replay_compiled, "simpy": simpy_engine.replay_simpy}
REPEATS = 3


def bare_heap(events: int, in_progress: int) -> float:
    """What no engine can do without: take the first event, put the next in its place."""
    heap = [(float(i), i) for i in range(in_progress)]
    now = 0.0
    for event in range(events):
        now, item = heap[0]
        # steps that differ, so that entries move through the heap as they do in a replay
        heapq.heapreplace(heap, (now + in_progress * (0.5 + (event % 7) / 7), item))
    return now


compiled_bare_heap = numba.njit(bare_heap)


def timed(function: Callable[..., Any], *arguments: Any) -> tuple[float, Any]:
    """Least seconds of some runs, and what the last returned."""
    seconds = []
    for _ in range(REPEATS):
        start = time.perf_counter()
        result = function(*arguments)
        seconds.append(time.perf_counter() - start)
    return min(seconds), result


def concurrency(schedule: Schedule) -> float:
    return float((schedule.end_s - schedule.start_s).sum() / schedule.makespan_s)


def row(name: str, engine: str) -> str:
    """Run a workload; in a process of its own, so that the peak of the memory is its own."""
    build, bar_s, _ = WORKLOADS[name]
    simulate, heap = ENGINES[engine], compiled_bare_heap if engine == "compiled" else bare_heap
    simulate(transfers([1.0], 1.0, np.zeros((1, 1), dtype=np.int64)))  # compiles, or loads
    heap(1, 1)
    graph = build()
    seconds, schedule = timed(simulate, graph)
    in_progress = concurrency(schedule)
    events = graph.size * (1 + int(np.any(graph.latency_s > 0) or np.any(graph.start_s > 0)))
    heap_s, _ = timed(heap, events, max(round(in_progress), 1))
    peak_bytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return (
        f"{name:32} {engine:9} {graph.size:9,} {seconds:8.3f} {bar_s or '':>5} {graph.size / seconds:11,.0f}"
        f" {peak_bytes / 1e6:7.0f} {seconds / heap_s:6.1f} {schedule.makespan_s:12.6g} {in_progress:11.1f}"
    )


def main() -> None:
    print(
        f"{'workload':32} {'engine':9} {'flows':>9} {'seconds':>8} {'bar':>5} {'flows/s':>11} {'peak MB':>7}"
        f" {'/ heap':>6} {'makespan (s)':>12} {'in progress':>11}"
    )
    with multiprocessing.get_context("spawn").Pool(1, maxtasksperchild=1) as pool:
        for name, (_, _, clear) in WORKLOADS.items():
            for engine in ["compiled"] + ["simpy"] * clear:
                print(pool.apply(row, (name, engine)), flush=True)


if __name__ == "__main__":
    main()
