"""Requests for plans: checked once, whoever makes them."""

import re
from dataclasses import fields, replace
from pathlib import Path
from typing import get_args

import numpy as np
import pytest
from plans import cluster_of

import orrery
from groundwork.errors import ConfigError
from planner.cost.all_reduce import GRADIENT_SYNCS
from planner.cost.sync_time import BATCH_NORMS
from planner.cost.update_traffic import OPTIMIZERS
from planner.memory.peak_memory import peak_memory_bytes
from planner.models.registry import load_model
from planner.plan.lowered_plan import lower_plan
from planner.plan.make_plan import make_plan
from planner.plan.plan_file import load_plan, save_plan
from planner.plan.plan_request import PlanRequest
from planner.search.gradient_order import GRADIENT_SYNC_ORDERS
from planner.simulation.memory_over_time import memory_curve
from planner.simulation.program_replay import replay
from planner.strategies.micro_batches import ORDERS


def request(**changes):
    return PlanRequest(**{"model": "lenet5", "cluster": "titanx-4", "batch": 8, **changes})


def test_choices_are_those_of_the_planner():
    """The types of the fields repeat them, so that --help reads them without loading the planner."""
    types = {field.name: field.type for field in fields(PlanRequest)}
    assert get_args(get_args(types["gradient_sync"])[0]) == GRADIENT_SYNCS
    assert get_args(types["gradient_sync_order"]) == GRADIENT_SYNC_ORDERS
    assert get_args(types["batch_norm"]) == BATCH_NORMS
    assert get_args(types["sub_batch_order"]) == ORDERS
    assert get_args(types["optimizer"]) == tuple(OPTIMIZERS)


SEARCH = {"strategy": "layerwise"}
REFUSED = {
    "unknown algorithm": ({"gradient_sync": "rings"}, "gradient_sync must be one of ring, .*, got 'rings'"),
    "unknown order": (
        {"gradient_sync_order": "last"},
        "gradient_sync_order must be one of end, ready, reuse, got 'last'",
    ),
    "unknown statistics": ({"batch_norm": "all"}, "batch_norm must be local or reduced, got 'all'"),
    "unknown type": ({"dtype": "int8"}, "dtype must be one of float32, float64, tf32, .*, got 'int8'"),
    "unknown optimizer": ({"optimizer": "lion"}, "optimizer must be one of sgd, momentum, adam, got 'lion'"),
    "negative refinement": ({"refine": -1}, "refine must be >= 0, .* got -1 for layerwise"),
    "refinement of a rule": ({"refine": 2, "strategy": "data"}, "refine must be .* got 2 for data"),
    "micro-batches of a search": ({**SEARCH, "sub_batches": 2}, "sub_batches must be 1 for layerwise, whose search"),
    "micro-batches twice": (
        {"sub_batches": 2, "strategy": "pipeline"},
        "sub_batches must be 1 for pipeline, which has micro-batches of its own, got 2",
    ),
    "first of no micro-batches": ({"sub_batch_from": "fc1"}, "sub_batch_from must be left out where sub_batches is 1"),
    "order of no micro-batches": (
        {"sub_batch_order": "all"},
        "sub_batch_order must be left out where sub_batches is 1",
    ),
    "updates of no micro-batches": ({"update_each": True}, "update_each must be left out where sub_batches is 1"),
    "stages of a rule": ({"strategy": "owt", "stages": 2}, "are for the strategy pipeline, not owt"),
    "schedule of a search": ({**SEARCH, "schedule": "gpipe"}, "are for the strategy pipeline, not layerwise"),
    "nothing to compress": ({"compress_where": "pays"}, "compress_where must be all where nothing is compressed"),
    "compressed to what it is": (
        {"compress_where": "pays", "strategy": "data", "compress_gradients": "float32"},
        "compress_where must be all where nothing is compressed",
    ),
    "compression in a search": (
        {**SEARCH, "compress_activations": "linear"},
        "compression must be none for layerwise, whose search does not know it, got 'linear'",
    ),
    "recomputation in a search": (
        {**SEARCH, "recompute": "segments"},
        "recompute must be none for layerwise, .* 'segments'",
    ),
    "order in a search": (
        {**SEARCH, "gradient_sync_order": "reuse"},
        "gradient_sync_order must be end for layerwise, .* 'reuse'",
    ),
}


@pytest.mark.parametrize(("changes", "message"), REFUSED.values(), ids=REFUSED)
def test_a_request_is_checked_when_it_is_made(changes, message):
    with pytest.raises(ConfigError, match=message):
        request(**changes)


