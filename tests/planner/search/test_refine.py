"""Refinement: certificates, determinism, and never worse than what it starts from."""

import itertools
import re

import numpy as np
import pytest
from hypothesis import given, settings
from plans import cluster_of, inception_module, program_of, questions, random_strategy, residual_block

from groundwork.errors import ConfigError, InfeasiblePlanError
from hwprofiles.catalogue.cluster_catalogue import load_cluster
from planner.cost.cost_model import CostModel
from planner.cost.link_loads import LinkLoads
from planner.elimination.best_strategies import k_best
from planner.layouts.configurations import Configuration
from planner.models.builder import ModelBuilder
from planner.models.registry import load_model
from planner.plan.compare_strategies import compare
from planner.plan.layerwise_choice import layerwise, refined
from planner.plan.make_plan import make_plan
from planner.search.layerwise import search_layerwise
from planner.search.near_best_strategies import near_best
from planner.search.neighbours import Neighbours
from planner.search.refinement import refine
from planner.search.search_tables import search_problem
from planner.simulation.additive_cost import additive_s
from planner.simulation.execution_models import build_program_graph
from planner.simulation.lower_bound import iteration_bound
from planner.simulation.program_replay import replay
from planner.strategies.named_rules import NAMED
from planner.strategies.named_strategies import named_strategy


@given(question=questions())
@settings(deadline=None, max_examples=10)
def test_loads_are_those_of_the_lowered_program(question):
    """Term by term, without lowering: every resource's work in the program's task graph, and Eq. 1."""
    model, strategy = question

    total = LinkLoads(model).total(Neighbours(model).spaces(strategy))

    graph = build_program_graph(program_of(model, strategy)).graph
    owner = np.repeat(np.arange(graph.size), np.diff(graph.use_start))
    work_s = graph.use_weight * graph.work[owner] / graph.capacity[graph.use_resource]
    assert total[:-1] == pytest.approx(
        np.bincount(graph.use_resource, work_s, minlength=len(total) - 1), rel=1e-14, abs=1e-15
    )
    assert total[-1] == pytest.approx(additive_s(model, strategy))


@given(question=questions())
@settings(deadline=None, max_examples=9)
def test_moves_lead_to_valid_strategies_and_back_again(question):
    """Every change is real, listed once, valid, and its terms give what a fresh sum gives."""
    model, strategy = question
    moves, loads = Neighbours(model), LinkLoads(model)
    spaces = moves.spaces(strategy)
    other = moves.spaces(random_strategy(model.graph, len(model.cluster.devices), np.random.default_rng(0)))

    changes = list(itertools.islice(moves.around(spaces, [other]), 400))

    assert moves.strategy(spaces) == dict(strategy)
    assert len({frozenset(change.items()) for change in changes}) == len(changes)
    for change in changes[::40]:
        moved = tuple(change.get(i, space) for i, space in enumerate(spaces))
        assert moved != spaces
        fresh = Neighbours(model).spaces(moves.strategy(moved))  # raises where a configuration does not fit its layer
        assert loads.total(moved) == pytest.approx(LinkLoads(model).total(fresh))


@pytest.mark.parametrize("build", [inception_module, residual_block])
def test_a_branch_moves_as_a_whole(build):
    """From data parallelism, one move takes each branch between fork and join to another strategy's split."""
    model = CostModel(build(), cluster_of("p100-4x4", 4))
    moves, graph = Neighbours(model), model.graph
    alone = {layer.name: Configuration(dict.fromkeys(layer.parallel_dims, 1), (0,)) for layer in graph.layers}
    spaces = moves.spaces({**named_strategy("data", graph, 4), graph.layers[0].name: alone[graph.layers[0].name]})

    changed = {frozenset(change) for change in moves.around(spaces)}

    stem = next(i for i, edges in enumerate(graph.consumers) if len(edges) > 1)
    readers = sorted({edge.consumer for edge in graph.consumers[stem]})
    assert all(frozenset(range(*pair)) in changed for pair in itertools.pairwise([stem + 1, *readers[1:]]))


@pytest.mark.parametrize(("name", "batch", "nodes"), [("alexnet", 64, 1)])
def test_near_best_are_the_best_of_full_tables(name, batch, nodes):
    """Priced only within a margin, the list equals that of the whole problem, solved without bounds."""
    model = CostModel(load_model(name, batch=batch), load_cluster(f"p100-4x4:nodes={nodes}"))

    expected = k_best(search_problem(model, model.all_configurations(), model.transfer_times.table), 6)

    near = near_best(model, search_layerwise(model).cost_s, 6)

    assert [additive_s(model, strategy) for strategy in near] == pytest.approx([row.cost_s for row in expected])
    assert len({tuple(c.devices + tuple(c.degrees.values()) for c in s.values()) for s in near}) == 6


def test_all_strategies_of_a_tiny_model_are_listed():
    """Where fewer exist than are wanted, all come back."""
    net = ModelBuilder("tiny", batch=1, image=(1, 1, 1))
    net.linear(2, name="fc")
    model = CostModel(net.build(), cluster_of("p100-4x4", 1))

    assert len(near_best(model, search_layerwise(model).cost_s, 5)) == 1


