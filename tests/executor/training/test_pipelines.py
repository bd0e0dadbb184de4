"""Pipelines run for real, against undivided networks: losses and parameters in float64."""

from functools import partial

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings, strategies as st
from plans import cluster_of, inception_module, residual_block
from ranks import joined_tasks, options, pool_of, train, trained_to
from undivided import Undivided, first_parameters, undivided_run, wide

from executor.data.load import load_data
from executor.runtime.boxes import whole_box
from executor.runtime.optimizer_spec import OptimizerSpec
from planner.cost.cost_model import CostModel
from planner.layouts.configurations import Configuration, all_configurations
from planner.lowering.lower_strategy import lower
from planner.lowering.program import KINDS
from planner.models.builder import ModelBuilder
from planner.models.registry import load_model
from planner.search.pipeline_strategy import Pipeline, pipeline_strategy
from planner.strategies.micro_batches import MicroBatching, schedule_of
from planner.strategies.named_strategies import spaces_of
from planner.strategies.pipeline_schedule import BACKWARD, FORWARD

pytestmark = pytest.mark.timeout(300)
MOST_RANKS, BATCH = 4, 8
OPTIMIZER = OptimizerSpec(momentum=0.9, weight_decay=1e-3)


ranks = pool_of(MOST_RANKS)


def dropping():
    """Convolutions, then linear layers with dropout."""
    net = ModelBuilder("dropping", batch=BATCH, image=(3, 10, 10))
    net.conv(4, 3, pad=1)
    net.pool("max", 2)
    net.conv(6, 3, pad=1)
    net.local_response_norm()
    net.linear(12, activation="relu", dropout=0.5)
    net.linear(8, activation="tanh", dropout=0.2)
    net.linear(4)
    net.loss()
    return net.build()


GRAPHS = {
    "dropping": dropping,
    "inception": lambda: inception_module(BATCH),
    "residual": lambda: residual_block(BATCH),
}


def lowered(graph, count, asked):
    model = CostModel(graph, cluster_of("titanx-4", count))
    strategy, micro_batching = pipeline_strategy(model, asked)
    return lower(model, spaces_of(graph, strategy, count), micro_batching=micro_batching)


check = partial(trained_to, reduced=False, rtol=1e-10)


@pytest.mark.parametrize(
    ("name", "schedule", "count", "stages"),
    [
        (name, *case)
        for case, names in {
            ("gpipe", 4, 4): list(GRAPHS)[:1],
            ("1f1b", 2, 2): list(GRAPHS)[1:2],
            ("1f1b", 4, 4): list(GRAPHS)[2:],
            ("interleaved", 2, 4): list(GRAPHS)[:2],
            ("interleaved", 3, 6): list(GRAPHS)[2:],
            ("zero-bubble", 4, 4): list(GRAPHS)[::2],
        }.items()
        for name in names
    ],
)
def test_a_pipeline_is_the_undivided_network(ranks, name, schedule, count, stages):
    graph = wide(GRAPHS[name]())
    batches = 6 if count == 3 else 4
    graph = graph if count < 3 or schedule != "interleaved" else wide(graph.with_batch(12))
    program = lowered(graph, count, Pipeline(schedule=schedule, stages=stages, micro_batches=batches))
    chosen = options(optimizer=OPTIMIZER)
    measured = check(ranks, program, chosen, *undivided_run(graph, chosen.steps, OPTIMIZER, chosen.seed))
    moved = program.kind == KINDS.index("transfer")
    sent = np.nansum([rank[-1].sent_bytes for rank in measured], axis=0)
    np.testing.assert_array_equal(sent[moved], program.size_bytes[moved])


