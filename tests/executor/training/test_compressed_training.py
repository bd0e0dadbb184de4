"""Training whose tensors and gradients travel as codes, against plain training and an emulation in one process."""

from itertools import cycle

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings, strategies as st
from plans import cluster_of, inception_module, random_strategy, residual_block, star
from ranks import joined_tasks, options, pool_of, train, whole
from torch.nn import functional
from undivided import first_parameters

from executor.communication.bucketed_sync import BucketedSync
from executor.compression.registry import data_type
from executor.data.load import load_data
from executor.program.messages import region_messages_of
from executor.program.rank_program import RankProgram
from executor.program.recorder import Recorder
from executor.runtime.boxes import whole_box
from executor.runtime.devices import CpuDevice
from executor.runtime.optimizer_spec import OptimizerSpec
from executor.runtime.run_options import RunOptions
from planner.compression.settings import DECOMPRESSING_SYNCS, UNCOMPRESSED, CompressionSettings
from planner.cost.cost_model import CostModel
from planner.lowering.lower_strategy import lower
from planner.lowering.program import KINDS
from planner.models.builder import ModelBuilder
from planner.strategies.micro_batches import WHOLE_BATCH, micro_batching_of
from planner.strategies.named_strategies import named_strategy, spaces_of

pytestmark = pytest.mark.timeout(300)
MOST_RANKS = 4
TRANSFER, UPDATE = KINDS.index("transfer"), KINDS.index("update")
TYPES = ["dynamic-tree", "linear:block=64", "static-tree:normalised=1", "mantissa:normalised=1", "bfloat16"]
GRADIENT_TYPES = [*TYPES, "one-bit", "threshold:threshold=0.01,every=4"]


ranks = pool_of(MOST_RANKS)


def perceptron(batch=12, element_bytes=4):
    net = ModelBuilder("perceptron", batch=batch, image=(3, 4, 4))
    for channels in (20, 8):
        net.linear(channels, activation="relu")
    net.linear(4)
    net.loss()
    graph = net.build()
    graph.element_bytes = element_bytes
    return graph


GRAPHS = {"inception": inception_module, "residual": residual_block, "perceptron": perceptron}


def lowered(graph, gradient_sync, compressed, *, seed, micro_batching=WHOLE_BATCH, count=MOST_RANKS):
    model = CostModel(graph, cluster_of("titanx-4", count), gradient_sync, "reduced")
    strategy = random_strategy(graph, count, np.random.default_rng(seed))
    return lower(model, spaces_of(graph, strategy, count), micro_batching=micro_batching, compressed=compressed)


def trained(ranks, program, **changes):
    """Losses, measurements, and whole parameters, in which replicas agree to the last bit."""
    losses, measured, slices = zip(*ranks.run(train, program, options(**changes), True), strict=True)
    return np.sum(losses, axis=0), measured, whole(program, slices)


@settings(max_examples=5, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    name=st.sampled_from(list(GRAPHS)),
    gradient_sync=st.sampled_from([*DECOMPRESSING_SYNCS, "tree", "halving"]),
    count=st.sampled_from([2, 3, 4]),
    seed=st.integers(0, 2**32),
    overlap=st.booleans(),
)
def test_codes_that_lose_nothing_change_nothing(ranks, name, gradient_sync, count, seed, overlap):
    """float32 numbers as float32 codes: the same losses and parameters, bit for bit."""
    graph = GRAPHS[name]()
    coded = CompressionSettings(gradients="float32", activations="float32")
    plain, same = (
        trained(ranks, lowered(graph, gradient_sync, kind, seed=seed, count=count), overlap=overlap)
        for kind in (UNCOMPRESSED, coded)
    )
    np.testing.assert_array_equal(same[0], plain[0])
    for key, value in plain[2].items():
        assert torch.equal(value, same[2][key]), key


def check_bytes(program, measured):
    moved = program.size_bytes > 0
    for step in zip(*measured, strict=True):
        sent = np.nansum([rank.sent_bytes for rank in step], axis=0)
        np.testing.assert_array_equal(sent[moved], program.size_bytes[moved])


@pytest.mark.parametrize(
    ("kind", "gradient_sync"), list(zip(GRADIENT_TYPES[::2], cycle(DECOMPRESSING_SYNCS), strict=False))
)
def test_sent_bytes_are_the_programs(ranks, kind, gradient_sync):
    graph = inception_module()
    program = lowered(
        graph, gradient_sync, CompressionSettings(gradients=kind, activations=kind if kind in TYPES else ""), seed=7
    )
    assert (program.size_bytes[program.kind == TRANSFER] > 0).sum() > 20
    losses, measured, _ = trained(ranks, program, steps=2)
    assert np.isfinite(losses).all()
    check_bytes(program, measured)