@pytest.mark.parametrize(
    ("given", "strategy", "gradient_sync"),
    [
        ({}, "layerwise", "ring"),
        ({"micro_batches": 4}, "pipeline", "ring"),
        ({"sub_batches": 2}, "data", "ring"),
        ({"recompute": "segments"}, "data", "ring"),
        ({"gradient_sync_order": "ready"}, "data", "ring"),
        ({"compress_gradients": "dynamic-tree"}, "data", "auto"),  # a ring sums, and trees of eight bits have no sum
        ({"compress_gradients": "float16"}, "data", "ring"),
    ],
    ids=str,
)
def test_what_is_not_given_fits_what_is(given, strategy, gradient_sync):
    made = request(**given).resolved(cluster_of("titanx-4", 4))
    assert (made.strategy, made.gradient_sync) == (strategy, gradient_sync)
    assert make_plan(load_model("lenet5", batch=8), cluster_of("titanx-4", 4), **given).request.strategy == strategy


@pytest.mark.parametrize(
    "changes",
    [
        {"compress_gradients": "float32"},
        {"dtype": "float64", "compress_activations": "float64"},
        {"recompute": ""},
        {"strategy": "pipeline=2,data=2", "stages": 2},
        {"strategy": "hybrid", "refine": 3},
    ],
    ids=str,
)
def test_what_changes_nothing_is_allowed(changes):
    assert request(**changes)


def test_a_plan_keeps_its_request(tmp_path):
    """Also through its file; network and cluster are named as they name themselves."""
    graph, cluster = load_model("lenet5", batch=8), cluster_of("titanx-4", 4)
    asked = request(
        model="any",
        batch=1,
        strategy="pipeline",
        stages=2,
        micro_batches=4,
        schedule="gpipe",
        stage_at=("fc1",),
        recompute="pool1",
        optimizer="adam",
    )
    plan = make_plan(graph, cluster, asked)
    save_plan(plan, tmp_path / "plan.json")

    declared = {"gradient_sync": "ring", "framework": "ideal", "interference": False, "spread": False}
    assert plan.request == replace(asked, model="lenet5", cluster=cluster.spec, batch=8, **declared)
    assert (plan.model, plan.optimizer, plan.element_bytes) == ("lenet5", "adam", 4)
    assert load_plan(tmp_path / "plan.json") == plan
    assert plan.recompute.ends == ("pool1",)


def test_a_request_and_options_are_not_mixed():
    graph, cluster = load_model("lenet5", batch=8), cluster_of("titanx-4", 2)
    with pytest.raises(ConfigError, match="options must be left out beside a request, got strategy"):
        make_plan(graph, cluster, request(), strategy="data")
    with pytest.raises(TypeError, match="strategie"):
        make_plan(graph, cluster, strategie="data")


def test_results_say_what_they_are_in_one_line_and_as_tables():
    graph, cluster = load_model("lenet5", batch=8), cluster_of("titanx-4", 2)
    plan = make_plan(graph, cluster, strategy="data")
    result = orrery.replay(orrery.lower_plan(plan, graph, cluster))
    comparison = orrery.compare(graph, cluster, ["data", "model"])
    expected = (
        (graph, r"ComputationGraph\(lenet5, batch 8, 7 layers\)", len(graph.layers)),
        (cluster, r"DeviceGraph\(.*, 2 devices on 1 nodes\)", 2),
        (plan, r"Plan\(lenet5 on .*, batch 8, data: [0-9.e-]+ s an iteration, simulated\)", len(plan.configurations)),
        (
            result,
            r"Replay\(lenet5 on .*: [0-9.e-]+ s an iteration expected, [0-9.e-]+ s simulated, [0-9]+ tasks\)",
            len(set(result.timeline()["kind"])),
        ),
        (comparison, r"Comparison\(lenet5 on .*, batch 8: .* is fastest of data, model\)", 2),
    )
    for shown, words, rows in expected:
        assert re.fullmatch(words, repr(shown))
        assert len(re.findall(r"<tr\b", shown._repr_html_())) == rows + 1


def test_importing_the_request_loads_no_arrays():
    import subprocess
    import sys

    script = "import planner.plan.plan_request, sys; assert not {'numpy', 'numba', 'pandas'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", script], check=True, cwd=Path(__file__).parents[3])


def test_all_that_show_a_plans_memory_hold_its_optimizers_state():
    """Adam keeps one element more for every parameter than momentum: in program order, and over time."""
    graph, cluster = load_model("lenet5", batch=8), orrery.load_cluster("titanx-4")
    peaks = {}
    for optimizer in ("momentum", "adam"):
        program = lower_plan(make_plan(graph, cluster, strategy="data", optimizer=optimizer), graph, cluster)
        peaks[optimizer] = peak_memory_bytes(program).max(), memory_curve(replay(program)).peak_bytes.max()
    more = 4 * sum(parameter.elements for layer in graph.layers for parameter in layer.parameters)
    assert np.subtract(peaks["adam"], peaks["momentum"]) == pytest.approx(more)
