"""Streams on many devices: priorities of exchanges, places of weight gradients, and a choice that never loses."""

from itertools import product

import numpy as np
import pytest
from plans import cluster_of

from groundwork.errors import ConfigError
from planner.cost.cost_model import CostModel
from planner.lowering.lower_strategy import lower
from planner.lowering.program import KINDS
from planner.models.builder import ModelBuilder
from planner.models.registry import load_model
from planner.strategies.named_strategies import named_strategy, spaces_of
from studies.streams.decomposition import decompose
from studies.streams.many_devices import PLACES, SHARING_ORDERS, arrange, arranged
from studies.streams.stream_plan import replay_streams
from studies.streams.stream_schedules import schedule


def work_of(graph, count):
    model = CostModel(graph, cluster_of("p100-4x4", count))
    return decompose(lower(model, spaces_of(graph, named_strategy("data", graph, count), count)), model), model


@pytest.mark.parametrize(("model", "batch"), [("alexnet", 512), ("resnet18", 256)])
def test_the_choice_on_16_p100_gains_and_never_loses(model, batch):
    found = arrange(load_model(model, batch=batch), cluster_of("p100-4x4", 16), tries=4)
    fastest = min(row.iteration_s for row in found.results)
    assert found.chosen.iteration_s == fastest
    assert found.gain(found.chosen) > 1.03
    assert found.results[0].name == "one stream"


def test_exchanges_of_the_first_layers_go_first():
    """By reuse distance in the task graph; arithmetic is not touched by it."""
    graph = load_model("lenet5", batch=64)
    work, model = work_of(graph, 4)
    program = work.program
    plan = schedule(work, "asynchronous", model.profiles[0].launch)
    trained = {layer.name: "delayed" for layer in graph.layers if layer.parameter_count}
    reuse, ready = (arranged(program, plan, trained, order) for order in ("reuse", "ready"))
    sums = np.flatnonzero(program.kind == KINDS.index("collective"))
    by_layer = [set(reuse.priority[sums[program.layer[sums] == i]].tolist()) for i in np.unique(program.layer[sums])]
    assert all(len(found) == 1 for found in by_layer)
    values = [found.pop() for found in by_layer]
    assert values == sorted(values, reverse=True)
    assert len(set(values)) == len(values)
    assert set(ready.priority[sums].tolist()) == {0}
    assert np.array_equal(reuse.priority[program.is_compute], ready.priority[program.is_compute])
    weights = program.kind == KINDS.index("weight_gradient")
    back = program.kind == KINDS.index("activation_gradient")
    assert reuse.priority[weights].max() < reuse.priority[back].min()


def test_hurried_gradients_are_waited_for_by_the_layer_before():
    graph = load_model("lenet5", batch=64)
    work, model = work_of(graph, 4)
    program, plan = work.program, schedule(work, "asynchronous", model.profiles[0].launch)
    advanced = arranged(program, plan, {"fc1": "advanced"}, "ready")
    found = replay_streams(work, advanced)
    end_s, ready_s = (times[found.program_graph.task_of[1]] for times in (found.schedule.end_s, found.schedule.ready_s))
    kinds, names = np.array(KINDS)[program.kind], [graph.layers[i].name for i in program.layer]
    for device in range(4):
        mine = program.device == device
        weight = np.flatnonzero(mine & (kinds == "weight_gradient") & (np.array(names) == "fc1"))
        before = np.flatnonzero(mine & (kinds == "activation_gradient") & (np.array(names) == "pool2"))
        assert ready_s[before[0]] >= end_s[weight[0]]


def test_the_choice_is_near_that_of_every_combination():
    """Three trained layers on two devices: 27 combinations, twice."""
    net = ModelBuilder("three", batch=16, image=(8, 16, 16))
    net.conv(32, 3, pad=1)
    net.conv(64, 3, pad=1)
    net.linear(64)
    net.loss()
    graph = net.build()
    work, model = work_of(graph, 2)
    plan = schedule(work, "asynchronous", model.profiles[0].launch)
    trained = [layer.name for layer in graph.layers if layer.parameter_count]
    times = [
        replay_streams(work, arranged(work.program, plan, dict(zip(trained, places, strict=True)), order)).iteration_s
        for places in product(PLACES, repeat=len(trained))
        for order in SHARING_ORDERS
    ]
    found = arrange(graph, cluster_of("p100-4x4", 2))
    assert min(times) * (1 - 1e-9) <= found.chosen.iteration_s <= min(times) * 1.02


def test_bad_input_is_refused():
    graph = load_model("lenet5", batch=64)
    with pytest.raises(ConfigError, match="tries must be >= 0, got -1"):
        arrange(graph, cluster_of("p100-4x4", 2), tries=-1)
    with pytest.raises(ConfigError, match="'v100-16gb' must have a section 'launch'"):
        arrange(graph, cluster_of("abci-v100", 2))
    work, model = work_of(graph, 2)
    plan = schedule(work, "asynchronous", model.profiles[0].launch)
    with pytest.raises(ConfigError, match="place of a weight gradient must be one of delayed, even, advanced, got 'x'"):
        arranged(work.program, plan, {"fc1": "x"}, "ready")
    with pytest.raises(ConfigError, match="order of gradient synchronisation must be one of ready, reuse, got 'x'"):
        arranged(work.program, plan, {}, "x")