@pytest.mark.parametrize("micro_batching", [{"order": "all"}, {"update_each": True}])
def test_sub_batches_travel_as_codes(ranks, micro_batching):
    graph = perceptron()
    model = CostModel(graph, star(MOST_RANKS), "ps-spread")
    spaces = spaces_of(graph, named_strategy("data", graph, 2), MOST_RANKS)
    kind = CompressionSettings(gradients="dynamic-tree", activations="dynamic-tree")
    program = lower(model, spaces, micro_batching=micro_batching_of(graph, 3, **micro_batching), compressed=kind)
    losses, measured, _ = trained(ranks, program)
    check_bytes(program, measured)
    assert np.isfinite(losses).all()


@pytest.mark.parametrize("stand_in", [False, True])
def test_every_task_is_measured_in_its_order(ranks, stand_in):
    kind = CompressionSettings(gradients="linear", activations="linear")
    program = lowered(residual_block(), "ps-spread", kind, seed=3)
    _, measured, _ = trained(ranks, program, stand_in=stand_in)
    joined = joined_tasks(measured)
    assert program.is_codec.sum() > 20
    assert np.isfinite(joined.start_s).all()
    waits = np.repeat(np.arange(program.size), np.diff(program.after_start))
    both = program.is_compute[waits] & program.is_compute[program.after]  # of a sum the last rank's end is known
    assert (joined.start_s[:, waits[both]] >= joined.end_s[:, program.after[both]] - 1e-4).all()
    if stand_in:
        assert (joined.end_s - joined.start_s >= program.work_s * (1 - 1e-6) - 1e-7).all()


