"""Tables of configurations on meshes, with splits of sums and repeated layers, against replays and regions."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from mesh_cases import mesh_questions, spaces_on, strategy_of
from plans import residual_block, star

from planner.cost.cost_model import CostModel
from planner.elimination.search_problem import strategy_cost
from planner.graph.shapes import SUMMED
from planner.layouts.configurations import space_of
from planner.models.registry import load_model
from planner.search.search_tables import mesh_problem
from planner.simulation.additive_cost import additive_s
from planner.strategies.named_strategies import named_strategy


@settings(max_examples=10, deadline=None)
@given(mesh_questions())
def test_tables_are_the_additive_replay(question):
    """Eq. 1 of random strategies that split sums, repeat layers and share tensors: the program's phases in turn."""
    model, count, rng = question
    spaces = spaces_on(model.graph, count)
    problem = mesh_problem(model, spaces)
    for _ in range(4):
        # the last configuration of each layer repeats it on all devices
        choice = [space.size - 1 if rng.random() < 0.3 else int(rng.integers(space.size)) for space in spaces]
        replayed_s = additive_s(model, strategy_of(model.graph, spaces, choice))
        assert strategy_cost(problem, choice) == pytest.approx(replayed_s, rel=1e-9)


def test_tables_of_layers_whose_axes_have_different_orders():
    """Positions are split by ``context`` and within its parts by ``tensor``, heads the other way round."""
    model = CostModel(load_model("gpt2:layers=1,hidden=64,words=64,heads=4", batch=2), star(4))
    strategy = named_strategy("context=2,tensor=2,sequence,ulysses", model.graph, 4)
    assert len({each.mesh for each in strategy.values()}) == 2
    problem = mesh_problem(model, model.spaces_of(strategy))
    additive = additive_s(model, strategy)
    assert strategy_cost(problem, [0] * len(model.graph.layers)) == pytest.approx(additive, rel=1e-9)


def test_tables_of_borrowed_parameters():
    """However the layers that train and borrow a table of words are split, or repeated: who makes equal gradients."""
    model = CostModel(load_model("gpt2:layers=1,hidden=64,words=64", batch=2), star(2))
    spaces = spaces_on(model.graph, 2)
    problem, (way, *_) = mesh_problem(model, spaces), model.graph.shared
    for u, v in itertools.product(range(spaces[way.producer].size), range(spaces[way.consumer].size)):
        choice = [{way.producer: u, way.consumer: v}.get(i, 0) for i in range(len(spaces))]
        replayed_s = additive_s(model, strategy_of(model.graph, spaces, choice))
        assert strategy_cost(problem, choice) == pytest.approx(replayed_s, rel=1e-9)


def test_a_space_is_that_of_its_configurations():
    """Degrees, sums and repeats of each are those of the space that holds it alone."""
    graph = residual_block()
    for layer, space in zip(graph.layers, spaces_on(graph, 4), strict=True):
        for c in range(space.size):
            alone, same = space_of(layer, space.configuration(c), 4), space.alone(c)
            for name in ("degrees", "device_start", "devices", "sums", "completed", "repeats", "on_meshes"):
                assert np.array_equal(getattr(alone, name), getattr(same, name))


def test_axes_split_what_is_summed_over_or_nothing():
    """Two axes of a convolution with four dimensions and a sum, or none: 21 choices, in the order of parts."""
    graph = residual_block()
    space = spaces_on(graph, 4)[graph.index["first"]]
    assert space.size == 21
    splits = {space.configuration(c).splits for c in range(space.size)}
    assert {(SUMMED, SUMMED), ("sample", None), (None, None), ("channel", SUMMED)} <= splits
    assert (None, "sample") not in splits


def test_equal_pairs_of_layouts_are_priced_once():
    """The table of an edge has a row for each layout that is made, and a column for each that is read."""
    graph = residual_block()
    model, spaces = CostModel(graph, star(4)), spaces_on(graph, 4)
    edge = graph.producers[graph.index["first"]][0]
    ends = edge, spaces[edge.producer], spaces[edge.consumer]
    table = model.transfer_times.layout_table(*ends, backward=False)
    priced = model.transfer_times.pairs_priced
    assert priced < spaces[edge.producer].size * spaces[edge.consumer].size
    assert priced % len(set(table.layout.tolist())) == 0
    assert model.transfer_times.layout_table(*ends, backward=False) is table
    assert model.transfer_times.pairs_priced == priced
