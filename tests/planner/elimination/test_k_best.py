"""The k best strategies: what trying all of them gives, in order, each once."""

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from search_cases import all_costs, chain_edges, inception_edges, make_problem, random_problem

from groundwork.errors import ConfigError, InfeasiblePlanError
from planner.elimination.best_strategies import k_best
from planner.elimination.eliminate_nodes import eliminate
from planner.elimination.search_problem import SearchProblem, strategy_cost


@given(seed=st.integers(0, 2**32), count=st.integers(1, 12))
@settings(deadline=None, max_examples=25)
def test_costs_are_the_first_of_all_costs(seed, count):
    """Graphs of every kind, shared layouts, ties and forbidden pairs: brute force finds no other costs."""
    problem = random_problem(seed)
    finite = sorted(cost for cost in all_costs(problem).values() if cost < np.inf)

    if not finite:
        with pytest.raises(InfeasiblePlanError, match="forbidden"):
            k_best(problem, count)
        return
    ranked = k_best(problem, count)

    assert [row.cost_s for row in ranked] == pytest.approx(finite[:count])
    assert len({row.choice for row in ranked}) == len(ranked)
    assert all(row.cost_s == strategy_cost(problem, row.choice) for row in ranked)


def test_every_strategy_is_listed_once_when_all_are_wanted():
    """Asked for more than there are, the answer is the whole space."""
    problem = make_problem([(0, [1, 2]), (1, [3]), (2, [3])], [2, 3, 2, 2], seed=4)

    ranked = k_best(problem, 1000)

    assert {row.choice: row.cost_s for row in ranked} == pytest.approx(all_costs(problem))


@pytest.mark.parametrize("edges", [chain_edges(12), inception_edges(2)], ids=["chain", "inception"])
def test_the_first_is_the_optimum_and_the_order_repeats(edges):
    """On graphs too large to try everything the list begins with the optimum, rises, and comes out twice."""
    nodes = max(max(readers) for _, readers in edges) + 1
    problem = make_problem(edges, [6] * nodes, seed=2, layouts=4)

    ranked = k_best(problem, 10)

    costs = [row.cost_s for row in ranked]
    assert costs[0] == eliminate(problem).cost_s
    assert costs == sorted(costs)
    assert ranked == k_best(problem, 10)


def test_one_node_without_edges():
    """Configurations of a single layer, by cost."""
    problem = SearchProblem(node_cost_s=(np.array([3.0, 1.0, np.inf, 2.0]),), tensors=())

    assert [row.choice for row in k_best(problem, 9)] == [(1,), (3,), (0,)]


def test_a_count_of_zero_is_refused():
    """There is always a best strategy to ask for."""
    with pytest.raises(ConfigError, match="count must be >= 1, got 0"):
        k_best(random_problem(0), 0)
