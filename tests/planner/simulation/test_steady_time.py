"""The time of a steady iteration alone is that of a whole replay, to the last bit."""

from dataclasses import replace

import pytest
from hypothesis import given, settings, strategies as st
from plans import cluster_of, program_of, questions

from hwprofiles.catalogue.cluster_catalogue import load_cluster
from planner.cost.conditions import Conditions
from planner.cost.cost_model import CostModel
from planner.cost.framework import framework_of
from planner.layouts.configurations import Configuration
from planner.lowering.lower_strategy import lower
from planner.models.registry import load_model
from planner.parallel.micro_batches import MicroBatching
from planner.parallel.strategies import named_strategy, spaces_of
from planner.simulation import ladder
from planner.simulation.ladder import steady_s
from planner.simulation.program_replay import replay, replayed_graph
from simulator.engines.engine import simulate

RUNGS = ({}, {"contention": False}, {"overlap": False}, {"overlap": False, "contention": False})


@settings(max_examples=40)
@given(questions(), st.sampled_from(RUNGS))
def test_any_strategy_takes_the_time_of_its_whole_replay(question, rung):
    program = program_of(*question)
    assert steady_s(program, **rung) == replay(program, **rung).iteration_s


def test_rungs_are_the_program_under_fewer_conditions():
    """Contention is without interference and spread, whatever the program's conditions are; each rung adds one."""
    graph, cluster = load_model("alexnet", batch=256), load_cluster("dgx1-p100")
    model = CostModel(graph, cluster, "library", conditions=Conditions.of(cluster))
    program = lower(model, spaces_of(graph, named_strategy("data", graph, 8), 8))
    assert (program.conditions.interference, program.conditions.spread) == (True, True)
    under = [
        replace(program, conditions=replace(program.conditions, interference=interference, spread=spread))
        for interference, spread in ((False, False), (True, False), (True, True))
    ]
    times = dict(
        zip(("contention", "interference", "spread"), (replay(each).iteration_s for each in under), strict=True)
    )
    assert ladder.ladder_s(program, 1.0) == {"additive": 1.0, "overlap": steady_s(program, contention=False)} | times
    assert len(set(times.values())) == 3


@pytest.fixture
def simulated(monkeypatch):
    """Numbers of tasks of the graphs that ``steady_s`` simulates."""
    sizes = []

    def counted(graph, **options):
        sizes.append(graph.size)
        return simulate(graph, **options)

    monkeypatch.setattr(ladder, "simulate", counted)
    return sizes


def split_program(parts, order, starts):
    """AlexNet on a device for each stage, or on two by data parallelism where there are none."""
    graph = load_model("alexnet", batch=8)
    model, strategy = CostModel(graph, cluster_of("p100-4x4", 2)), named_strategy("data", graph, 2)
    if len(starts) > 1:
        strategy = {
            layer.name: Configuration(dict.fromkeys(layer.parallel_dims, 1), (int(i >= starts[1]),))
            for i, layer in enumerate(graph.layers)
        }
    stages = starts if len(starts) > 1 else ()
    micro_batching = MicroBatching(parts=parts, order=order, first=starts[0], stages=stages)
    return lower(model, spaces_of(graph, strategy, 2), micro_batching=micro_batching)


@pytest.mark.parametrize(("order", "starts"), [("gpipe", (0, 6)), ("1f1b", (0, 6)), ("each", (0,)), ("all", (0,))])
def test_micro_batches_take_the_time_of_their_whole_replay(order, starts, simulated):
    """Here the next iteration begins while this one still works, so all is simulated, and only once."""
    program = split_program(4, order, starts)
    assert steady_s(program) == replay(program).iteration_s
    assert simulated == [4 * program.size]


def test_micro_batches_of_the_last_layers_leave_out_what_does_not_count(simulated):
    program = split_program(4, "each", (8,))
    assert steady_s(program) == replay(program).iteration_s
    assert len(simulated) == 1
    assert simulated[0] < 3.2 * program.size


def test_where_more_than_the_first_tasks_count_the_graph_is_simulated_whole(simulated, monkeypatch):
    """It is built only once; the time is that of the whole replay."""
    program, built = split_program(4, "1f1b", (0, 6)), []

    def counted(*arguments, **options):
        built.append(1)
        return replayed_graph(*arguments, **options)

    monkeypatch.setattr(ladder, "replayed_graph", counted)
    monkeypatch.setattr(MicroBatching, "of", lambda self, layer: 1)
    assert steady_s(program) == replay(program).iteration_s
    assert built == [1]
    assert len(simulated) == 2


def test_all_conditions_take_the_time_of_a_whole_replay():
    """Frameworks, ranks that wait for the slowest, and messages that take arithmetic."""
    cluster = load_cluster("dgx-a100").take(4)
    conditions = Conditions.of(cluster)
    graph = load_model("alexnet", batch=8)
    model = CostModel(graph, cluster, conditions=replace(conditions, framework=framework_of("ddp")))
    program = program_of(model, named_strategy("data", graph, 4))
    assert steady_s(program) == replay(program).iteration_s


def test_it_replays_three_iterations_where_the_fourth_begins_behind_them(simulated):
    """Else it would take longer than what it stands in for."""
    graph = load_model("alexnet", batch=8)
    program = program_of(CostModel(graph, cluster_of("titanx-4", 4)), named_strategy("data", graph, 4))
    assert steady_s(program) == replay(program).iteration_s
    assert len(simulated) == 1
    assert simulated[0] < 3.2 * program.size