def emulated(kind, gradient_sync, buffers, residuals):
    """The sum of all replicas' buffers as everyone gets it; what codes left out is put into the residuals."""
    floats, count = [buffer.float() for buffer in buffers], len(buffers)

    def passed(numbers, residual):
        return kind.decompress(kind.compress(numbers, residual if kind.feedback else None).message, numbers.shape)

    if gradient_sync == "direct":
        return torch.stack([passed(*row) for row in zip(floats, residuals, strict=True)]).unbind()
    length = -(-len(floats[0]) // count) if gradient_sync == "ps-spread" else len(floats[0])
    result = torch.empty_like(floats[0])
    for server, low in enumerate(range(0, len(floats[0]), length)):
        piece = slice(low, low + length)
        terms = [
            floats[rank][piece] if rank == server else passed(floats[rank][piece], residuals[rank][piece])
            for rank in range(count)
        ]
        result[piece] = passed(added(terms), residuals[server][piece])
    return (result,)


def added(terms):
    total = terms[0].clone()
    for term in terms[1:]:
        total += term
    return total


def gradients(graph, rank, layer, iteration):
    random = np.random.default_rng([rank, layer, iteration])
    return {p.name: torch.from_numpy(random.standard_normal(p.shape)) for p in graph.layers[layer].parameters}


def exchanged(rank, program):
    """Sums of three iterations by layer."""
    view, recorder, device = (
        RankProgram(program, rank, region_messages_of(program)),
        Recorder(program.size, CpuDevice()),
        CpuDevice(),
    )
    gradient_sync = BucketedSync(view, device, recorder, RunOptions(timeout_s=20.0))
    found = []
    for iteration in range(3):
        layers = [i for i, row in enumerate(program.graph.layers) if row.parameters]
        assert all(gradient_sync.submit(i, gradients(program.graph, rank, i, iteration)) for i in layers)
        found.append([{name: value.numpy().copy() for name, value in gradient_sync.wait(i).items()} for i in layers])
        recorder.finish()
    gradient_sync.close()
    return found


@pytest.mark.parametrize(
    ("text", "gradient_sync"), list(zip([*GRADIENT_TYPES, "float16"], cycle(DECOMPRESSING_SYNCS), strict=False))
)
def test_gradients_are_summed_as_one_process_would(ranks, text, gradient_sync):
    graph, kind = perceptron(element_bytes=8), data_type(text)
    model = CostModel(graph, star(MOST_RANKS), gradient_sync)
    spaces = spaces_of(graph, named_strategy("data", graph, MOST_RANKS), MOST_RANKS)
    program = lower(model, spaces, compressed=CompressionSettings(gradients=text))
    answers = ranks.run(exchanged, program)
    layers = [i for i, row in enumerate(graph.layers) if row.parameters]
    for place, i in enumerate(layers):
        residuals = [torch.zeros(graph.layers[i].parameter_count) for _ in range(MOST_RANKS)]
        for iteration in range(3):
            buffers = [
                torch.cat([value.flatten() for value in gradients(graph, rank, i, iteration).values()])
                for rank in range(MOST_RANKS)
            ]
            expected = added(emulated(kind, gradient_sync, buffers, residuals)).double().numpy()
            for rows in answers:
                found = np.concatenate([value.ravel() for value in rows[iteration][place].values()])
                np.testing.assert_array_equal(found, expected)


def emulated_run(graph, text, gradient_sync, chosen, count):
    """Data-parallel training of the perceptron in one process."""
    make, kind = {"dtype": torch.float64, "device": "cpu"}, data_type(text)
    parameters, losses = first_parameters(graph, chosen.seed), []
    data, names = load_data("generated", graph, seed=chosen.seed, **make), [row.name for row in graph.layers[:-1]]
    own = {name: [key for key in parameters if key[0] == name] for name in names}
    residuals = {row.name: [torch.zeros(row.parameter_count) for _ in range(count)] for row in graph.layers[:-1]}
    for number in range(chosen.steps):
        inputs = data.inputs(number, whole_box(graph.layers[0].input_shapes[0].sizes)).chunk(count)
        targets, found, losses = data.targets(number, 0, graph.batch).chunk(count), [], [*losses, 0.0]
        for rank in range(count):
            held = {key: value.clone().requires_grad_() for key, value in parameters.items()}
            values = inputs[rank].flatten(1)
            for name in names:
                values = functional.linear(values, held[name, "weight"], held[name, "bias"])
                values = values if name == names[-1] else values.relu()
            loss = functional.cross_entropy(values, targets[rank], reduction="sum") / graph.batch
            found.append(dict(zip(held, torch.autograd.grad(loss, list(held.values())), strict=True)))
            losses[-1] += float(loss.detach())
        for name in names:
            buffers = [torch.cat([row[key].flatten() for key in own[name]]) for row in found]
            total = added(emulated(kind, gradient_sync, buffers, residuals[name])).double()
            for key, piece in zip(own[name], total.split([parameters[key].numel() for key in own[name]]), strict=True):
                parameters[key] -= chosen.optimizer.learning_rate * piece.view_as(parameters[key])
    return losses, parameters


@pytest.mark.parametrize(("text", "gradient_sync"), list(zip(cycle(["one-bit", "dynamic-tree"]), DECOMPRESSING_SYNCS)))
def test_training_is_that_of_one_process_with_the_same_codes(ranks, text, gradient_sync):
    graph = perceptron(element_bytes=8)
    model = CostModel(graph, star(MOST_RANKS), gradient_sync)
    spaces = spaces_of(graph, named_strategy("data", graph, MOST_RANKS), MOST_RANKS)
    program = lower(model, spaces, compressed=CompressionSettings(gradients=text))
    optimizer = OptimizerSpec(learning_rate=0.1, momentum=0.0)
    losses, _, found = trained(ranks, program, optimizer=optimizer)
    expected, parameters = emulated_run(graph, text, gradient_sync, options(optimizer=optimizer), MOST_RANKS)
    np.testing.assert_allclose(losses, expected, rtol=1e-9)
    for key, value in parameters.items():
        np.testing.assert_allclose(found[key], value, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("text", ["dynamic-tree", "one-bit"])
def test_the_loss_falls(ranks, text):
    graph = perceptron()
    model = CostModel(graph, star(MOST_RANKS), "ps-spread")
    spaces = spaces_of(graph, named_strategy("owt", graph, MOST_RANKS), MOST_RANKS)
    kind = CompressionSettings(gradients=text, activations=text if text in TYPES else "dynamic-tree")
    chosen = {"steps": 12, "data": "generated:12", "optimizer": OptimizerSpec(learning_rate=0.3)}
    losses, _, _ = trained(ranks, lower(model, spaces, compressed=kind), **chosen)
    assert losses[-1] < 0.6 * losses[0]


@pytest.mark.parametrize(
    ("text", "digits", "gradient_sync"),
    [("float16", 11, "ring"), ("bfloat16", 8, "tree"), ("float16", 11, "double-tree"), ("bfloat16", 8, "halving")],
)
def test_plain_floats_are_summed_on_the_way(ranks, text, digits, gradient_sync):
    """Within the roundings of as many sums; the same everywhere."""
    graph = perceptron(element_bytes=8)
    model = CostModel(graph, star(MOST_RANKS), gradient_sync)
    spaces = spaces_of(graph, named_strategy("data", graph, MOST_RANKS), MOST_RANKS)
    answers = ranks.run(exchanged, lower(model, spaces, compressed=CompressionSettings(gradients=text)))
    for place, i in enumerate(i for i, row in enumerate(graph.layers) if row.parameters):
        for name, value in answers[0][0][place].items():
            parts = np.array([gradients(graph, rank, i, 0)[name].numpy() for rank in range(MOST_RANKS)])
            error = np.abs(value - parts.sum(axis=0))
            assert (error <= 2 * MOST_RANKS * np.abs(parts).sum(axis=0) * 2.0**-digits).all()
            assert error.max() > 0
            for rows in answers[1:]:
                np.testing.assert_array_equal(rows[0][place][name], value)
