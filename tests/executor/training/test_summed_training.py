"""Networks whose layers split what they sum over, over real processes, against the undivided network."""

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st
from plans import cluster_of, inception_module, residual_block
from ranks import options, pool_of, train, whole
from reducing import random_reducing_strategy
from undivided import undivided_run, wide

from executor.checkpoints.resume import Checkpoints
from executor.runtime.devices import CpuDevice
from executor.runtime.optimizer_spec import OptimizerSpec
from executor.supervision.status_board import own_status
from executor.training.session import open_session
from planner.compression.settings import UNCOMPRESSED, CompressionSettings
from planner.cost.cost_model import CostModel
from planner.graph.shapes import REPEATED, SUMMED
from planner.layouts.configurations import Configuration
from planner.layouts.mesh import Mesh
from planner.lowering.lower_strategy import lower
from planner.lowering.program import KINDS
from planner.models.builder import ModelBuilder
from planner.models.registry import load_model
from planner.search.layerwise import search_layerwise
from planner.search.mesh_search import search_on_mesh
from planner.search.pipeline_strategy import Pipeline, strategy_and_micro_batching
from planner.strategies.micro_batches import WHOLE_BATCH, micro_batching_of
from planner.strategies.named_strategies import named_strategy
from planner.strategies.recomputation import KEEP_ACTIVATIONS, Recompute

pytestmark = pytest.mark.timeout(300)
MOST_RANKS = 4
TRANSFER = KINDS.index("transfer")
SPECS = [OptimizerSpec(momentum=0.9, weight_decay=1e-3), OptimizerSpec(name="adam", learning_rate=1e-3)]


ranks = pool_of(MOST_RANKS)


def line():
    """1-D."""
    net = ModelBuilder("line", batch=4, image=(4, 19))
    net.conv(8, 5, stride=2, pad=2)
    net.conv(8, 3, pad=1, dilation=2, activation="tanh")
    net.conv(4, 3, stride=3, bias=False, activation=None)
    net.linear(8, activation="relu", dropout=0.4)
    net.linear(4)
    net.loss()
    return net.build()


def plane():
    """2-D, with normalisation, pooling and a convolution of groups."""
    net = ModelBuilder("plane", batch=4, image=(2, 12, 12))
    net.conv(8, 3, pad=1, batch_norm=True)
    net.conv(8, 3, stride=2, pad=1, batch_norm=True)
    net.conv(8, 3, pad=1, groups=2)
    net.pool("average", 2)
    net.linear(12, activation="leaky_relu")
    net.linear(4)
    net.loss("mean_squared_error")
    return net.build()


def volume():
    """3-D."""
    net = ModelBuilder("volume", batch=2, image=(4, 6, 7, 6))
    net.conv(8, 3, pad=1, stride=2, activation="leaky_relu")
    net.conv(4, 2, activation="sigmoid")
    net.linear(4)
    net.loss("mean_squared_error")
    return net.build()


GRAPHS = {"line": line, "plane": plane, "volume": volume, "inception": inception_module, "residual": residual_block}


def lowered(
    graph,
    strategy,
    count,
    *,
    gradient_sync="ring",
    micro_batching=WHOLE_BATCH,
    compressed=UNCOMPRESSED,
    recompute=KEEP_ACTIVATIONS,
):
    model = CostModel(graph, cluster_of("titanx-4", count), gradient_sync, "reduced")
    return lower(
        model,
        model.spaces_of(strategy),
        micro_batching=micro_batching,
        compressed=compressed,
        recompute=recompute,
    )


def check(ranks, graph, program, chosen, *, rtol=1e-12):
    """Train and compare; returns what was measured."""
    losses, measured, slices = zip(*ranks.run(train, program, chosen, True), strict=True)
    expected, parameters = undivided_run(graph, chosen.steps, chosen.optimizer, chosen.seed)
    np.testing.assert_allclose(np.sum(losses, axis=0), expected, rtol=rtol)
    found = whole(program, slices)
    assert set(found) == set(parameters)
    for key, value in found.items():
        np.testing.assert_allclose(value, parameters[key].detach(), rtol=rtol, atol=rtol / 100, err_msg=str(key))
    return measured


