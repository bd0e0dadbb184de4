import math

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from pruned_elimination import eliminate_pruned, forest_choice, prune, tree_bounds
from search_cases import all_costs, chain_edges, equal_residual_blocks, make_problem, random_problem

from groundwork.errors import InfeasiblePlanError
from planner.elimination.bounds import edge_bounds, relax
from planner.elimination.eliminate_nodes import eliminate
from planner.elimination.search_problem import restrict, strategy_cost

SEEDS = st.integers(0, 10**6)


def min_marginals(problem):
    """Least cost of a strategy that uses a configuration; that uses a pair: by trying all strategies."""
    nodes = [np.full(count, np.inf) for count in problem.counts]
    pairs = [[np.full(cost.shape, np.inf) for cost in tensor.cost_s] for tensor in problem.tensors]
    for choice, cost in all_costs(problem).items():
        for node, c in enumerate(choice):
            nodes[node][c] = min(nodes[node][c], cost)
        for tensor, tables in zip(problem.tensors, pairs, strict=True):
            for consumer, table in zip(tensor.consumers, tables, strict=True):
                at = choice[tensor.producer], choice[consumer]
                table[at] = min(table[at], cost)
    return nodes, pairs


@given(seed=SEEDS)
@settings(max_examples=25, deadline=None)
def test_bounds_never_exceed_the_min_marginals(seed):
    """No strategy with a configuration, or a pair, is cheaper than its bound."""
    problem = random_problem(seed)
    nodes, pairs = min_marginals(problem)
    relaxation = relax(problem)
    for bound, least in zip(tree_bounds(problem), nodes, strict=True):
        assert np.all(bound <= least * (1 + 1e-12) + 1e-9)
    for bounds, tables in zip(edge_bounds(problem, relaxation), pairs, strict=True):
        for bound, least in zip(bounds, tables, strict=True):
            assert np.all(bound <= least * (1 + 1e-12) + 1e-9)


@pytest.mark.parametrize("edges", [chain_edges(5), [(0, [2]), (1, [2]), (2, [4]), (3, [4])], [(0, [1]), (2, [3])]])
def test_bounds_are_exact_on_forests(edges):
    """Where every tensor has one consumer nothing is relaxed."""
    nodes = 1 + max(c for _, consumers in edges for c in consumers)
    problem = make_problem(edges, [4] * nodes, seed=5, infinite=0.1)
    exact, pairs = min_marginals(problem)
    for bound, least in zip(tree_bounds(problem), exact, strict=True):
        np.testing.assert_allclose(bound, least)
    for bounds, tables in zip(edge_bounds(problem, relax(problem)), pairs, strict=True):
        np.testing.assert_allclose(bounds[0], tables[0])


@given(seed=SEEDS, slack=st.sampled_from([1.0, 1.1, 1.5]))
@settings(max_examples=40, deadline=None)
def test_pruning_keeps_every_strategy_within_the_bound(seed, slack):
    """So it never removes the optimum; what is left has the same least cost."""
    problem = random_problem(seed)
    costs = all_costs(problem)
    best = min(costs.values())
    if best == math.inf:
        return
    keep = prune(problem, slack * best)
    for choice, cost in costs.items():
        if cost <= slack * best:
            assert all(mask[c] for mask, c in zip(keep, choice, strict=True))
    found = eliminate(restrict(problem, keep))
    assert found.cost_s == pytest.approx(best)
    assert (
        strategy_cost(problem, [np.flatnonzero(m)[c] for m, c in zip(keep, found.choice, strict=True)]) == found.cost_s
    )


def test_pruning_removes_what_cannot_win():
    """A configuration that alone costs more than the known strategy goes."""
    problem = make_problem(chain_edges(3), [4, 4, 4])
    dear = problem.node_cost_s[1].copy()
    dear[2] = 1e6
    changed = type(problem)(node_cost_s=(problem.node_cost_s[0], dear, problem.node_cost_s[2]), tensors=problem.tensors)
    keep = prune(changed, eliminate(changed).cost_s)
    assert not keep[1][2]
    assert all(mask.any() for mask in keep)


@given(seed=SEEDS)
@settings(max_examples=25, deadline=None)
def test_pruned_elimination_equals_brute_force(seed):
    problem = random_problem(seed)
    best = min(all_costs(problem).values())
    if best == math.inf:
        with pytest.raises(InfeasiblePlanError, match="least cost is inf"):
            eliminate_pruned(problem)
        return
    for known in (math.inf, best):
        found = eliminate_pruned(problem, upper_bound_s=known)
        assert found.cost_s == pytest.approx(best)
        assert strategy_cost(problem, found.choice) == found.cost_s


def test_the_forest_choice_is_best_on_a_chain():
    """Nothing is relaxed there, so it meets the bound."""
    problem = make_problem(chain_edges(5), [4] * 5, seed=2)
    choice = forest_choice(problem, relax(problem))
    assert strategy_cost(problem, choice) == pytest.approx(eliminate(problem).cost_s)


def test_pruning_keeps_equal_layers_equal():
    """Equal residual blocks are still solved once after pruning."""
    blocks = [equal_residual_blocks(count) for count in (4, 8)]
    small, large = (eliminate_pruned(problem).candidates for problem in blocks)
    assert large <= eliminate(blocks[1]).candidates
    assert small > 0
