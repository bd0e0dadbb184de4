"""Prints how the cost of a replay grows as devices double: ``python tests/benchmarks/scaling.py [most]``.

Ring: one all-reduce of 240 MB over nodes of 8 (see ``engines.py``).  It has 2 p (p - 1) flows; above 1,024
devices only its first steps run, as many as keep the flows at two million.

Data parallel: one iteration of 16 layers on p devices, a kernel a layer and device forward and backward, each
layer's gradient exchange as one activity on all links of the ring, which overlaps the rest of the backward
pass, and an update a layer and device.  That is 48 p + 16 tasks, and 2.25 p uses an exchange.

Measured on two cores that others used too: the cost grows as the work does. Data parallel takes 0.5 us a task at
8 devices and 0.6 us at 8,192 (393,232 tasks in 0.24 s, 0.31 GB); a ring 0.6 us a flow at 8 devices and 0.6 to 1.2 us
at 8,192 (two million flows in 1.3 to 2.5 s, 0.96 GB), where the records no longer fit in the caches. The limit is
memory: a whole ring of 8,192 devices, 134 million flows at 380 bytes, would take 50 GB.
"""

import multiprocessing
import resource
import sys
import time

import numpy as np
from engines import LATENCY_S, node_links, ring, timed

from simulator.engines import compiled_engine
from simulator.graph.task_graph import TaskGraph

PER_NODE, LAYERS, LAYER_BYTES, MOST_FLOWS = 8, 16, 15e6, 2_100_000
FORWARD_S, BACKWARD_S, UPDATE_S = 1e-3, 2e-3, 1e-5


def data_parallel(devices):
    """Forward and backward kernels in one stream a device, then exchanges, then updates."""
    nodes, everyone = devices // PER_NODE, np.arange(devices)
    links = node_links(nodes, PER_NODE)
    kernels, gradient_syncs, updates = 2 * LAYERS * devices, LAYERS, LAYERS * devices
    size = kernels + gradient_syncs + updates
    on_device = len(links) + np.tile(everyone, 3 * LAYERS)
    use_count = np.ones(size, dtype=np.int64)
    use_count[kernels : kernels + gradient_syncs] = len(links)
    exchange_links = np.tile(np.arange(len(links)), LAYERS)
    # layer l ends its backward pass as kernel 2 L - 1 - l of each device
    backward = (2 * LAYERS - 1 - np.arange(LAYERS)[:, None]) * devices + everyone
    after_count = np.concatenate([np.zeros(kernels, int), np.full(gradient_syncs, devices), np.ones(updates, int)])
    none = np.zeros(size)
    latency_s = none.copy()
    latency_s[kernels : kernels + gradient_syncs] = 2 * (devices - 1) * LATENCY_S
    return TaskGraph(
        resource_names=tuple(f"resource{r}" for r in range(len(links) + devices)),
        capacity=np.concatenate([links, np.ones(devices)]),
        exclusive=np.zeros(len(links) + devices, dtype=bool),
        work=np.concatenate(
            [
                np.full(kernels // 2, FORWARD_S),
                np.full(kernels // 2, BACKWARD_S),
                np.full(gradient_syncs, 2 * (devices - 1) / devices * LAYER_BYTES),
                np.full(updates, UPDATE_S),
            ]
        ),
        latency_s=latency_s,
        start_s=none,
        rate_limit=np.full(size, np.inf),
        priority=np.zeros(size, dtype=np.int64),
        stream=np.concatenate([np.tile(everyone, 2 * LAYERS), np.full(gradient_syncs + updates, -1)]),
        use_start=np.concatenate([[0], np.cumsum(use_count)]),
        use_resource=np.concatenate([on_device[:kernels], exchange_links, on_device[kernels:]]),
        use_weight=np.ones(use_count.sum()),
        after_start=np.concatenate([[0], np.cumsum(after_count)]),
        after=np.concatenate([backward.ravel(), np.repeat(kernels + np.arange(LAYERS), devices)]),
    )


def part_of_a_ring(devices):
    whole = 2 * (devices - 1)
    return ring(devices // PER_NODE, PER_NODE, 1, steps=min(whole, MOST_FLOWS // devices))


WORKLOADS = {"ring": part_of_a_ring, "data parallel": data_parallel}


def row(name: str, devices: int) -> str:
    """Run a workload; in a process of its own, so that the peak of the memory is its own."""
    compiled_engine.replay_compiled(WORKLOADS[name](PER_NODE))  # compiles, or loads
    start = time.perf_counter()
    graph = WORKLOADS[name](devices)
    build_s = time.perf_counter() - start
    seconds, _ = timed(compiled_engine.replay_compiled, graph)
    uses, peak_bytes = len(graph.use_resource), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return (
        f"{name:14} {devices:7,} {graph.size:9,} {uses:10,} {build_s:8.3f} {seconds:8.3f}"
        f" {seconds / graph.size * 1e6:8.2f} {seconds / uses * 1e9:7.0f} {peak_bytes / 1e6:8.0f}"
    )


def main() -> None:
    most = int(sys.argv[1]) if len(sys.argv) > 1 else 8192
    print(
        f"{'workload':14} {'devices':>7} {'tasks':>9} {'uses':>10} {'build s':>8} {'seconds':>8} {'us/task':>8}"
        f" {'ns/use':>7} {'peak MB':>8}"
    )
    with multiprocessing.get_context("spawn").Pool(1, maxtasksperchild=1) as pool:
        for name in WORKLOADS:
            devices = PER_NODE
            while devices <= most:
                print(pool.apply(row, (name, devices)), flush=True)
                devices *= 2


if __name__ == "__main__":
    main()
