"""Both forms of the gradient exchange: how far they part, and what expanding costs.

Run as ``python tests/benchmarks/collectives.py``; prints two tables.
"""

from itertools import pairwise
from time import perf_counter

from hwprofiles.catalogue.cluster_catalogue import load_cluster
from planner.cost.cost_model import CostModel
from planner.lowering.lower_strategy import lower
from planner.models.registry import load_model
from planner.simulation.execution_models import build_program_graph
from planner.simulation.program_replay import replay
from planner.strategies.named_strategies import named_strategy, spaces_of
from simulator.collectives.schemes import ALL_REDUCES
from simulator.engines.engine import simulate

CLUSTERS = ("titanx-4", "dgx1-p100", "p100-4x4", "fdr-32x3:nodes=4", "abci-v100", "dgx-a100", "dgx-h100:nodes=2")


def question(model, cluster, gradient_sync):
    """Cost model and spaces of a data-parallel model, 32 samples a device."""
    machines = load_cluster(cluster)
    count = len(machines.devices)
    graph = load_model(model, batch=32 * count)
    return CostModel(graph, machines, gradient_sync), spaces_of(graph, named_strategy("data", graph, count), count)


def agreement():
    """Iteration of AlexNet, data parallel: messages against single activities."""
    print("iteration with messages over iteration with single activities, AlexNet, data parallel")
    print(f"{'':18}" + "".join(f"{scheme:>16}" for scheme in ALL_REDUCES))
    for cluster in CLUSTERS:
        cells = []
        for scheme in ALL_REDUCES:
            asked = question("alexnet", cluster, scheme)
            steps, activity = (replay(lower(*asked, collectives=form)).iteration_s for form in ("steps", "activity"))
            cells.append(f"{steps / activity - 1:>+16.2%}")
        print(f"{cluster:18}" + "".join(cells))


def speed():
    """Inception-v3 on 96 devices, and VGG-16 on 8,192, one and four iterations."""
    print(f"\n{'workload':44}{'tasks':>12}{'lower s':>9}{'build_program_graph s':>9}{'engine s':>9}")
    for model, cluster, form, iterations in (
        ("inception-v3", "fdr-32x3", "activity", 4),
        ("inception-v3", "fdr-32x3", "steps", 1),
        ("vgg16", "dgx-h100:nodes=1024", "activity", 4),
    ):
        asked = question(model, cluster, "ring")
        simulate(build_program_graph(lower(*question("lenet5", "titanx-4", "ring"))).graph)  # compiled
        marks = [perf_counter()]
        program = lower(*asked, collectives=form)
        marks.append(perf_counter())
        graph = build_program_graph(program, iterations=iterations).graph
        marks.append(perf_counter())
        simulate(graph)
        marks.append(perf_counter())
        times = "".join(f"{b - a:9.2f}" for a, b in pairwise(marks))
        print(f"{f'{model}, {cluster}, {form}, {iterations} it.':44}{graph.size:>12,}{times}")


if __name__ == "__main__":
    agreement()
    speed()
