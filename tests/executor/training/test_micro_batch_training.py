"""Divided training whose last layers take the mini-batch in sub-batches, against undivided networks."""

from functools import partial

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings, strategies as st
from plans import cluster_of, inception_module, residual_block
from ranks import joined_tasks, options, pool_of, train, trained_to
from torch.nn import functional
from undivided import first_parameters, undivided_run, wide

from executor.data.load import load_data
from executor.runtime.boxes import whole_box
from executor.runtime.optimizer_spec import OptimizerSpec
from executor.runtime.positional_random import key_of, uniform
from planner.cost.cost_model import CostModel
from planner.layouts.configurations import Configuration, all_configurations
from planner.lowering.lower_strategy import lower
from planner.lowering.program import KINDS
from planner.models.builder import ModelBuilder
from planner.plan.lowered_plan import lower_plan
from planner.plan.make_plan import make_plan
from planner.strategies.micro_batches import MicroBatching, interleave_degree, micro_batching_of
from planner.strategies.named_strategies import spaces_of

pytestmark = pytest.mark.timeout(300)
MOST_RANKS, BATCH = 4, 12
TRANSFER = KINDS.index("transfer")
SPECS = [OptimizerSpec(momentum=0.9, weight_decay=1e-3), OptimizerSpec(name="adam", learning_rate=1e-3)]


ranks = pool_of(MOST_RANKS)


def classifier():
    """Normalised convolutions, then linear layers with dropout."""
    net = ModelBuilder("classifier", batch=BATCH, image=(3, 10, 10))
    net.conv(4, 3, pad=1, batch_norm=True)
    net.pool("max", 2)
    net.conv(6, 3, pad=1)
    net.local_response_norm()
    net.linear(12, activation="relu", dropout=0.5)
    net.linear(8, activation="tanh")
    net.linear(4)
    net.loss()
    return net.build()


def squares():
    net = ModelBuilder("squares", batch=BATCH, image=(2, 6, 6))
    net.conv(4, 3, stride=2, activation="leaky_relu")
    net.linear(6, dropout=0.2)
    net.linear(4)
    net.loss("mean_squared_error")
    return net.build()


GRAPHS = {
    "classifier": classifier,
    "squares": squares,
    "inception": lambda: inception_module(BATCH),
    "residual": lambda: residual_block(BATCH),
}


