"""Cases that are measured in the lab and predicted by the engine, and both ways to get their times.

Run as ``lab_cases.py CLUSTER CASES RESULT REPEATS`` in the lab, it starts a worker in each host.
"""

import json
import os
import subprocess
import sys
import tempfile
from dataclasses import asdict, dataclass, field
from pathlib import Path

import numpy as np

from executor.lab.inside import lab_hosts, run_inside
from executor.lab.wiring import lab_cluster
from hwprofiles.catalogue.cluster_catalogue import load_cluster
from planner.topology.network_routes import routes_of_cluster
from simulator.collectives.messages import messages_of
from simulator.collectives.rings import ring_all_reduce
from simulator.collectives.schemes import ALL_GATHERS
from simulator.engines.engine import simulate
from simulator.graph.task_graph import TaskGraph, pack_rows

WORKER = Path(__file__).with_name("lab_worker.py")
MB = 1_000_000


@dataclass(frozen=True)
class Message:
    source: int
    target: int
    bytes: int
    start_s: float = 0.0
    waits: list[int] = field(default_factory=list)


def ring(kind, size_bytes, count):
    """Messages of a ring all-reduce or all-gather of so many bytes in all."""
    messages = messages_of(ring_all_reduce(count) if kind == "all_reduce" else ALL_GATHERS["ring"](count), count)
    waits = [[] for _ in messages.source]
    for message, earlier in zip(*messages.waits, strict=True):
        waits[message].append(int(earlier))
    sizes = np.round(messages.share * size_bytes).astype(int).tolist()
    return [
        Message(*row)
        for row in zip(
            messages.source.tolist(), messages.target.tolist(), sizes, [0.0] * len(sizes), waits, strict=True
        )
    ]


def task_graph(messages, cluster):
    """The messages as activities on the links of their routes."""
    network = routes_of_cluster(cluster)
    source, target = (np.array([getattr(m, end) for m in messages]) for end in ("source", "target"))
    size = np.array([m.bytes for m in messages], dtype=np.float64)
    counts, links = network.routes(source, target)
    after_start, after = pack_rows(m.waits for m in messages)
    return TaskGraph(
        resource_names=tuple(link.name for link in cluster.links),
        capacity=cluster.bandwidth,
        exclusive=np.zeros(len(cluster.links), dtype=bool),
        work=size,
        latency_s=network.latencies_s(source, target, size),
        start_s=np.array([m.start_s for m in messages]),
        rate_limit=np.full(len(messages), np.inf),
        priority=np.zeros(len(messages), dtype=np.int64),
        stream=np.full(len(messages), -1, dtype=np.int64),
        use_start=np.concatenate([[0], np.cumsum(counts)]),
        use_resource=links,
        use_weight=np.ones(len(links)),
        after_start=after_start,
        after=after,
    )


def predicted_s(messages, cluster_spec):
    """Seconds from the start of the case to the end of each message, by the engine."""
    return simulate(task_graph(messages, lab_cluster(load_cluster(cluster_spec)))).end_s


def measured_s(cases, cluster_spec, repeats):
    """The same for many cases, measured in a lab of their own.

    Returns:
        For each case an array (repeats, messages); a collective of gloo's own has one column.
    """
    with tempfile.TemporaryDirectory() as folder:
        paths = Path(folder, "cases.json"), Path(folder, "result.json")
        paths[0].write_text(
            json.dumps([case if isinstance(case, dict) else [asdict(m) for m in case] for case in cases])
        )
        code = run_inside([sys.executable, __file__, cluster_spec, *map(str, paths), str(repeats)])
        assert code == 0, f"the workers ended with {code}"
        return [np.array(rows) for rows in json.loads(paths[1].read_text())]


def rank_server(folder):
    """What makes workers start warm: importing torch in every host is spared."""
    sys.path.append(str(Path(__file__).parents[1]))
    import warm_python

    return warm_python.started(Path(folder), loaded="rank")


def run_workers(cluster_spec, *arguments):
    """Start a worker in every host, and return the first exit code that is not 0."""
    with lab_hosts(load_cluster(cluster_spec)) as hosts, tempfile.TemporaryDirectory() as warm, rank_server(warm):
        workers = [
            subprocess.Popen(
                hosts.command(rank, [f"{warm}/python", str(WORKER), *arguments]),
                env={**os.environ, **hosts.environment(rank), "OMP_NUM_THREADS": "1"},
            )
            for rank in range(hosts.count)
        ]
        return next((code for worker in workers if (code := worker.wait())), 0)


if __name__ == "__main__":
    sys.exit(run_workers(*sys.argv[1:]))
