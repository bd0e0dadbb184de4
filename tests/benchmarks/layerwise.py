"""Time of the layer-wise search: ``python tests/benchmarks/layerwise.py [model cluster batch]``.

Each problem is solved twice in this process with new tables; the second run is printed.  The bars are those of the
requirement: 5, 10, 50 and 200 ms on four GPUs, 1 s on 16, 10 s and 4 GB on 96.
"""

import resource
import sys
import time

from hwprofiles.catalogue.cluster_catalogue import load_cluster
from planner.cost.cost_model import CostModel
from planner.models.registry import load_model
from planner.search.layerwise import search_layerwise
from planner.strategies.named_rules import NAMED

BARS = [
    ("lenet5", "p100-4x4:nodes=1", 128, 0.005),
    ("alexnet", "p100-4x4:nodes=1", 128, 0.010),
    ("vgg16", "p100-4x4:nodes=1", 128, 0.050),
    ("inception-v3", "p100-4x4:nodes=1", 128, 0.200),
    ("inception-v3", "p100-4x4", 512, 1.0),
    ("inception-v3", "k80-16", 512, 1.0),
    ("inception-v3", "p100-4x4:nodes=24", 3072, 10.0),
    ("resnet152", "p100-4x4:nodes=24", 3072, 10.0),
    ("inception-v3", "fdr-32x3", 3072, 10.0),
    ("resnet152", "fdr-32x3", 3072, 10.0),
]
HEADER = (
    "| model | cluster | batch | configurations | pairs priced | tables s | search s | all s | CPU s | bar s "
    "| cost s | peak RSS GB |"
)


def measure(model: str, cluster: str, batch: int, bar_s: float) -> str:
    """One row of the table."""
    devices = load_cluster(cluster)
    for _ in range(2):
        began, busy = time.perf_counter(), time.process_time()
        graph = load_model(model, batch=batch)
        known = [make(graph, len(devices.devices)) for make in NAMED.values()]
        found = search_layerwise(CostModel(graph, devices), known=known)
        took, used = time.perf_counter() - began, time.process_time() - busy
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    return (
        f"| {model} | {cluster} | {batch} | {found.configurations} | {found.pairs_priced} | {found.tables_s:.4f} "
        f"| {found.search_s:.4f} | {took:.4f} | {used:.4f} | {bar_s} | {found.cost_s:.6f} | {peak:.2f} |"
    )


if __name__ == "__main__":
    chosen = [(*sys.argv[1:3], int(sys.argv[3]), float("nan"))] if len(sys.argv) > 3 else BARS
    print(HEADER, "|---" * 12 + "|", sep="\n")
    for row in chosen:
        print(measure(*row), flush=True)  # type: ignore[arg-type]