@pytest.mark.parametrize(("name", "batch"), [("lenet5", 64)])
def test_never_worse_than_what_it_starts_from(name, batch):
    """The refined plan is at most as long as each candidate under the same simulation, and carries its certificate."""
    model = CostModel(load_model(name, batch=batch), load_cluster("p100-4x4:nodes=2"))

    found, best, notes = refined(model, 12)

    starts = {"optimum": found.strategy, **{key: named_strategy(key, model.graph, 8) for key in NAMED}}
    times = {key: replay(program_of(model, strategy)).iteration_s for key, strategy in starts.items()}
    assert best.simulated_s <= min(times.values())
    assert best.simulated_s == replay(program_of(model, best.strategy)).iteration_s
    assert (best.lower_bound_s, best.bound_reason) == iteration_bound(best.program)
    assert best.lower_bound_s * (1 - 1e-9) <= best.simulated_s <= best.start_s
    assert best.gap == pytest.approx(best.simulated_s / best.lower_bound_s - 1)
    assert 1 <= best.simulated_plans <= 12
    assert any(best.origin in note for note in notes)


def test_moves_improve_a_plan_that_is_optimal_in_the_sum_only():
    """With overlap, the additive optimum of AlexNet on two nodes is not the best plan: moves find a shorter one."""
    model = CostModel(load_model("alexnet", batch=256), load_cluster("p100-4x4:nodes=2"))

    best = refine(model, {"optimum": search_layerwise(model).strategy}, plans=12)

    assert best.simulated_s < layerwise(model)[1].simulated_s
    assert re.fullmatch("optimum, (1 change|([2-9]|1[0-2]) changes)", best.origin)


def test_the_same_budget_gives_the_same_plan():
    """Two runs, with new caches and threads in another order, simulate the same plans."""
    graph, cluster = load_model("lenet5", batch=64), load_cluster("p100-4x4:nodes=1")
    data = named_strategy("data", graph, 4)

    first, second = (refine(CostModel(graph, cluster), {"data": data}, plans=6) for _ in range(2))

    assert first.strategy == second.strategy
    assert (first.simulated_s, first.simulated_plans, first.origin) == (
        second.simulated_s,
        second.simulated_plans,
        second.origin,
    )


def test_more_plans_are_never_worse():
    """A larger budget goes on where a smaller one stopped."""
    model = CostModel(load_model("lenet5", batch=64), load_cluster("p100-4x4:nodes=1"))
    starts = {"data": named_strategy("data", model.graph, 4)}

    times = [refine(model, starts, plans=plans).simulated_s for plans in (1, 3, 6)]

    assert times == sorted(times, reverse=True)
    assert times[0] == replay(program_of(model, starts["data"])).iteration_s


def test_a_start_that_does_not_fit_is_refused_and_named():
    """The whole of VGG-16 on one device is refused with the numbers; alone it leaves no plan."""
    graph = load_model("vgg16", batch=512)
    model = CostModel(graph, load_cluster("p100-4x4:nodes=1"))
    alone = {layer.name: Configuration(dict.fromkeys(layer.parallel_dims, 1), (0,)) for layer in graph.layers}

    with pytest.raises(InfeasiblePlanError, match="alone: plan does not fit on node0/gpu0"):
        refine(model, {"alone": alone}, plans=1)


@pytest.mark.parametrize(
    ("starts", "plans", "message"), [({}, 1, "starts must name"), ({"data": {}}, 0, "plans must be")]
)
def test_empty_questions_are_refused(starts, plans, message):
    """Something to start from, and something to simulate."""
    model = CostModel(load_model("lenet5", batch=8), cluster_of("p100-4x4", 2))

    with pytest.raises(ConfigError, match=message):
        refine(model, starts, plans=plans)


def test_a_made_plan_carries_its_certificate():
    """``make_plan`` with a budget fills the refinement's fields; without one it is what it was."""
    graph, cluster = load_model("lenet5", batch=64), load_cluster("p100-4x4:nodes=1")

    plan, plain = make_plan(graph, cluster, refine=3), make_plan(graph, cluster)

    assert plan.simulated_s <= plain.simulated_s
    assert plan.gap == pytest.approx(plan.simulated_s / plan.lower_bound_s - 1)
    assert plan.simulated_plans > plain.simulated_plans == 0
    with pytest.raises(
        ConfigError, match="refine must be >= 0, and 0 for strategies other than layerwise and hybrid, got 3 for data"
    ):
        make_plan(graph, cluster, strategy="data", refine=3)


def test_compare_shows_the_refined_plan():
    """Asked to refine, the comparison's layerwise is the refined plan."""
    graph, cluster = load_model("lenet5", batch=64), load_cluster("p100-4x4:nodes=1")

    comparison = compare(graph, cluster, ["data", "layerwise"], refine=3)

    expected = make_plan(graph, cluster, refine=3)
    assert {row.name: row.simulated_s for row in comparison.strategies}["layerwise"] == expected.simulated_s
    assert any(expected.origin in note for note in comparison.notes)
