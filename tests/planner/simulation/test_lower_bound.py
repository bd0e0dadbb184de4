"""Lower bounds: below every replay, and met where one thing is all there is."""

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from plans import cluster_of, program_of, questions

from planner.cost.cost_model import CostModel
from planner.layouts.configurations import Configuration
from planner.models.builder import ModelBuilder
from planner.models.registry import load_model
from planner.simulation.execution_models import build_program_graph
from planner.simulation.lower_bound import arithmetic_s, exceeds, gathering_path_s, iteration_bound
from planner.simulation.program_replay import replay
from planner.strategies.named_rules import NAMED
from planner.strategies.named_strategies import named_strategy


@settings(max_examples=9)
@given(questions(models=("lenet5", "alexnet", "conv1d", "cosmoflow")))
def test_no_replay_with_contention_is_shorter(question):
    model, strategy = question
    program = program_of(model, strategy)
    bound_s, reason = iteration_bound(program)

    simulated_s = replay(program).iteration_s * (1 + 1e-9)
    assert 0 < bound_s <= simulated_s
    assert 0 < gathering_path_s(program, build_program_graph(program).graph) <= simulated_s
    assert bound_s <= replay(program, overlap=False).iteration_s * (1 + 1e-9)
    assert reason.startswith(("work on ", "dependencies through "))


@settings(max_examples=8)
@given(questions(models=("lenet5", "alexnet", "conv1d")))
def test_arithmetic_bounds_the_replay(question):
    """What the choice of a plan skips strategies by."""
    model, strategy = question
    program = program_of(model, strategy)
    busy = np.bincount(program.device[program.is_compute], program.work_s[program.is_compute])

    assert arithmetic_s(model, strategy) == pytest.approx(busy.max())
    assert busy.max() <= replay(program).iteration_s * (1 + 1e-9)


@pytest.mark.parametrize("strategy", NAMED)
def test_bounds_of_the_named_strategies(strategy):
    model = CostModel(load_model("vgg11", batch=16), cluster_of("k80-16", 8))
    program = program_of(model, named_strategy(strategy, model.graph, 8))

    simulated_s = replay(program).iteration_s
    assert iteration_bound(program)[0] <= simulated_s * (1 + 1e-9)
    assert not exceeds(program, simulated_s * (1 + 1e-9))


def test_tasks_that_read_what_all_send_wait_for_the_busiest_link():
    """Under owt fully connected layers wait for all samples, which neither one path nor one resource shows."""
    graph = load_model("alexnet", batch=256)
    program = program_of(CostModel(graph, cluster_of("p100-4x4", 8)), named_strategy("owt", graph, 8))
    bound_s = gathering_path_s(program, build_program_graph(program).graph)

    assert iteration_bound(program)[0] * 1.1 < bound_s <= replay(program).iteration_s
    assert exceeds(program, bound_s * (1 - 1e-9))
    assert not exceeds(program, bound_s)


def test_one_device_meets_the_bound():
    model = CostModel(load_model("lenet5", batch=8), cluster_of("titanx-4", 1))
    program = program_of(model, named_strategy("data", model.graph, 1))
    bound_s, reason = iteration_bound(program)

    assert bound_s == pytest.approx(replay(program).iteration_s)
    assert gathering_path_s(program, build_program_graph(program).graph) == pytest.approx(bound_s)
    assert model.cluster.devices[0].name in reason


def test_a_chain_over_devices_is_bound_by_its_longest_path():
    """Layers on devices in turn; networkx finds the longest way from the first forward task to its update."""
    graph = load_model("lenet5", batch=8)
    cluster = cluster_of("titanx-4", 4)
    strategy = named_strategy("data", graph, 1)
    strategy = {name: Configuration(c.degrees, (i % 4,)) for i, (name, c) in enumerate(strategy.items())}
    program = program_of(CostModel(graph, cluster), strategy)
    alone_s = program.work_s.copy()
    for task in np.flatnonzero(program.peer >= 0).tolist():
        pair, size = (int(program.device[task]), int(program.peer[task])), float(program.size_bytes[task])
        alone_s[task] = cluster.latency_s(*pair, size) + size / cluster.bandwidth[list(cluster.route(*pair))].min()
    waiting = np.repeat(np.arange(program.size), np.diff(program.after_start))
    edges = [(before, task, alone_s[task]) for before, task in zip(program.after, waiting, strict=True)]
    ways = nx.DiGraph()
    ways.add_weighted_edges_from(edges)
    names = [program.name(task) for task in range(program.size)]
    first, last = names.index("conv1 forward [0]"), names.index("conv1 update [0]")
    between = (nx.descendants(ways, first) & nx.ancestors(ways, last)) | {first, last}
    longest_s = alone_s[first] + nx.dag_longest_path_length(ways.subgraph(between))

    assert iteration_bound(program) == (pytest.approx(longest_s), "dependencies through conv1")


def test_without_parameters_only_work_counts():
    net = ModelBuilder("idle", batch=4, image=(2, 8))
    net.pool("max", 2)
    net.loss("mean_squared_error")
    model = CostModel(net.build(), cluster_of("titanx-4", 2))
    program = program_of(model, named_strategy("data", model.graph, 2))
    bound_s, reason = iteration_bound(program)

    assert reason.startswith("work on")
    assert bound_s == pytest.approx(program.work_s[program.device == 0].sum())
