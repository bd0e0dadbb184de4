"""The prediction of memory beside the allocations that real runs count."""

from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch
from counted_memory import counted, imported, peaked, spread
from imported_networks import NETWORKS
from plans import cluster_of
from ranks import options, pool_of

from executor.measurement.memory_meter import ALLOCATED, MemoryMeter
from executor.runtime.optimizer_spec import OptimizerSpec
from executor.runtime.predicted_memory import memory_policy_of, predicted_bytes
from planner.cost.conditions import Conditions
from planner.cost.cost_model import CostModel
from planner.graph.type_roles import DataTypes
from planner.lowering.lower_strategy import lower
from planner.memory.backend_memory import SCRATCH_PHASES
from planner.memory.cpu_backend import CHANNELS_LAST_POSITIONS
from planner.memory.part_memory import part_memories
from planner.models.builder import ModelBuilder
from planner.models.registry import load_model
from planner.strategies.micro_batches import WHOLE_BATCH, MicroBatching
from planner.strategies.named_strategies import named_strategy, spaces_of
from planner.strategies.recomputation import Recompute

pytestmark = pytest.mark.timeout(200)
RANKS = 2


ranks = pool_of(RANKS)


SMALL = "layers=1,hidden=128,heads=4,ffn=256"
CASES = [
    ("lenet5", "data", 16, Recompute(), OptimizerSpec(momentum=0.0)),
    ("alexnet-cifar", "spatial", 32, Recompute(), OptimizerSpec(name="adam")),
    ("resnet-cifar:depth=8", "model", 32, Recompute(), OptimizerSpec()),
    ("resnet-cifar:depth=8", "spatial", 32, Recompute(("layer1.0.add", "layer2.0.add")), OptimizerSpec()),
    (f"gpt2:{SMALL},words=500,sequence=64", "tensor=2", 4, Recompute(), OptimizerSpec()),
    (f"bert-base:{SMALL},words=500,sequence=64", "tensor=2,sequence", 4, Recompute(), OptimizerSpec()),
    (
        f"gpt2:{SMALL},words=500,sequence=64",
        "tensor=2,sequence",
        8,
        Recompute(gathers=True),
        OptimizerSpec(momentum=0.0),
    ),
    (
        f"llama-1b:{SMALL},kv_heads=2,words=50,sequence=64",
        "tensor=2",
        8,
        Recompute(),
        OptimizerSpec(momentum=0.0),
    ),
    ("alexnet-cifar", "channel=2", 16, Recompute(), OptimizerSpec(momentum=0.0)),
    (f"gpt2:{SMALL},words=500,sequence=64", "channel=2", 8, Recompute(), OptimizerSpec(momentum=0.0)),
    (
        f"mixtral:{SMALL},kv_heads=2,words=50,sequence=64,experts=4",
        "expert=2",
        8,
        Recompute(),
        OptimizerSpec(momentum=0.0),
    ),
    (f"bert-base:{SMALL},words=500,sequence=64", "data", 8, Recompute(), OptimizerSpec(name="adam")),
    (f"vit-b16:{SMALL},classes=10,image=64", "model", 4, Recompute(), OptimizerSpec()),
]
"""Kinds whose memory was off: convolutions with their channels last, of wide windows and of uneven slices, collectives
of activations, dropout of tensors with their channels last, heads that share keys, slices of input channels, RMS norms,
and rows that go back from experts."""


@pytest.mark.parametrize(("model", "name", "batch", "recompute", "optimizer"), CASES)
def test_the_prediction_is_within_three_percent_or_one(ranks, model, name, batch, recompute, optimizer):
    graph = load_model(model, batch=batch)
    program = spread(graph, name, RANKS, recompute=recompute)
    given = options(steps=2, optimizer=optimizer)
    predicted = predicted_bytes(program, given)
    # collectives leave no rank ahead of others, and matrix products need no copies that a library makes
    error = 0.01 if name.startswith(("tensor", "expert")) else 0.03
    for row, size in zip(ranks.run(counted, program, given), predicted, strict=True):
        found = dict(zip(ALLOCATED, row, strict=True))
        assert size == pytest.approx(found["peak"], rel=error)
        assert sum(row[1:]) == pytest.approx(found["peak"])
        states = memory_policy_of(optimizer, host=True).states
        assert found["optimizer_state"] == states * found["parameters"]