def divided(graph, micro_batching, count, rng):
    """A random strategy whose parts of a sub-batch are equal, with one degree in samples across the cut."""
    small = graph.with_batch(graph.batch // micro_batching.parts)
    samples = int(rng.choice([n for n in range(1, count + 1) if small.batch % n == 0]))
    strategy = {}
    for i, layer in enumerate(small.layers):
        space = all_configurations(layer.output, layer.parallel_dims, count)
        read = any(edge.producer < micro_batching.first <= edge.consumer for edge in graph.consumers[i])
        fits = [c for c in range(space.size) if not read or space.degrees[c, 0] == samples]
        chosen = space.configuration(int(rng.choice(fits)))
        strategy[layer.name] = Configuration(chosen.degrees, tuple(rng.permutation(count)[: chosen.parts].tolist()))
    return strategy


def lowered(graph, micro_batching, count, gradient_sync, seed):
    model = CostModel(graph, cluster_of("titanx-4", count), gradient_sync, "reduced")
    strategy = divided(graph, micro_batching, count, np.random.default_rng(seed))
    return lower(model, spaces_of(graph, strategy, count), micro_batching=micro_batching)


check = partial(trained_to, reduced=True, rtol=1e-9)


def first_cut(graph, where, seed):
    """Index of the first layer cut: the first linear one, the first of all, or any behind normalisations."""
    normalised = [i for i, row in enumerate(graph.layers) if any("norm" in p.name for p in row.parameters)]
    lowest = max(normalised, default=-1) + 1
    linear = next(i for i, row in enumerate(graph.layers) if row.operation.kind == "linear")
    return {"linear": linear, "any": int(np.random.default_rng(seed).integers(lowest, len(graph.layers)))}.get(
        where, lowest
    )


@settings(max_examples=10, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    name=st.sampled_from(list(GRAPHS)),
    count=st.sampled_from([2, 3, 4]),
    parts=st.sampled_from([2, 3]),
    where=st.sampled_from(["linear", "any", "lowest"]),
    order=st.sampled_from(["each", "all"]),
    gradient_sync=st.sampled_from(["ring", "ps", "ps-spread", "halving"]),
    seed=st.integers(0, 2**32),
    optimizer=st.sampled_from(SPECS),
    overlap=st.booleans(),
)
def test_one_update_of_sub_batches_is_that_of_the_batch(
    ranks, name, count, parts, where, order, gradient_sync, seed, optimizer, overlap
):
    graph = wide(GRAPHS[name]())
    program = lowered(
        graph, MicroBatching(parts=parts, first=first_cut(graph, where, seed), order=order), count, gradient_sync, seed
    )
    chosen = options(seed=seed % 1000, optimizer=optimizer, overlap=overlap)
    check(ranks, program, chosen, *undivided_run(graph, chosen.steps, optimizer, chosen.seed))


@pytest.mark.parametrize("strategy", ["data", "data=2,filter=2", "pipeline=2,data=2,schedule=gpipe"])
@pytest.mark.parametrize("framework", ["ideal", "ddp"])
def test_a_plan_that_accumulates_gradients_trains_as_the_whole_batch(ranks, strategy, framework):
    """Its gradients are synchronised once, after the last micro-batch, in buckets too."""
    graph, cluster = wide(squares()), cluster_of("titanx-4", MOST_RANKS)
    plan = make_plan(graph, cluster, strategy=f"{strategy},micro-batches=3,framework={framework}")
    chosen = options(seed=3, optimizer=SPECS[0])
    check(ranks, lower_plan(plan, graph, cluster), chosen, *undivided_run(graph, chosen.steps, SPECS[0], chosen.seed))


def update_each_run(graph, micro_batching, pieces, chosen):
    """``squares`` by torch alone: the convolution stays as it is while the linear layers take sub-batch by sub-batch.

    Sub-batch s holds the s-th share of each of so many pieces of the batch.
    """
    make, spec = {"dtype": torch.float64, "device": "cpu"}, chosen.optimizer
    parameters = {key: value.requires_grad_() for key, value in first_parameters(graph, chosen.seed).items()}
    (conv, hidden, last, _), batch = graph.layers, graph.batch
    kind = {"sgd": torch.optim.SGD, "adam": torch.optim.Adam}[spec.name]
    extra = {"momentum": spec.momentum} if spec.name == "sgd" else {}
    before, behind = (
        kind(
            [value for (name, _), value in parameters.items() if (name == conv.name) == mine],
            lr=spec.learning_rate,
            weight_decay=spec.weight_decay,
            **extra,
        )
        for mine in (True, False)
    )
    data, losses = load_data("generated", graph, seed=chosen.seed, **make), []
    order = torch.arange(batch).view(pieces, micro_batching.parts, -1)
    for number in range(chosen.steps):
        own = {name: {k: v for (layer, k), v in parameters.items() if layer == name} for name, _ in parameters}
        inputs = data.inputs(number, whole_box(conv.input_shapes[0].sizes))
        targets = data.targets(number, 0, batch)
        made = functional.leaky_relu(functional.conv2d(inputs, **own[conv.name], stride=2), 0.01)
        read = made.detach().requires_grad_()
        drawn = uniform(key_of(chosen.seed, number, 1), whole_box((batch, 6)), (batch, 6), **make)
        losses.append(0.0)
        for s in range(micro_batching.parts):
            rows = order[:, s].flatten()
            values = functional.linear(read[rows].flatten(1), **own[hidden.name])
            values = torch.where(drawn[rows] < 0.2, 0.0, values / 0.8)
            values = functional.linear(values, **own[last.name])
            loss = (values - targets[rows].flatten(1)).square().sum() / (batch * 4)
            behind.zero_grad()
            loss.backward()
            behind.step()
            losses[-1] += float(loss.detach())
        before.zero_grad()
        made.backward(read.grad)
        before.step()
    return losses, parameters


@settings(max_examples=10, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    count=st.sampled_from([2, 3, 4]),
    parts=st.sampled_from([2, 3, 4]),
    gradient_sync=st.sampled_from(["ring", "ps", "ps-spread"]),
    seed=st.integers(0, 2**32),
    optimizer=st.sampled_from(SPECS),
    overlap=st.booleans(),
)
def test_updates_after_each_sub_batch(ranks, count, parts, gradient_sync, seed, optimizer, overlap):
    graph = wide(squares())
    micro_batching = micro_batching_of(graph, parts, update_each=True)
    program = lowered(graph, micro_batching, count, gradient_sync, seed)
    chosen = options(seed=seed % 1000, optimizer=optimizer, overlap=overlap)
    expected = update_each_run(graph, micro_batching, interleave_degree(graph, program.spaces, micro_batching), chosen)
    check(ranks, program, chosen, *expected)


@pytest.mark.parametrize("update_each", [False, True])
def test_sent_bytes_are_the_programs(ranks, update_each):
    graph = wide(inception_module(BATCH))
    micro_batching = MicroBatching(parts=3, first=graph.index["concat"], update_each=update_each)
    program = lowered(graph, micro_batching, MOST_RANKS, "ps", 5)
    measured = [rows for _, rows, _ in ranks.run(train, program, options(), True)]
    moved = program.size_bytes > 0
    assert (moved & (program.kind == TRANSFER) & (program.micro_batch == 2)).any()
    assert (moved & (program.kind != TRANSFER)).any()
    for step in range(2):
        sent = np.nansum([rank[step].sent_bytes for rank in measured], axis=0)
        np.testing.assert_array_equal(sent[moved], program.size_bytes[moved])


@pytest.mark.parametrize(("order", "update_each"), [("all", False), ("each", True)])
def test_stand_ins_measure_every_task(ranks, order, update_each):
    """Each lasts as long as it should, and waits for what it must."""
    graph = classifier()
    program = lowered(graph, micro_batching_of(graph, 3, order=order, update_each=update_each), MOST_RANKS, "ring", 4)
    chosen = options(stand_in=True)
    measured = [rows for _, rows, _ in ranks.run(train, program, chosen, True)]
    joined = joined_tasks(measured)
    assert np.isfinite(joined.start_s).all()
    assert (joined.end_s - joined.start_s >= program.work_s * (1 - 1e-6) - 1e-7).all()
    waits = np.repeat(np.arange(program.size), np.diff(program.after_start))
    both = program.is_compute[waits] & program.is_compute[program.after]  # of a sum the last rank's end is known
    assert (joined.start_s[:, waits[both]] >= joined.end_s[:, program.after[both]] - 1e-4).all()


def test_the_first_sub_batch_does_not_wait_for_the_last(ranks):
    """Sent as soon as its samples are there: with all going forward first, before the others' arithmetic."""
    graph = classifier()
    micro_batching = micro_batching_of(graph, 3, order="all")
    program = lowered(graph, micro_batching, MOST_RANKS, "ring", 4)
    measured = [rows for _, rows, _ in ranks.run(train, program, options(stand_in=True), True)]
    joined = joined_tasks(measured)
    sent = (program.kind == TRANSFER) & (program.consumer > micro_batching.first) & ~program.backward
    for rows in joined.start_s:
        first, last = (np.min(rows[sent & (program.micro_batch == s)]) for s in (0, 2))
        assert first < last
