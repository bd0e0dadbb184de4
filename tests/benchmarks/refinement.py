"""Rate and gain of the refinement: ``python tests/benchmarks/refinement.py [model cluster batch [plans]]``.

``near s`` finds the optimum of Eq. 1 and its runners-up; ``start s`` is the best of these and of the named strategies
when simulated, ``refined s`` what local moves make of it.  The bar is the requirement's: 200 plans simulated per minute
for VGG-16 on 96 GPUs, on two cores.
"""

import sys
import time

from hwprofiles.catalogue.cluster_catalogue import load_cluster
from planner.cost.cost_model import CostModel
from planner.models.registry import load_model
from planner.search.layerwise import search_layerwise
from planner.search.near_best_strategies import near_best
from planner.search.refinement import refine
from planner.strategies.named_rules import NAMED

CASES = [
    ("alexnet", "p100-4x4", 1024),
    ("vgg16", "p100-4x4", 1024),
    ("alexnet", "fdr-32x3", 3072),
    ("vgg16", "fdr-32x3", 3072),
]
PLANS = 200
HEADER = "| model | cluster | batch | near s | plans | refine s | plans/min | start s | refined s | gap | origin |"


def measure(model: str, cluster: str, batch: int, plans: int) -> str:
    """One row of the table."""
    graph, devices = load_model(model, batch=batch), load_cluster(cluster)
    prices = CostModel(graph, devices)
    starts = {name: make(graph, len(devices.devices)) for name, make in NAMED.items()}
    began = time.perf_counter()
    found = search_layerwise(prices, known=list(starts.values()))
    near = near_best(prices, found.cost_s, 8)
    searched = time.perf_counter()
    starts |= {f"additive plan {k}": strategy for k, strategy in enumerate(near, 1)}
    best = refine(prices, starts, plans=plans)
    took = time.perf_counter() - searched
    return (
        f"| {model} | {cluster} | {batch} | {searched - began:.2f} | {best.simulated_plans} | {took:.2f} "
        f"| {best.simulated_plans / took * 60:.0f} | {best.start_s:.6f} | {best.simulated_s:.6f} | {best.gap:.2%} "
        f"| {best.origin} |"
    )


if __name__ == "__main__":
    chosen = [(*sys.argv[1:3], int(sys.argv[3]))] if len(sys.argv) > 3 else CASES
    budget = int(sys.argv[4]) if len(sys.argv) > 4 else PLANS
    measure("lenet5", "p100-4x4:nodes=1", 64, 4)  # compiles what is not compiled yet
    print(HEADER, "|---" * 11 + "|", sep="\n")
    for row in chosen:
        print(measure(*row, budget), flush=True)  # type: ignore[arg-type]
