"""One iteration stands for all where each begins when the one before has ended; replays of several say the same."""

from dataclasses import replace

import numpy as np
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
from planner.simulation.execution_models import ITERATIONS
from planner.simulation.ladder import ladder_s
from planner.simulation.memory_over_time import memory_curve
from planner.simulation.program_replay import replay
from planner.simulation.steady_path import program_path
from planner.strategies.micro_batches import MicroBatching
from planner.strategies.named_strategies import named_strategy, spaces_of

SAME = 1e-9

RUNGS = ({}, {"contention": False}, {"overlap": False}, {"overlap": False, "contention": False})


def check_against_several(program, **under):
    """A replay has the times, link use, memory and path of several iterations; returns how many iterations it has."""
    short, long = replay(program, **under), replay(program, iterations=ITERATIONS, **under)
    assert short.iteration_s == pytest.approx(long.iteration_s, rel=SAME)
    if len(short.ends_s) > 1:
        return len(short.ends_s)
    each_s = long.durations_s
    assert each_s == pytest.approx(np.full(ITERATIONS, short.iteration_s), rel=SAME)
    close = {"rtol": SAME, "atol": SAME * short.iteration_s}
    for name in ("ready_s", "start_s", "end_s"):
        column, rows = getattr(long.schedule, name), long.program_graph.task_of
        ours = getattr(short.schedule, name)[short.program_graph.task_of[0]]
        for begin_s, row in zip(long.ends_s - each_s, rows, strict=True):
            np.testing.assert_allclose(column[row] - begin_s, ours, **close)
    for name in ("compute_s", "exposed_communication_s", "idle_s"):
        assert getattr(short.shares(), name) == pytest.approx(
            getattr(long.shares(), name), **{"rel": SAME, "abs": close["atol"]}
        )
    np.testing.assert_allclose(memory_curve(short).peak_bytes, memory_curve(long).peak_bytes, rtol=SAME)
    if under.get("contention", True):
        ours, theirs = short.link_use(), long.link_use()
        np.testing.assert_array_equal(ours.moved_bytes, theirs.moved_bytes)
        np.testing.assert_allclose(ours.share, theirs.share, rtol=0, atol=1e-6)
    ours, theirs = program_path(short), program_path(long)
    for key in ("kind", "layer"):
        steps = theirs.seconds_by(key)
        assert sum(steps.values()) == pytest.approx(sum(ours.seconds_by(key).values()), rel=SAME)
    return 1


@settings(max_examples=12)
@given(questions(), st.sampled_from(RUNGS))
def test_any_strategy_takes_the_time_of_several_iterations(question, rung):
    check_against_several(program_of(*question), **rung)


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
    assert ladder_s(program, 1.0) == {
        "additive": 1.0,
        "overlap": replay(program, contention=False).iteration_s,
        **times,
    }
    assert len(set(times.values())) == 3


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


@pytest.mark.parametrize(
    ("order", "starts", "iterations"),
    [
        ("gpipe", (0, 6), 4),  # the second stage still updates its large layers when the first begins again
        ("1f1b", (0, 6), 4),
        ("zero-bubble", (0, 6), 4),
        ("each", (0,), 1),
        ("all", (0,), 1),
        ("each", (8,), 1),
    ],
)
def test_micro_batches_take_the_time_of_several_iterations(order, starts, iterations):
    assert check_against_several(split_program(4, order, starts)) == iterations


def test_all_conditions_take_the_time_of_several_iterations():
    """Frameworks, ranks that wait for the slowest, and messages that take arithmetic."""
    cluster = load_cluster("dgx-a100").take(4)
    conditions = Conditions.of(cluster)
    graph = load_model("alexnet", batch=8)
    model = CostModel(graph, cluster, conditions=replace(conditions, framework=framework_of("ddp")))
    assert check_against_several(program_of(model, named_strategy("data", graph, 4))) == 1