@pytest.mark.parametrize(("strategy", "micro_batches"), [("data=2,fsdp", 1), ("data=2,zero=2", 2)])
def test_the_prediction_of_divided_storage(ranks, strategy, micro_batches):
    """A unit's parameters and gradients are whole for a while; the table's gradients meet in each micro-batch."""
    graph = load_model("gpt2:layers=2,hidden=128,heads=4,words=500,sequence=64", batch=4)
    parts = MicroBatching(parts=micro_batches, first=0) if micro_batches > 1 else WHOLE_BATCH
    program, given = spread(graph, strategy, RANKS, micro_batching=parts), options(optimizer=OptimizerSpec(name="adam"))
    predicted = predicted_bytes(program, given)
    assert predicted == pytest.approx(least_peaks(ranks, program, given, predicted), rel=0.03)


def plain_peak(name):
    """Peak of a network that plain PyTorch trains with momentum, with its parameters and its data."""
    network = NETWORKS[name]
    module, shape = network.make(), [int(size) for size in network.sizes.partition(":")[0].split("x")]
    inputs = torch.zeros(shape, dtype=torch.int64 if network.sizes.endswith(":int") else torch.float32)
    with torch.no_grad():
        output = module(inputs)
    targets = torch.zeros(output.shape[:-1], dtype=torch.int64)
    if network.loss == "mean_squared_error":
        targets = torch.zeros_like(output).movedim(-1, 1)
    optimizer, before = torch.optim.SGD(module.parameters(), momentum=0.9), [*module.parameters(), inputs, targets]
    meter = MemoryMeter()
    meter.start()
    for _ in range(2):
        optimizer.zero_grad()
        network.loss_of(module(inputs), targets).backward()
        optimizer.step()
    return meter.stop().peak_bytes + sum(each.nbytes for each in before)


@pytest.mark.parametrize("name", ["gpt2-tiny", "llama-tiny", "convnext-t"])
def test_imported_networks_take_the_memory_of_plain_pytorch(ranks, name):
    """One rank, which holds the whole network, takes at most 3 % more than PyTorch itself; the prediction says how much
    to 3 %."""
    program, given = spread(imported(name), "data", RANKS, 1), options(steps=2, optimizer=OptimizerSpec(momentum=0.9))
    (peak, *_), _ = ranks.run(counted, program, given)
    assert peak < 1.03 * plain_peak(name)
    assert predicted_bytes(program, given)[0] == pytest.approx(peak, rel=0.03)


@pytest.mark.parametrize("name", ["mobilenet-v2", "windows"])
def test_the_prediction_of_kernels_that_make_two_gradients_and_of_windows(ranks, name):
    """The kernel of PReLU makes a gradient of its slopes for every element; windows lie as products read them."""
    check_one_rank(ranks, imported(name, 32))


@pytest.mark.parametrize("model", [f"gpt2:{SMALL}", f"llama-1b:{SMALL},kv_heads=2"])
def test_the_prediction_of_losses_and_rms_norms_in_sixteen_bits(ranks, model):
    """Scores are converted to float32 for the loss, and its gradient back, as is what an RMS norm reads."""
    graph = load_model(f"{model},words=500,sequence=64", batch=8, element_bytes=2)
    types = replace(DataTypes.of("bfloat16"), product="")
    prices = CostModel(graph, cluster_of("titanx-4", RANKS), conditions=Conditions(types=types))
    program = lower(prices, spaces_of(graph, named_strategy("data", graph, RANKS), RANKS))
    given = options(steps=2)
    (peak, *_), *_ = ranks.run(counted, program, given)
    assert predicted_bytes(program, given)[0] == pytest.approx(peak, rel=0.03)


def test_the_prediction_of_one_sample(ranks):
    """A batch of one says nothing of where samples lie: attention keeps its scores no more than of two."""
    check_one_rank(ranks, load_model("gpt2:layers=1,hidden=64,words=53,sequence=256", batch=1))


def test_the_prediction_of_one_small_volume(ranks):
    """PyTorch makes columns of its windows, and compares no more than the first four dimensions with what is small."""
    net = ModelBuilder("volume", batch=1, image=(4, 32, 32, 32))
    net.conv(8, 3, pad=1)
    net.pool("average", 2)
    net.conv(8, 3, pad=1)
    net.global_pool()
    net.linear(4)
    net.loss()
    check_one_rank(ranks, net.build())


AVX_512 = torch.backends.cpu.get_cpu_capability() == "AVX512"


