import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from search_cases import (
    all_costs,
    chain_edges,
    equal_residual_blocks,
    inception_edges,
    make_problem,
    random_problem,
    residual_edges,
)
from search_milp import milp_cost

from groundwork.errors import ConfigError, InfeasiblePlanError
from planner.elimination.depth_first_search import depth_first
from planner.elimination.eliminate_nodes import eliminate
from planner.elimination.search_problem import SearchProblem, TensorCost, restrict, strategy_cost

SEEDS = st.integers(0, 10**6)
K4 = [(0, [1, 2, 3]), (1, [2, 3]), (2, [3])]
TWO_TENSORS = [(0, [1, 2, 3]), (0, [1]), (1, [3]), (2, [3])]
"""Node 1 is joined with node 0 by a table of its own beside the shared one."""
DENSE = [(u, list(range(u + 1, 6))) for u in range(5)]


def apart(problem):
    """The same tables, but no two consumers ever ask for the same layout."""
    tensors = []
    for t in problem.tensors:
        layout = tuple(asked + 100 * place for place, asked in enumerate(t.layout))
        tensors.append(TensorCost(producer=t.producer, consumers=t.consumers, cost_s=t.cost_s, layout=layout))
    return SearchProblem(node_cost_s=problem.node_cost_s, tensors=tuple(tensors))


def check_exact(problem, solver=eliminate):
    """The solver finds the least cost, and says no exactly where it is infinite; returns all costs."""
    costs = all_costs(problem)
    best = min(costs.values())
    if best == math.inf:
        with pytest.raises(InfeasiblePlanError, match="least cost is inf"):
            solver(problem)
        return costs
    solution = solver(problem)
    assert solution.cost_s == pytest.approx(best, rel=1e-12, abs=1e-12)
    assert solution.cost_s == strategy_cost(problem, solution.choice)
    return costs


@given(seed=SEEDS)
@settings(max_examples=40, deadline=None)
def test_elimination_equals_brute_force(seed):
    """Any graph: several ends, parallel edges, shared layouts, forbidden pairs, cores that the rules leave."""
    check_exact(random_problem(seed))


@pytest.mark.parametrize(
    ("edges", "configurations"),
    [
        (K4, 5),
        (DENSE, 3),
        (residual_edges(2), 3),
        (inception_edges(1), 2),
        ([(0, [1, 2, 3])], 5),
        ([(0, [1, 1, 2])], 4),
        (TWO_TENSORS, 4),
    ],
    ids=["K4", "dense", "residual", "inception", "star", "two-slots", "two-tensors"],
)
def test_elimination_equals_brute_force_on_known_shapes(edges, configurations):
    """The shapes that the rules were made for, with and without forbidden pairs."""
    nodes = 1 + max(c for _, consumers in edges for c in consumers)
    for seed in range(8):
        check_exact(make_problem(edges, [configurations] * nodes, seed=seed, layouts=3, infinite=0.2 * (seed % 2)))


@pytest.mark.parametrize(
    ("edges", "configurations"),
    [(chain_edges(9), 8), (residual_edges(3), 4), (inception_edges(1), 4), (K4, 6)],
    ids=["chain", "residual", "inception", "K4"],
)
def test_elimination_equals_integer_program(edges, configurations):
    """The same least cost from HiGHS, which knows nothing of graphs."""
    nodes = 1 + max(c for _, consumers in edges for c in consumers)
    for seed in range(2):
        problem = make_problem(edges, [configurations] * nodes, seed=seed, layouts=4)
        assert eliminate(problem).cost_s == pytest.approx(milp_cost(problem), rel=1e-6)


@given(seed=SEEDS, prune=st.booleans())
@settings(max_examples=25, deadline=None)
def test_depth_first_equals_brute_force(seed, prune):
    """The baseline finds the same least cost, and the first strategy that has it."""
    problem = random_problem(seed)
    costs = check_exact(problem, lambda p: depth_first(p, prune=prune))
    if min(costs.values()) < math.inf:
        first = min(costs, key=lambda choice: (round(costs[choice], 9), choice))
        assert depth_first(problem, prune=prune).choice == first


def test_depth_first_visits_every_partial_strategy():
    """Without pruning: the sum over the layers of the number of prefixes."""
    problem = make_problem(chain_edges(5), [2, 3, 4, 5, 6])
    assert depth_first(problem).candidates == 2 + 6 + 24 + 120 + 720
    assert depth_first(problem, prune=True).candidates < 872


def test_depth_first_gives_up_at_the_limit():
    with pytest.raises(InfeasiblePlanError, match="gives up after 100 partial strategies"):
        depth_first(make_problem(chain_edges(4), [5] * 4), max_visits=100)


@pytest.mark.parametrize(
    ("edges", "width", "core_nodes"),
    [(chain_edges(8), 1, 1), (residual_edges(3), 2, 1), (inception_edges(2), 2, 1), (K4, 3, 4), (DENSE, 5, 6)],
    ids=["chain", "residual", "inception", "K4", "K6"],
)
@pytest.mark.parametrize("shared", [False, True])
def test_width(edges, width, core_nodes, shared):
    """Treewidth of the shape: 1 for chains, 2 for series-parallel graphs, n - 1 for complete ones."""
    nodes = 1 + max(c for _, consumers in edges for c in consumers)
    problem = make_problem(edges, [3] * nodes)
    solution = eliminate(problem if shared else apart(problem))
    assert (solution.width, solution.core_nodes) == (width, core_nodes)


