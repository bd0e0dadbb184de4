"""Graphs that are too wide for elimination: the result is a strategy, near the optimum, and the bound holds."""

import pytest
from hypothesis import given, settings, strategies as st
from search_cases import make_problem

from groundwork.units import MILLI
from hwprofiles.catalogue.cluster_catalogue import load_cluster
from planner.cost.cost_model import CostModel
from planner.elimination import wide_search
from planner.elimination.eliminate_nodes import eliminate
from planner.elimination.elimination_state import GraphTooWideError
from planner.elimination.search_problem import restrict, strategy_cost
from planner.elimination.wide_search import search_wide
from planner.models.builder import ModelBuilder
from planner.models.registry import load_model
from planner.plan import layerwise_choice
from planner.plan.make_plan import make_plan
from planner.plan.plan_request import PlanRequest
from planner.search import layerwise
from planner.search.layerwise import search_layerwise
from planner.simulation.additive_cost import additive_s

DENSE = [(u, list(range(u + 1, 8))) for u in range(7)]
"""Every node joined with every other one: width 7."""


NOTE = "an exact search would take too long"


def gives_up(problem, **limits):
    raise GraphTooWideError("too wide")


def too_wide(monkeypatch):
    """Make every network too wide, and few configurations promising."""
    monkeypatch.setattr(layerwise, "eliminate", gives_up)
    monkeypatch.setattr(wide_search, "_MOST_KEPT", 4)
    monkeypatch.setattr(wide_search, "_FEWEST_KEPT", 2)


def crossing_branches():
    """Two branches that are joined twice on their way, so that four convolutions read what two have made."""
    net = ModelBuilder("crossing", batch=8, image=(3, 12, 12))
    stem = net.conv(64, 3, pad=1, name="stem")
    left, right = net.conv(64, 1, stem, name="left0"), net.conv(64, 3, stem, pad=1, name="right0")
    for row in (1, 2):
        joined = [net.concat(pair, name=f"join{row}{k}") for k, pair in enumerate([(left, right), (right, left)])]
        left = net.conv(64, 3, joined[0], pad=1, name=f"left{row}")
        right = net.conv(64, 1, joined[1], name=f"right{row}")
    net.concat([left, right], name="both")
    net.linear(1000, name="dense")
    return net.build()


def found(problem, starts=()):
    return search_wide(problem, lambda keep: restrict(problem, keep), starts)


@given(st.integers(0, 10**6))
@settings(max_examples=9, deadline=None)
def test_without_limits_it_is_the_optimum(seed):
    """Each layer keeps all of its few configurations, so the first elimination is exact."""
    problem = make_problem(DENSE, [3] * 8, seed=seed)
    assert found(problem).cost_s == eliminate(problem).cost_s


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("sums", [3000, 300, 30])
def test_windows_stay_between_the_bound_and_every_start(seed, sums, monkeypatch):
    """The smaller the limit, the smaller the window; no single change of the result is better."""
    problem = make_problem(DENSE, [5] * 8, seed=seed)
    with pytest.raises(GraphTooWideError):
        eliminate(problem, limit_sums=sums)
    monkeypatch.setattr(wide_search, "_LIMIT_SUMS", sums)
    monkeypatch.setattr(wide_search, "_WORTHWHILE", 0.0)
    start = (0, 1, 2, 3, 4, 0, 1, 2)
    result = found(problem, [(start, strategy_cost(problem, start))])
    assert result.cost_s == strategy_cost(problem, result.choice)
    assert result.least_s <= eliminate(problem).cost_s <= result.cost_s <= strategy_cost(problem, start)
    for layer in range(8):
        for other in range(5):
            changed = (*result.choice[:layer], other, *result.choice[layer + 1 :])
            assert strategy_cost(problem, changed) >= result.cost_s


def test_a_network_is_planned_though_elimination_gives_up(monkeypatch):
    """The result is that of the exact search on a chain, where the promising configurations include the best.

    There the bound is that cost, too, so that no note says otherwise.
    """
    graph, cluster = load_model("alexnet", batch=128), load_cluster("p100-4x4:nodes=1")
    exact = search_layerwise(CostModel(graph, cluster))
    monkeypatch.setattr(layerwise, "eliminate", gives_up)
    wide = search_layerwise(CostModel(graph, cluster))
    assert exact.exact
    assert wide.exact
    assert wide.least_s == exact.cost_s == pytest.approx(wide.cost_s, rel=1e-12)
    plan = make_plan(graph, cluster, PlanRequest(model="alexnet", cluster="p100-4x4:nodes=1", batch=128))
    assert not any(NOTE in note for note in plan.notes)


def test_what_may_not_be_the_optimum_says_so(monkeypatch):
    """The few configurations that are kept do not hold the optimum: it lies between the bound and the cost."""
    graph, cluster = crossing_branches(), load_cluster("titanx-4")
    exact = search_layerwise(CostModel(graph, cluster))
    too_wide(monkeypatch)
    model = CostModel(graph, cluster)
    wide = search_layerwise(model)
    assert not wide.exact
    assert wide.least_s < exact.cost_s < wide.cost_s == pytest.approx(additive_s(model, wide.strategy), rel=1e-12)
    plan = make_plan(graph, cluster, PlanRequest(model="crossing", cluster="titanx-4", batch=8))
    (note,) = [note for note in plan.notes if NOTE in note]
    assert f"{wide.cost_s / MILLI:.4g} ms, and no strategy has one below {wide.least_s / MILLI:.4g} ms" in note


def test_a_refinement_of_it_starts_from_no_runners_up(monkeypatch):
    """They are those between the optimum and a limit above it, and the optimum is not known."""
    graph, cluster = crossing_branches(), load_cluster("titanx-4")
    too_wide(monkeypatch)
    monkeypatch.setattr(layerwise_choice, "near_best", None)
    searched, best, notes = layerwise_choice.refined(CostModel(graph, cluster), 20)
    assert not searched.exact
    assert best.simulated_plans <= 20
    assert sum(NOTE in note for note in notes) == 1