@pytest.fixture
def one_thread():
    """Several threads sum gradients in buffers of their own."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.mark.usefixtures("one_thread")
@pytest.mark.parametrize(
    ("samples", "channels", "made", "kernel", "groups", "stride", "size"),
    [
        *((32, channels, 24, kernel, 1, 1, 7) for channels in (3, 4, 12, 20) for kernel in (1, 3)),
        *((32, channels, 16, 1, 1, 2, 7) for channels in (8, 20)),
        *((32, channels, channels, 3, channels, stride, 7) for channels in (4, 24) for stride in (1, 2)),
        (32, 32, 32, 3, 2, 1, 7),
        *((32, channels, 50, kernel, 1, 1, 14) for channels in (3, 20, 64) for kernel in (1, 5)),
        *((32, 40, 40, kernel, 40, 1, 14) for kernel in (3, 5)),
        *((32, channels, channels, 3, 8, 1, 14) for channels in (64, 128)),
        (32, 3, 128, 16, 1, 16, 64),
        *((32, 64, 128, kernel, 1, 2, 56) for kernel in (1, 3, 7)),
        *((1, channels, 16, 3, 1, 1, 16) for channels in (1, 3, 32)),
        *((1, 16, 16, kernel, 1, 1, 16) for kernel in (1, 5)),
        *((1, 80, channels, 3, 1, 1, 16) for channels in (16, 24)),
        *((1, 81, channels, 3, 1, 1, 16) for channels in (16, 24)),
        *((1, 16, 32, kernel, 1, 2, size) for kernel in (1, 3) for size in (4, 16)),
        *((1, 16, 16, kernel, 1, 1, 2) for kernel in (1, 3)),
        (1, 16, 16, 3, 16, 1, 16),
        *((8, channels, 8, 3, 1, 2, size) for channels in (4, 8) for size in (8, 16)),
    ],
)
def test_the_copies_that_a_library_makes_for_a_convolution(samples, channels, made, kernel, groups, stride, size):
    if not AVX_512 and (made == 50 or channels == 81 or (stride == 2 and made == 128 and kernel < 7)):
        pytest.skip("on processors without AVX-512 the library fills these channels up to other blocks")
    check_copies(samples, channels, made, kernel, groups, stride, size)


@pytest.mark.skipif(AVX_512, reason="the library has other kernels on this processor")
@pytest.mark.usefixtures("one_thread")
@pytest.mark.parametrize(("channels", "made", "size"), [(1, 3, 28), (1, 6, 28), (2, 8, 14), (3, 8, 14), (6, 8, 14)])
def test_gradients_of_weights_of_few_channels_in_blocks_of_eight(channels, made, size):
    """Of three channels alone images are read as they are."""
    check_copies(32, channels, made, 5, 1, 1, size)


@pytest.mark.usefixtures("one_thread")
@pytest.mark.parametrize(
    ("channels", "made", "kernel", "groups", "size"), [(40, 40, 5, 40, 14), (24, 24, 3, 24, 7), (20, 24, 3, 1, 7)]
)
def test_the_library_keeps_as_many_channels_together_as_the_processor_takes(channels, made, kernel, groups, size):
    check_copies(32, channels, made, kernel, groups, 1, size)


def check_copies(samples, channels, made, kernel, groups, stride, size):
    """Counted in one call of the library for each phase; 64 bytes are its own rounding.

    Of one small sample PyTorch makes columns instead.  Tensors have their channels last from 12 positions on.
    """
    net, pad = ModelBuilder("one", batch=samples, image=(channels, size, size)), kernel // 2
    shape = samples, channels, size, size
    net.conv(made, kernel, stride=stride, pad=pad, groups=groups, bias=False)
    net.global_pool()
    net.linear(4)
    net.loss()
    policy = memory_policy_of(OptimizerSpec(), host=True)
    predicted = part_memories(spread(net.build(), "data", 1), policy)[0].scratch
    last = channels > 1 and size * size >= CHANNELS_LAST_POSITIONS
    order = torch.channels_last if last else torch.contiguous_format
    inputs = torch.zeros(shape).contiguous(memory_format=order)
    weight = torch.zeros(made, channels // groups, kernel, kernel)
    form = ([stride] * 2, [pad] * 2, [1, 1], False, [0, 0], groups)
    gradient = torch.ops.aten.convolution(inputs, weight, None, *form)
    calls = {
        "forward": lambda: torch.ops.aten.convolution(inputs, weight, None, *form),
        **{
            phase: partial(
                torch.ops.aten.convolution_backward,
                *(gradient, inputs, weight, [made], *form, [phase == name for name in (*SCRATCH_PHASES[1:], "")]),
            )
            for phase in SCRATCH_PHASES[1:]
        },
    }
    for phase, result in zip(SCRATCH_PHASES, (gradient, inputs, weight), strict=True):
        meter = MemoryMeter()
        meter.start()
        kept = calls[phase]()
        peak = meter.stop().peak_bytes - result.nbytes
        del kept
        assert predicted[phase][0] == pytest.approx(peak, rel=0.03, abs=64), phase


@pytest.mark.parametrize("batch", [2, 8])
def test_the_prediction_of_transposed_convolutions(ranks, batch):
    check_one_rank(ranks, imported("crossing", batch))


def test_the_prediction_of_one_table_for_words_and_scores(ranks):
    """The gradients of both are added where one of them is, as PyTorch adds them."""
    check_one_rank(ranks, load_model("gpt2:layers=1,hidden=64,words=5000,sequence=8", batch=2))


def check_one_rank(ranks, graph):
    program, given = spread(graph, "data", RANKS, 1), options(steps=2)
    (peak, *_), _ = ranks.run(counted, program, given)
    assert predicted_bytes(program, given)[0] == pytest.approx(peak, rel=0.03)


def least_peaks(ranks, program, given, predicted):
    """Peaks of the ranks, each the least of up to three runs, the first of which may be as predicted.

    A rank that runs ahead of the others holds its messages longer.
    """
    least = np.inf
    for _ in range(3):
        least = np.minimum(least, [row[0] for row in ranks.run(counted, program, given)])
        if predicted == pytest.approx(least, rel=0.03):
            break
    return least


@pytest.mark.parametrize(
    ("name", "strategy"),
    [
        ("gpt2-tiny", "data"),
        ("mobilenet-v2", "data"),
        ("gpt2-published", "model"),
        ("llama-tiny", "model"),
    ],
)
def test_the_prediction_of_divided_imported_networks(ranks, name, strategy):
    program, given = spread(imported(name), strategy, RANKS), options(steps=2, optimizer=OptimizerSpec(name="adam"))
    predicted = predicted_bytes(program, given)
    assert predicted == pytest.approx(least_peaks(ranks, program, given, predicted), rel=0.03)


@pytest.mark.parametrize("name", ["mobilenet-v2", "convnext-t"])
def test_the_prediction_of_imported_networks_split_by_positions(ranks, name):
    """Gradients of padded regions are views, and few samples leave what the library takes of its own in sight."""
    check_positions(ranks, imported(name))


@pytest.mark.parametrize("pooled", [False, True])
def test_the_prediction_of_one_sample_split_by_positions(ranks, pooled):
    """Columns of windows; behind a pool what is assembled lies as where nothing is."""
    net = ModelBuilder("dense", batch=1, image=(3, 64, 64) if pooled else (3, 32, 32))
    last = net.conv(16, 3, pad=1, batch_norm=True)
    if pooled:
        last = net.pool("max", 3, stride=2, pad=1)
    for _ in range(3):
        if pooled:
            net.batch_norm()
        features = net.conv(16, 1 if pooled else 3, pad=0 if pooled else 1, bias=False, activation=None)
        last = net.concat((last, features))
    net.global_pool()
    net.linear(4)
    net.loss()
    check_positions(ranks, net.build())


def check_positions(ranks, graph):
    program, given = spread(graph, "spatial", RANKS), options(steps=2)
    predicted = predicted_bytes(program, given)
    assert predicted == pytest.approx(least_peaks(ranks, program, given, predicted), rel=0.03)


@pytest.mark.parametrize(
    ("kind", "strategy"),
    [
        ("local_response_norm", "data"),
        ("local_response_norm", "model"),
        ("concat", "data"),
        ("dropout", "data"),
        ("dropout", "model"),
        ("batch_norm", "data"),
    ],
)
def test_the_prediction_where_one_layer_has_the_peak(ranks, kind, strategy):
    program, given = spread(peaked(kind), strategy, RANKS), options(steps=2, optimizer=OptimizerSpec(momentum=0.0))
    predicted = predicted_bytes(program, given)
    assert predicted == pytest.approx(least_peaks(ranks, program, given, predicted), rel=0.03)


@pytest.mark.parametrize(
    ("model", "schedule"),
    [
        *(("alexnet-cifar", schedule) for schedule in ("gpipe", "1f1b", "interleaved", "zero-bubble")),
        (f"gpt2:{SMALL},words=500,sequence=64", "gpipe"),
    ],
)
def test_the_prediction_of_pipelines(ranks, model, schedule):
    """Gradients of micro-batches are added once what computed them is released, also of a table that stages share."""
    program, given = spread(load_model(model, batch=32), schedule, RANKS), options(steps=2)
    predicted = predicted_bytes(program, given)
    assert predicted == pytest.approx(least_peaks(ranks, program, given, predicted), rel=0.03)
