"""Layer-wise search on a mesh: layers may split what they sum over, and repeat a computation on several devices.

The mesh has an axis for each prime factor of the number of devices, those inside machines last.  Along each axis a
layer splits an index, or none.  What a strategy that was found costs rules out configurations before anything is
priced: those whose layer costs so much more than its cheapest one that no strategy with it can be cheaper.

Source:
    Jia et al., "Exploring Hidden Dimensions in Parallelizing Convolutional Neural Networks", ICML 2018, Sec. 5, for
    the search; Xu et al., "GSPMD", 2021, Sec. 3, for layouts on a mesh.
"""

import time
from collections.abc import Iterator
from dataclasses import replace
from functools import partial

from hwprofiles.devices.device_graph import DeviceGraph
from planner.cost.cost_model import CostModel
from planner.elimination.bounds import SLACK
from planner.elimination.eliminate_nodes import eliminate
from planner.elimination.elimination_state import GraphTooWideError
from planner.elimination.search_problem import restrict
from planner.elimination.wide_search import WIDE_LIMIT_SUMS, FoundStrategy, search_wide
from planner.layouts.configurations import mesh_configurations
from planner.layouts.mesh import Mesh
from planner.search.layerwise import LayerwiseResult, cheaper_configurations
from planner.search.search_tables import mesh_problem


def search_on_mesh(model: CostModel, found: LayerwiseResult) -> LayerwiseResult:
    """Return the strategy of least additive cost on a mesh of all devices, or what was found where that costs less.

    Args:
        model: Costs of a network on a cluster.
        found: Result of ``search_layerwise``.

    Source:
        Jia et al., "Exploring Hidden Dimensions in Parallelizing Convolutional Neural Networks", ICML 2018, Sec. 5.
    """
    began, mesh = time.perf_counter(), mesh_of(model.cluster)
    offered = [mesh_configurations(layer, mesh) for layer in model.graph.layers]
    spaces = cheaper_configurations(model, offered, found.cost_s)
    best, searched_s = None, 0.0
    if spaces is not None:
        problem, start = mesh_problem(model, spaces), time.perf_counter()
        try:
            solution = eliminate(problem, limit_sums=WIDE_LIMIT_SUMS)
            cost_s = solution.cost_s
            best = FoundStrategy(choice=solution.choice, cost_s=cost_s, least_s=cost_s, width=solution.width)
        except GraphTooWideError:
            best = search_wide(problem, partial(restrict, problem), ())
        searched_s = time.perf_counter() - start
    result = replace(
        found,
        least_s=min(found.least_s, best.least_s) if best else found.least_s,
        tables_s=found.tables_s + time.perf_counter() - began - searched_s,
        search_s=found.search_s + searched_s,
        width=max(found.width, best.width) if best else found.width,
        configurations=found.configurations + sum(space.size for space in offered),
        pairs_priced=model.transfer_times.pairs_priced,
    )
    if best is None or spaces is None or best.cost_s >= found.cost_s * (1 - SLACK):
        return result
    chosen = zip(model.graph.layers, spaces, best.choice, strict=True)
    strategy = {layer.name: space.configuration(index) for layer, space, index in chosen}
    return replace(result, strategy=strategy, cost_s=best.cost_s)


def mesh_of(cluster: DeviceGraph) -> Mesh:
    """Return the mesh of all devices of a cluster with an axis for each prime factor, those between machines first."""
    count, nodes = len(cluster.devices), cluster.node_count
    sizes = [*_primes(nodes), *_primes(count // nodes)] if count % nodes == 0 else list(_primes(count))
    axes = tuple((f"axis {number}", size) for number, size in enumerate(sizes, 1))
    return Mesh(axes, tuple(range(count)))


def _primes(number: int) -> Iterator[int]:
    """Yield the prime factors of a number, the smallest first."""
    factor = 2
    while number > 1:
        while number % factor == 0:
            yield factor
            number //= factor
        factor += 1