def test_too_wide_a_graph_is_refused_with_the_size():
    """K4 with 40 configurations needs 3 x 40^3 numbers of 8 bytes."""
    problem = make_problem(K4, [40] * 4)
    assert eliminate(problem, limit_bytes=3 * 8 * 40**3).width == 3
    with pytest.raises(InfeasiblePlanError, match=r"table of 0\.0015 GB, above the limit of 0\.001 GB"):
        eliminate(problem, limit_bytes=1e6)


def test_sharing_pays_one_transfer():
    """Two consumers with the same layout pay 7 s once; with different layouts 7 s and 5 s."""
    table = np.array([[7.0, 5.0]])
    tensor = TensorCost(producer=0, consumers=(1, 2), cost_s=(table, table), layout=(np.arange(2), np.arange(2)))
    problem = SearchProblem(node_cost_s=(np.zeros(1), np.array([0.0, 4.0]), np.array([0.0, 4.0])), tensors=(tensor,))
    assert [strategy_cost(problem, choice) for choice in ((0, 0, 0), (0, 0, 1), (0, 1, 1))] == [7.0, 16.0, 13.0]
    assert eliminate(problem).choice == (0, 0, 0)


def test_a_shared_layout_does_not_allow_a_forbidden_pair():
    """Node 2 may not be served by configuration 0 of node 0, though node 1 asks for the same layout."""
    costs = np.array([[1.0], [3.0]]), np.array([[np.inf], [3.0]])
    tensor = TensorCost(producer=0, consumers=(1, 2), cost_s=costs, layout=(np.zeros(1, int), np.zeros(1, int)))
    problem = SearchProblem(node_cost_s=(np.zeros(2), np.zeros(1), np.zeros(1)), tensors=(tensor,))
    assert strategy_cost(problem, (0, 0, 0)) == np.inf
    assert (eliminate(problem).choice, eliminate(problem).cost_s) == ((1, 0, 0), 3.0)


def test_equal_blocks_are_solved_once():
    """Repeating a residual block with the same table objects adds no product, and changes no answer."""
    shared, copied = (eliminate(equal_residual_blocks(12, copy=copy)) for copy in (False, True))
    assert shared.choice == copied.choice
    assert shared.candidates == eliminate(equal_residual_blocks(1)).candidates == copied.candidates / 12
    check_exact(equal_residual_blocks(2, configurations=4))


@given(seed=SEEDS)
@settings(max_examples=15, deadline=None)
def test_the_answer_is_always_the_same(seed):
    """Ties included: entries are small integers, so there are many."""
    problem = random_problem(seed)
    if min(all_costs(problem).values()) < math.inf:
        assert eliminate(problem) == eliminate(random_problem(seed))


def test_ties_take_the_smallest_configurations():
    zero = SearchProblem(
        node_cost_s=(np.zeros(3),) * 7,
        tensors=tuple(
            TensorCost(
                producer=u, consumers=tuple(v), cost_s=(np.zeros((3, 3)),) * len(v), layout=(np.arange(3),) * len(v)
            )
            for u, v in residual_edges(2)
        ),
    )
    assert eliminate(zero).choice == (0,) * 7


@given(seed=SEEDS)
@settings(max_examples=25, deadline=None)
def test_restrict_keeps_the_prices(seed):
    """Every strategy that is left costs what it cost, and equal objects stay equal objects."""
    problem = random_problem(seed)
    rng = np.random.default_rng(seed)
    keep = [rng.random(count) < 0.6 for count in problem.counts]
    for mask in keep:
        mask[rng.integers(len(mask))] = True
    smaller = restrict(problem, keep)
    for choice in itertools.product(*map(range, smaller.counts)):
        original = [np.flatnonzero(mask)[c] for mask, c in zip(keep, choice, strict=True)]
        assert strategy_cost(smaller, choice) == strategy_cost(problem, original)


def test_restrict_keeps_shared_tables_shared():
    table = np.ones((4, 4))
    tensors = tuple(
        TensorCost(producer=u, consumers=(u + 1,), cost_s=(table,), layout=(np.arange(4),)) for u in range(3)
    )
    smaller = restrict(SearchProblem(node_cost_s=(np.ones(4),) * 4, tensors=tensors), [np.arange(4) < 2] * 4)
    assert smaller.tensors[0].cost_s[0] is smaller.tensors[2].cost_s[0]
    assert smaller.tensors[0].cost_s[0].shape == (2, 2)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"cost_s": (np.zeros((2, 2)),)}, r"needs cost_s \(2, 3\), layout \(3,\); got \(2, 2\)"),
        ({"cost_s": (np.full((2, 3), np.nan),)}, "cost_s must be >= 0 s and not NaN"),
        ({"cost_s": (np.full((2, 3), -1.0),)}, "cost_s must be >= 0 s and not NaN"),
        ({"producer": 1}, "producer < consumer < 2"),
    ],
)
def test_bad_tensors_are_refused(change, message):
    good = {"producer": 0, "consumers": (1,), "cost_s": (np.zeros((2, 3)),), "layout": (np.arange(3),)}
    with pytest.raises(ConfigError, match=message):
        SearchProblem(node_cost_s=(np.zeros(2), np.zeros(3)), tensors=(TensorCost(**good | change),))


@pytest.mark.parametrize("cost", [np.zeros(0), np.array([np.nan]), np.array([-1.0]), np.zeros((1, 1))])
def test_bad_node_costs_are_refused(cost):
    with pytest.raises(ConfigError, match=r"node_cost_s\[0\] must be 1-D, not empty, >= 0 s and not NaN"):
        SearchProblem(node_cost_s=(cost,), tensors=())
