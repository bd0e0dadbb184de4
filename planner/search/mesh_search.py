"""Layer-wise search on a mesh: layers may split what they sum over, and repeat a computation on several devices.

The mesh has an axis for each prime factor of the number of devices, those inside machines last; of many devices one
for machines and one for the devices of each.  Along each axis a layer splits an index, or none.

What a strategy that was found costs rules out configurations: first those whose layer costs so much more than its
cheapest one that no strategy with it can be cheaper, if nothing travelled; then those that are dominated if gradients
travelled free.  Only for what is left the ways of gradients are priced.  Whatever is ruled out costs more, so the
search stays exact.

Source:
    Jia et al., "Exploring Hidden Dimensions in Parallelizing Convolutional Neural Networks", ICML 2018, Sec. 5, for
    the search; Xu et al., "GSPMD", 2021, Sec. 3, for layouts on a mesh.
"""

import time
from collections.abc import Iterator
from dataclasses import replace
from functools import partial

from groundwork.array_types import Bools
from hwprofiles.devices.device_graph import DeviceGraph
from planner.cost.cost_model import CostModel
from planner.elimination.bounds import SLACK, keep_within, relax
from planner.elimination.eliminate_nodes import eliminate
from planner.elimination.elimination_state import GraphTooWideError
from planner.elimination.search_problem import SearchProblem, restrict, whole_choice
from planner.elimination.wide_search import WIDE_LIMIT_SUMS, FoundStrategy, search_wide
from planner.layouts.configurations import mesh_configurations
from planner.layouts.mesh import Mesh
from planner.search.layerwise import LayerwiseResult, cheaper_configurations
from planner.search.search_tables import mesh_bounds, mesh_problem

_FEW_DEVICES = 16
"""Most devices that have an axis for each prime factor: a layer has up to 126 configurations on their mesh."""


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
        keep = _within(mesh_bounds(model, spaces), found.cost_s)
        problem = mesh_problem(model, spaces, keep) if keep else None
        kept = problem and _within(problem, found.cost_s)
        if keep and problem and kept:
            start = time.perf_counter()
            best = _best(restrict(problem, kept))
            best = replace(best, choice=whole_choice(keep, whole_choice(kept, best.choice)))
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


def _within(problem: SearchProblem, upper_s: float) -> list[Bools]:
    """Return masks of the configurations that strategies up to a cost may have; none where there is no strategy.

    Equal layers keep the configurations that any of them keeps, so that elimination still solves them once.
    """
    joined: dict[int, Bools] = {}
    masks = keep_within(relax(problem).node_s, upper_s)
    for cost, mask in zip(problem.node_cost_s, masks, strict=True):
        joined[id(cost)] = joined.get(id(cost), False) | mask
    return [joined[id(cost)] for cost in problem.node_cost_s] if all(mask.any() for mask in masks) else []


def _best(problem: SearchProblem) -> FoundStrategy:
    """Return the strategy of least cost, or on too wide a graph the best one found."""
    try:
        solution = eliminate(problem, limit_sums=WIDE_LIMIT_SUMS)
    except GraphTooWideError:
        return search_wide(problem, partial(restrict, problem), ())
    cost_s = solution.cost_s
    return FoundStrategy(choice=solution.choice, cost_s=cost_s, least_s=cost_s, width=solution.width)


def mesh_of(cluster: DeviceGraph) -> Mesh:
    """Return the mesh of all devices of a cluster, with axes between machines first."""
    count, nodes = len(cluster.devices), cluster.node_count if len(cluster.devices) % cluster.node_count == 0 else 1
    factors = [nodes, count // nodes]
    sizes = [prime for each in factors for prime in _primes(each)] if count <= _FEW_DEVICES else factors
    axes = tuple((f"axis {number}", size) for number, size in enumerate((s for s in sizes if s > 1), 1))
    return Mesh(axes, tuple(range(count)))


def _primes(number: int) -> Iterator[int]:
    """Yield the prime factors of a number, the smallest first."""
    factor = 2
    while number > 1:
        while number % factor == 0:
            yield factor
            number //= factor
        factor += 1
