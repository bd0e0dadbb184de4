"""The time of a steady iteration alone is that of a whole replay, to the last bit."""

from dataclasses import replace

import pytest
from hypothesis import given, settings, strategies as st
from plans import cluster_of, program_of, questions

from hwprofiles.catalogue.cluster_catalogue import load_cluster
from planner.cost.conditions import Conditions
from planner.cost.cost_model import CostModel
from planner.cost.framework import framework_of
from planner.lowering.lower_strategy import lower
from planner.models.registry import load_model
from planner.parallel.configurations import Configuration
from planner.parallel.micro_batches import MicroBatching
from planner.parallel.strategies import named_strategy, spaces_of
from planner.simulation import ladder
from planner.simulation.ladder import steady_s
from planner.simulation.program_replay import replay

RUNGS = ({}, {"contention": False}, {"overlap": False}, {"overlap": False, "contention": False})


@settings(max_examples=40)
@given(questions(), st.sampled_from(RUNGS))
def test_any_strategy_takes_the_time_of_its_whole_replay(question, rung):
    program = program_of(*question)
    assert steady_s(program, **rung) == replay(program, **rung).iteration_s


@pytest.mark.parametrize("order", ["gpipe", "1f1b"])
def test_micro_batches_take_the_time_of_their_whole_replay(order):
    """Here the next iteration begins on the first devices while the last ones still work."""
    graph = load_model("alexnet", batch=8)
    first = len(graph.layers) // 2
    strategy = {
        layer.name: Configuration(dict.fromkeys(layer.parallel_dims, 1), (int(i >= first),))
        for i, layer in enumerate(graph.layers)
    }
    micro_batching = MicroBatching(parts=4, order=order, stages=(0, first))
    model = CostModel(graph, cluster_of("p100-4x4", 2))
    program = lower(model, spaces_of(graph, strategy, 2), micro_batching=micro_batching)
    assert steady_s(program) == replay(program).iteration_s


def test_all_conditions_take_the_time_of_a_whole_replay():
    """Frameworks, ranks that wait for the slowest, and messages that take arithmetic."""
    cluster = load_cluster("dgx-a100").take(4)
    conditions = Conditions.of(cluster)
    graph = load_model("alexnet", batch=8)
    model = CostModel(graph, cluster, conditions=replace(conditions, framework=framework_of("ddp")))
    program = program_of(model, named_strategy("data", graph, 4))
    assert steady_s(program) == replay(program).iteration_s


def test_it_replays_three_iterations_where_the_fourth_begins_behind_them(monkeypatch):
    """Else it would take longer than what it stands in for."""
    graph = load_model("alexnet", batch=8)
    program = program_of(CostModel(graph, cluster_of("titanx-4", 4)), named_strategy("data", graph, 4))
    monkeypatch.setattr(ladder, "replay", None)
    assert steady_s(program) == replay(program).iteration_s
