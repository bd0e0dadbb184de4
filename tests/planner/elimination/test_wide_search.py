"""Graphs that are too wide for elimination: the result is a strategy, near the optimum, and the bound holds."""

import pytest
from hypothesis import given, settings, strategies as st
from search_cases import make_problem

from hwprofiles.catalogue import load_cluster
from planner.cost import CostModel
from planner.elimination import GraphTooWideError, eliminate, restrict, search_wide, strategy_cost, wide_search
from planner.models import load_model
from planner.plan import PlanRequest, make_plan
from planner.search import layerwise, search_layerwise

DENSE = [(u, list(range(u + 1, 8))) for u in range(7)]
"""Every node joined with every other one: width 7."""


def found(problem, starts=()):
    return search_wide(problem, lambda keep: restrict(problem, keep), starts)


@given(st.integers(0, 10**6))
@settings(max_examples=15, deadline=None)
def test_without_limits_it_is_the_optimum(seed):
    """Each layer keeps all of its few configurations, so the first elimination is exact."""
    problem = make_problem(DENSE, [3] * 8, seed=seed)
    assert found(problem).cost_s == eliminate(problem).cost_s


@pytest.mark.parametrize("seed", range(5))
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
    """The result is that of the exact search on a chain, where the promising configurations include the best."""
    graph, cluster = load_model("alexnet", batch=128), load_cluster("p100-4x4:nodes=1")
    exact = search_layerwise(CostModel(graph, cluster))

    def gives_up(problem, **limits):
        raise GraphTooWideError("too wide")

    monkeypatch.setattr(layerwise, "eliminate", gives_up)
    wide = search_layerwise(CostModel(graph, cluster))
    assert exact.exact
    assert wide.least_s <= exact.cost_s == pytest.approx(wide.cost_s, rel=1e-12)
    plan = make_plan(graph, cluster, PlanRequest(model="alexnet", cluster="p100-4x4:nodes=1", batch=128))
    assert wide.exact or any("an exact search would take too long" in note for note in plan.notes)