def micro_batched_run(graph, micro_batches, steps, optimizer, seed):
    """Losses and parameters of an undivided network that normalises every micro-batch by its own statistics."""
    small = wide(graph.with_batch(graph.batch // micro_batches))
    network = Undivided(small, first_parameters(graph, seed))
    steps_of = torch.optim.SGD(
        list(network.parameters.values()),
        lr=optimizer.learning_rate,
        momentum=optimizer.momentum,
        weight_decay=optimizer.weight_decay,
    )
    data = load_data("generated", graph, seed=seed, dtype=torch.float64, device="cpu")
    inputs, losses = whole_box(graph.layers[0].input_shapes[0].sizes), []
    for number in range(steps):
        pieces = data.inputs(number, inputs).chunk(micro_batches)
        targets = data.targets(number, 0, graph.batch).chunk(micro_batches)
        results = [network.run(*piece, number=number, seed=seed) for piece in zip(pieces, targets, strict=True)]
        for key, parameter in network.parameters.items():
            parameter.grad = sum(result.gradients[key] for result in results) / micro_batches
        steps_of.step()
        losses.append(float(sum(result.loss for result in results)) / micro_batches)
    return losses, network


@pytest.mark.parametrize(
    ("schedule", "count", "stages"), [("gpipe", 2, 2), ("1f1b", 4, 4), ("interleaved", 2, 6), ("zero-bubble", 3, 3)]
)
def test_batch_norm_takes_the_statistics_of_micro_batches(ranks, schedule, count, stages):
    graph = wide(load_model("resnet-cifar:depth=8", batch=BATCH))
    program = lowered(graph, count, Pipeline(schedule=schedule, stages=stages, micro_batches=4))
    chosen = options(optimizer=OPTIMIZER)
    expected, network = micro_batched_run(graph, 4, chosen.steps, OPTIMIZER, chosen.seed)
    check(ranks, program, chosen, expected, network.parameters)


@st.composite
def pipelines(draw):
    """Stages at random layers on groups of one or two devices, their layers split at random inside."""
    graph = wide(GRAPHS[draw(st.sampled_from(list(GRAPHS)))]())
    rng, width = np.random.default_rng(draw(st.integers(0, 2**32))), draw(st.sampled_from([1, 2]))
    kind, groups = draw(st.sampled_from(["gpipe", "1f1b", "interleaved"])), MOST_RANKS // width
    stages = min(groups * (2 if kind == "interleaved" else 1), len(graph.layers))
    if kind == "interleaved":
        groups = stages // 2
        stages = groups * 2
    inner = 1 + rng.choice(len(graph.layers) - 1, stages - 1, replace=False)
    micro_batching = MicroBatching(
        parts=BATCH // 2 if groups != 3 else 3, order=kind, stages=(0, *sorted(inner.tolist()))
    )
    graph = graph if groups != 3 else wide(graph.with_batch(6))
    small, order = graph.with_batch(graph.batch // micro_batching.parts), rng.permutation(MOST_RANKS)
    strategy = {}
    for i, layer in enumerate(small.layers):
        space = all_configurations(layer.output, layer.parallel_dims, width)
        chosen = space.configuration(int(rng.integers(space.size)))
        first = micro_batching.stage_of(i) % groups * width
        strategy[layer.name] = Configuration(chosen.degrees, tuple(order[first : first + chosen.parts].tolist()))
    return graph, strategy, micro_batching


@settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(question=pipelines(), overlap=st.booleans(), seed=st.integers(0, 1000))
def test_stages_split_inside_on_any_devices(ranks, question, overlap, seed):
    graph, strategy, micro_batching = question
    model = CostModel(graph, cluster_of("titanx-4", MOST_RANKS), "ring")
    program = lower(model, spaces_of(graph, strategy, MOST_RANKS), micro_batching=micro_batching)
    chosen = options(optimizer=OPTIMIZER, overlap=overlap, seed=seed)
    check(ranks, program, chosen, *undivided_run(graph, chosen.steps, OPTIMIZER, chosen.seed))


@pytest.mark.parametrize(("schedule", "stages"), [("gpipe", 4), ("1f1b", 4), ("interleaved", 8)])
def test_every_rank_works_in_the_schedules_order(ranks, schedule, stages):
    graph = dropping()
    program = lowered(graph, MOST_RANKS, Pipeline(schedule=schedule, stages=stages, micro_batches=4))
    measured = [rows for _, rows, _ in ranks.run(train, program, options(stand_in=True), False)]
    joined = joined_tasks(measured)
    streams = schedule_of(program.micro_batching, program.spaces).streams
    compute = np.flatnonzero(np.isin(program.kind, [KINDS.index(kind) for kind in (*FORWARD, *BACKWARD)]))
    for device, events in enumerate(streams):
        mine = compute[program.device[compute] == device]
        mine = mine[np.argsort(joined.start_s[-1][mine], kind="stable")]
        done = [
            (
                KINDS[program.kind[task]] in FORWARD,
                program.micro_batching.stage_of(program.layer[task]),
                program.micro_batch[task],
            )
            for task in mine.tolist()
        ]
        assert list(dict.fromkeys(done)) == [
            (event.phases == FORWARD, event.stage, event.micro_batch) for event in events
        ]
