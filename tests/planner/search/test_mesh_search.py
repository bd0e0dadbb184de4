"""The search over splits of summed indices and repeated layers finds what trying every strategy finds."""

import itertools
import math

import numpy as np
import pytest
from mesh_cases import small_network, strategy_of
from plans import cluster_of, device_count

from groundwork.errors import ConfigError
from hwprofiles.catalogue.cluster_catalogue import cluster_names, load_cluster
from planner.cost.cost_model import CostModel
from planner.elimination.eliminate_nodes import eliminate
from planner.elimination.elimination_state import GraphTooWideError
from planner.elimination.search_problem import strategy_cost
from planner.graph.shapes import REPEATED, SUMMED
from planner.layouts.configurations import mesh_configurations
from planner.models.registry import load_model
from planner.plan.lowered_plan import cost_model_of
from planner.plan.make_plan import make_plan
from planner.plan.plan_request import PlanRequest
from planner.search import mesh_search
from planner.search.layerwise import search_layerwise
from planner.search.mesh_search import mesh_of, search_on_mesh
from planner.search.search_tables import mesh_problem
from planner.simulation.additive_cost import additive_s

MOST_STRATEGIES = 6_000


def small_question(seed):
    """A cost model of a small network on two to four devices, and all configurations, few enough to try."""
    rng = np.random.default_rng(seed)
    while True:
        spec, count = str(rng.choice(cluster_names())), int(rng.choice([2, 2, 3, 4, 4]))
        if device_count(spec) < count:
            continue
        model = CostModel(small_network(rng), cluster_of(spec, count), str(rng.choice(["ring", "auto", "direct"])))
        spaces = [mesh_configurations(layer, mesh_of(model.cluster)) for layer in model.graph.layers]
        if math.prod(space.size for space in spaces) <= MOST_STRATEGIES:
            return model, spaces


@pytest.mark.parametrize("seed", range(15))
def test_search_equals_brute_force(seed):
    """Of 15 graphs of three to seven layers, on two to four devices of any cluster."""
    model, spaces = small_question(seed)
    problem = mesh_problem(model, spaces)
    every = itertools.product(*(range(space.size) for space in spaces))
    least_s, choice = min((strategy_cost(problem, choice), choice) for choice in every)
    assert eliminate(problem).cost_s == pytest.approx(least_s, rel=1e-12)
    assert additive_s(model, strategy_of(model.graph, spaces, choice)) == pytest.approx(least_s, rel=1e-9)
    found = search_layerwise(model)
    best = search_on_mesh(model, found)
    assert best.exact
    assert best.cost_s == best.least_s == pytest.approx(min(least_s, found.cost_s), rel=1e-12)
    assert additive_s(model, best.strategy) == pytest.approx(best.cost_s, rel=1e-9)


def test_graphs_too_wide_are_searched_among_promising_configurations(monkeypatch):
    model = CostModel(load_model("alexnet", batch=64), load_cluster("p100-4x4:nodes=1"))
    found = search_layerwise(model)
    best = search_on_mesh(model, found)

    def too_wide(*_arguments, **_options):
        raise GraphTooWideError("too wide")

    monkeypatch.setattr(mesh_search, "eliminate", too_wide)
    other = search_on_mesh(model, found)
    assert other.least_s <= best.cost_s <= other.cost_s < found.cost_s
    assert additive_s(model, other.strategy) == pytest.approx(other.cost_s, rel=1e-9)


def test_axes_are_prime_factors_of_machines_and_of_their_devices():
    assert mesh_of(load_cluster("p100-4x4")).sizes == (2, 2, 2, 2)
    assert mesh_of(load_cluster("titanx-4").take(3)).sizes == (3,)
    assert mesh_of(load_cluster("fdr-32x3:nodes=2")).sizes == (2, 3)
    assert mesh_of(load_cluster("titanx-4").take(1)).sizes == ()
    assert mesh_of(load_cluster("p100-4x4:nodes=8")).sizes == (8, 4)


def test_plans_split_sums_where_that_pays():
    """Fully connected layers of AlexNet by rows: their partial sums are smaller than their gradients."""
    graph, cluster = load_model("alexnet", batch=128), load_cluster("p100-4x4:nodes=1")
    plain, plan = (make_plan(graph, cluster, strategy=text) for text in ("layerwise", "layerwise,mesh"))
    assert plan.additive_s < plain.additive_s
    assert plan.simulated_s <= plain.simulated_s
    assert plan.configurations["fc1"].degrees[SUMMED] == 4
    assert plan.configurations["fc1"].describe() == "n=1 c=1 k=4"
    assert plan.request.text == "layerwise,mesh"
    model = cost_model_of(plan.request, graph, cluster)
    assert plan.additive_s == pytest.approx(additive_s(model, plan.configurations), rel=1e-9)


def test_one_device_has_nothing_to_split():
    model = CostModel(load_model("lenet5", batch=8), load_cluster("titanx-4").take(1))
    found = search_layerwise(model)
    assert search_on_mesh(model, found).strategy == found.strategy


@pytest.mark.parametrize("options", [{"strategy": "data,mesh"}, {"strategy": "layerwise,mesh", "refine": 3}])
def test_other_strategies_have_no_mesh_to_search(options):
    with pytest.raises(ConfigError, match="mesh must be left out except for strategies layerwise and hybrid with"):
        PlanRequest(model="vgg16", cluster="titanx-4", batch=8, **options)


def test_a_search_on_a_mesh_is_layerwise_where_no_strategy_is_named():
    assert PlanRequest(model="vgg16", cluster="titanx-4", batch=8, mesh=True).strategy == "layerwise"
    with pytest.raises(ConfigError, match=r"recompute must be none for layerwise, .* got 'full'"):
        PlanRequest(model="vgg16", cluster="titanx-4", batch=8, mesh=True, recompute="full")


def test_repeated_layers_are_offered():
    """Some of the best strategies of small networks on slow links repeat a layer."""
    repeated = 0
    for seed in range(8):
        model, spaces = small_question(seed)
        solution = eliminate(mesh_problem(model, spaces))
        chosen = strategy_of(model.graph, spaces, solution.choice).values()
        repeated += any(each.degrees.get(REPEATED, 1) > 1 for each in chosen)
    assert repeated