@settings(max_examples=6, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    name=st.sampled_from(list(GRAPHS)),
    count=st.sampled_from([2, 4]),
    gradient_sync=st.sampled_from(["ring", "ps", "ps-spread", "halving"]),
    seed=st.integers(0, 2**32),
    optimizer=st.sampled_from(SPECS),
    overlap=st.booleans(),
)
def test_partial_sums_train_the_undivided_network(ranks, name, count, gradient_sync, seed, optimizer, overlap):
    graph = wide(GRAPHS[name]())
    strategy = random_reducing_strategy(graph, count, np.random.default_rng(seed))
    program = lowered(graph, strategy, count, gradient_sync=gradient_sync)
    check(ranks, graph, program, options(seed=seed % 1000, optimizer=optimizer, overlap=overlap))


def test_every_kind_splits_with_every_other_dimension(ranks):
    """Slices beside samples, channels and each position, on shuffled devices."""
    for name, layer, degrees in [
        ("line", "conv2", {"length": 2}),
        ("line", "fc1", {"sample": 2}),
        ("plane", "conv2", {"channel": 2}),
        ("plane", "conv2", {"sample": 2}),
        ("plane", "conv2", {"height": 2}),
        ("plane", "fc1", {"channel": 2}),
        ("volume", "conv2", {"depth": 2}),
        ("volume", "conv1", {"width": 3}),
    ]:
        graph = wide(GRAPHS[name]())
        given = {**degrees, SUMMED: 4 // max(degrees.values())}
        parts = int(np.prod(list(given.values())))
        strategy = {
            **named_strategy("filter", graph, 4),
            layer: Configuration.of(given, np.random.default_rng(1).permutation(4)[:parts].tolist()),
        }
        program = lowered(graph, strategy, 4)
        assert program.moves_activations.any() == (given[SUMMED] > 1)
        check(ranks, graph, program, options(seed=2))


MODELS = [("alexnet-cifar", 4, 2), ("resnet-cifar:depth=8", 4, 4)]


@pytest.mark.parametrize(("name", "batch", "count"), MODELS)
def test_whole_models_by_channel(ranks, name, batch, count):
    graph = wide(load_model(name, batch=batch))
    strategy = named_strategy("channel", graph, count)
    assert sum(SUMMED in row.degrees for row in strategy.values()) >= 3
    program = lowered(graph, strategy, count)
    check(ranks, graph, program, options(seed=4, optimizer=SPECS[0]))


@pytest.mark.parametrize("overlap", [True, False])
def test_sent_bytes_are_those_priced(ranks, overlap):
    """By task; and of each layer what is worked out by hand: 3 of 4 shares to each, forward and back."""
    graph = wide(plane())
    program = lowered(graph, named_strategy("channel", graph, 4), 4)
    measured = check(ranks, graph, program, options(overlap=overlap))
    moves = program.moves_activations | (program.kind == TRANSFER)
    for step in range(2):
        sent = np.nansum([rank[step].sent_bytes for rank in measured], axis=0)
        np.testing.assert_array_equal(sent[moves], program.size_bytes[moves])
        for name, outputs in (("conv2", 4 * 8 * 36), ("fc1", 4 * 12), ("fc2", 4 * 4)):
            mine = program.moves_activations & (program.layer == program.consumer)
            mine &= program.layer == program.graph.index[name]
            assert sent[mine & ~program.backward].sum() == sent[mine & program.backward].sum() == 3 * outputs * 8


@pytest.mark.parametrize("order", ["each", "all"])
def test_sub_batches_of_slices(ranks, order):
    graph = wide(line())
    strategy = {
        **named_strategy("channel", graph, 4),
        "fc1": Configuration.of({"sample": 2, SUMMED: 2}, (3, 0, 2, 1)),
    }
    micro_batching = micro_batching_of(graph, 2, first="conv3", order=order)
    program = lowered(graph, strategy, 4, micro_batching=micro_batching)
    assert program.graph.layers[program.micro_batching.first].name == "conv3"
    check(ranks, graph, program, options(seed=5))


def test_codes_that_lose_nothing_change_nothing(ranks):
    """Regions beside partial sums as float32 codes: the same losses, bit for bit, and the bytes of the program."""
    graph = plane()
    strategy = random_reducing_strategy(graph, 4, np.random.default_rng(3), wanted=1.0)
    losses = []
    for kind in (UNCOMPRESSED, CompressionSettings(activations="float32", gradients="float32")):
        program = lowered(graph, strategy, 4, gradient_sync="ps-spread", compressed=kind)
        rows, measured, _ = zip(*ranks.run(train, program, options(), True), strict=True)
        losses.append(np.sum(rows, axis=0))
        transfers = program.kind == TRANSFER
        sent = np.nansum([rank[0].sent_bytes for rank in measured], axis=0)
        np.testing.assert_array_equal(sent[transfers], program.size_bytes[transfers])
    np.testing.assert_array_equal(*losses)


def test_sums_are_repeated_in_recomputations(ranks):
    graph = wide(plane())
    program = lowered(graph, named_strategy("channel", graph, 4), 4, recompute=Recompute(("conv2", "fc1")))
    assert (program.recomputed & program.moves_activations).any()
    check(ranks, graph, program, options(seed=6))


@pytest.mark.parametrize("text", ["pipeline=2,channel=2", "data=2,channel=2", "tensor=4"])
def test_words(ranks, text):
    """Stages of a pipeline split their sums as layers of the whole batch do, and so do rows of tensor parallelism."""
    graph = wide(line())
    model = CostModel(graph, cluster_of("titanx-4", 4), "ring", "reduced")
    pipeline = Pipeline(schedule="1f1b", micro_batches=2)
    strategy, micro_batching = strategy_and_micro_batching(model, text, pipeline=pipeline)
    program = lowered(graph, strategy, 4, micro_batching=micro_batching)
    assert (program.moves_activations & (program.layer == program.consumer)).any()
    check(ranks, graph, program, options(seed=7))


def steps_between(rank, program, options, first, last):
    """Train as one rank from a checkpoint, if ``first``, to another."""
    session = open_session(
        program, rank, options, reduced=True, device=CpuDevice(), status=own_status(rank), steps=last - first
    )
    checkpoints = Checkpoints(options, program.graph)
    if first:
        assert checkpoints.latest_step() == first
        checkpoints.load(session)
    losses = [session.worker.step(number).loss for number in range(first, last)]
    checkpoints.save(session, last)
    session.worker.close()
    return losses


@pytest.mark.parametrize("optimizer", SPECS, ids=["sgd", "adam"])
def test_checkpoints_go_from_plan_to_plan(ranks, tmp_path, optimizer):
    """Slices of one number, then of another, then none: the training without interruption."""
    graph = wide(plane())
    chosen = options(checkpoint=str(tmp_path), optimizer=optimizer, steps=6)
    plans = [
        lowered(graph, named_strategy(name, graph, count), count) for name, count in (("channel", 4), ("channel", 2))
    ] + [lowered(graph, named_strategy("data", graph, 4), 4)]
    plans = [plans[0], plans[2], plans[1]]
    losses = []
    for number, program in enumerate(plans):
        rows = ranks.run(steps_between, program, chosen, 2 * number, 2 * number + 2)
        losses += np.sum(rows, axis=0).tolist()
    np.testing.assert_allclose(losses, undivided_run(graph, 6, optimizer, chosen.seed)[0], rtol=1e-12)


def test_axes_in_any_order(ranks):
    """A sum that outer axes split, and channels that inner ones do: regions travel where no collective fits."""
    graph = wide(plane())
    mesh = Mesh((("a", 2), ("b", 2)), (2, 0, 1, 3))
    strategy = named_strategy("channel", graph, 4)
    for name in ("conv2", "fc1", "fc2"):
        dims = graph.layers[graph.index[name]].parallel_dims
        strategy = {**strategy, name: Configuration.on(mesh, (SUMMED, "channel"), dims)}
    check(ranks, graph, lowered(graph, strategy, 4), options(seed=8))


def test_a_strategy_that_was_searched(ranks):
    """The optimum on a mesh of four devices splits a sum, and repeats a layer: it trains the undivided network."""
    graph = wide(load_model("lenet5", batch=256))
    model = CostModel(graph, cluster_of("titanx-4", 4), "ring", "reduced")
    strategy = search_on_mesh(model, search_layerwise(model)).strategy
    assert {SUMMED, REPEATED} <= {index for each in strategy.values() for index in each.degrees}
    check(ranks, graph, lowered(graph, strategy, 4), options(optimizer=SPECS[0]))
