"""Pipelines lowered: Eq. 1 of them, the closed forms of their schedules, plan files."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from plans import SMALL_MODELS, cluster_of, device_count, star

from hwprofiles.catalogue.cluster_catalogue import cluster_names
from planner.cost.cost_model import CostModel
from planner.layouts.configurations import Configuration, all_configurations
from planner.lowering.lower_strategy import lower
from planner.lowering.program import KINDS
from planner.models.builder import ModelBuilder
from planner.models.registry import load_model
from planner.plan.lowered_plan import lower_plan
from planner.plan.make_plan import make_plan
from planner.plan.plan_file import load_plan, save_plan
from planner.simulation.additive_cost import additive_s, additive_terms
from planner.simulation.program_replay import replay
from planner.strategies.micro_batches import MicroBatching
from planner.strategies.named_strategies import spaces_of


@st.composite
def pipelines(draw):
    """A cost model, stages at random layers on groups of devices, their layers split at random inside, a cut."""
    spec, width = draw(st.sampled_from(cluster_names())), draw(st.integers(1, 2))
    most = min(4, device_count(spec) // width)
    kind, groups = draw(st.sampled_from(["gpipe", "1f1b", "interleaved"])), draw(st.integers(1, max(most, 1)))
    parts = groups * 2 if kind == "interleaved" else draw(st.sampled_from([2, 3, 4]))
    graph = load_model(draw(st.sampled_from(SMALL_MODELS)), batch=parts * draw(st.sampled_from([1, 2])))
    stages = min(groups * (draw(st.integers(1, 2)) if kind == "interleaved" else 1), len(graph.layers))
    groups = groups if stages % groups == 0 else stages
    parts = parts if kind != "interleaved" or parts % groups == 0 else groups
    rng, count = np.random.default_rng(draw(st.integers(0, 2**32))), groups * width
    inner = 1 + rng.choice(len(graph.layers) - 1, stages - 1, replace=False)
    micro_batching = MicroBatching(parts=parts, order=kind, stages=(0, *sorted(inner.tolist())))
    graph = graph.with_batch(parts * max(graph.batch // parts, 1))
    strategy = {}
    for i, layer in enumerate(graph.with_batch(graph.batch // parts).layers):
        space = all_configurations(layer.output, layer.parallel_dims, width)
        chosen = space.configuration(int(rng.integers(space.size)))
        first = micro_batching.stage_of(i) % groups * width
        strategy[layer.name] = Configuration(chosen.degrees, tuple(range(first, first + chosen.parts)))
    model = CostModel(graph, cluster_of(spec, min(count, device_count(spec))), "ring")
    return model, strategy, micro_batching


@settings(max_examples=10)
@given(pipelines())
def test_replay_one_after_another_is_eq_1(question):
    model, strategy, micro_batching = question
    program = lower(model, spaces_of(model.graph, strategy, len(model.cluster.devices)), micro_batching=micro_batching)
    assert program.names == [program.name(task) for task in range(program.size)]
    price_s = additive_s(model, strategy, micro_batching)
    assert replay(program, overlap=False, contention=False, iterations=1).iteration_s == pytest.approx(
        price_s, rel=1e-9
    )
    assert sum(term.sum() for term in additive_terms(model, strategy, micro_batching)) == pytest.approx(
        price_s, rel=1e-9
    )


def equal_stages(stages, micro_batches, schedule, devices):
    """A program of stages that take 1 s forward and 2 s back for a micro-batch, on links that take no time.

    Half of the backward work is the weight gradient; the first stage has no activation gradient, and the last, the
    loss, no weight gradient.
    """
    net = ModelBuilder("equal", batch=micro_batches, image=(4,))
    for _ in range(stages - 1):
        net.linear(4)
    net.loss()
    graph = net.build()
    model = CostModel(graph, star(devices, latency_s=0.0, bandwidth=1e18))
    asked = {"stages": stages, "micro_batches": micro_batches, "schedule": schedule}
    program = lower_plan(make_plan(graph, model.cluster, strategy="pipeline", **asked), graph, model.cluster)
    forward, onward, weights = (
        program.kind == KINDS.index(kind) for kind in ("forward", "activation_gradient", "weight_gradient")
    )
    at_the_ends = (weights & (program.layer == 0)) | (onward & (program.layer == stages - 1))
    return replace(program, work_s=np.select([forward | ((onward | weights) & ~at_the_ends), at_the_ends], [1.0, 2.0]))


@pytest.mark.parametrize("schedule", ["gpipe", "1f1b"])
@pytest.mark.parametrize(("stages", "micro_batches"), [(2, 1), (2, 4), (4, 4), (4, 9), (6, 3)])
def test_equal_stages_take_the_closed_form(schedule, stages, micro_batches):
    """(M + S - 1)(f + b)."""
    program = equal_stages(stages, micro_batches, schedule, stages)
    assert replay(program, iterations=1).iteration_s == pytest.approx((micro_batches + stages - 1) * 3, rel=1e-6)


@pytest.mark.parametrize(("devices", "shares", "micro_batches"), [(2, 2, 4), (4, 2, 8), (3, 3, 3), (4, 3, 4)])
def test_interleaving_leaves_the_published_bubble(devices, shares, micro_batches):
    """Of a stage's time on all micro-batches (S - 1) / v; here a share of a stage takes 3 s."""
    program = equal_stages(devices * shares, micro_batches, "interleaved", devices)
    ideal_s = micro_batches * shares * 3
    assert replay(program, iterations=1).iteration_s == pytest.approx(ideal_s + (devices - 1) * 3, rel=1e-6)


def test_a_plan_keeps_its_stages(tmp_path):
    graph, cluster = load_model("lenet5", batch=16), cluster_of("titanx-4", 4)
    plan = make_plan(graph, cluster, strategy="pipeline", stages=4, micro_batches=8, schedule="gpipe")
    save_plan(plan, tmp_path / "plan.json")
    read = load_plan(tmp_path / "plan.json")
    assert read == plan
    assert (read.micro_batching.order, read.micro_batching.parts, len(read.micro_batching.stages)) == ("gpipe", 8, 4)
    assert replay(lower_plan(read, graph, cluster)).iteration_s == plan.simulated_s
