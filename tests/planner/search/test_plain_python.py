"""What plain Python computes for small networks, before numba is loaded, is what compiled code does, bit for bit."""

import contextlib
import copy
import pickle

import pytest
from plans import cluster_of
from search_cases import random_problem

from groundwork.errors import InfeasiblePlanError
from planner.cost.cost_model import CostModel
from planner.elimination.depth_first_search import depth_first
from planner.models.registry import load_model
from planner.search.layerwise import search_layerwise
from planner.topology.network_routes import routes_of_cluster
from simulator.compiled.jit import CompiledKernel


@pytest.fixture
def called(monkeypatch):
    """Functions that were called meanwhile, each in both forms on the same arrays."""
    names = set()

    def both(kernel, *values):
        copies = copy.deepcopy(values)
        result = kernel.compiled(*values)
        assert kernel.plain(*copies) == result
        assert pickle.dumps(copies) == pickle.dumps(copy.deepcopy(values))
        names.add(kernel.plain.__name__)
        return result

    monkeypatch.setattr(CompiledKernel, "__call__", both)
    return names


@pytest.mark.parametrize(
    ("cluster", "devices", "searches_routes"), [("titanx-4", 4, False), ("lab-2x2", 4, True), ("p100-4x4", 6, True)]
)
def test_prices_and_searches(called, cluster, devices, searches_routes):
    """On one machine, racks and machines of several devices: links that decide, levels, prices and minima."""
    routes_of_cluster.cache_clear()  # other tests may have asked for the routes of this cluster before
    model = CostModel(load_model("lenet5", batch=24), cluster_of(cluster, devices))
    search_layerwise(model)
    assert called >= {"price_pairs", "_fold_columns", *(["_neighbours"] if searches_routes else [])}


@pytest.mark.parametrize("prune", [False, True])
def test_depth_first_searches(called, prune):
    for seed in range(20):
        with contextlib.suppress(InfeasiblePlanError):
            depth_first(random_problem(seed), prune=prune)
    assert called == {"_search"}
