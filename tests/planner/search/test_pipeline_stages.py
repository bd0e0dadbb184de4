"""Stages of pipelines: the partition against every other one, judged from lowered programs."""

from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from plans import ALPHA_S, BYTES_PER_S, residual_block, star
from stage_memory import surely_needed_bytes

from groundwork.errors import ConfigError, InfeasiblePlanError
from hwprofiles.devices.device import MemoryReserve
from hwprofiles.devices.device_graph import DeviceGraph
from planner.cost.cost_model import CostModel
from planner.layouts.configurations import Configuration
from planner.lowering.lower_strategy import lower
from planner.lowering.program import KINDS
from planner.memory.peak_memory import peak_memory_bytes
from planner.models.builder import ModelBuilder
from planner.models.registry import load_model
from planner.search.pipeline_strategy import Pipeline, pipeline_strategy
from planner.strategies.micro_batches import MicroBatching
from planner.strategies.named_strategies import spaces_of
from planner.strategies.recomputation import KEEP_ACTIVATIONS, recompute_of


def chain(sizes, batch):
    """Fully connected layers one after another."""
    net = ModelBuilder("chain", batch=batch, image=(8, 4, 4))
    net.conv(4, 3, pad=1)
    for size in sizes:
        net.linear(size)
    net.loss()
    return net.build()


def small(count, memory_bytes, share=0.0):
    cluster = star(count)
    reserve = MemoryReserve(share=share)
    devices = [replace(device, memory_bytes=memory_bytes, memory_reserve=reserve) for device in cluster.devices]
    return DeviceGraph("small", devices, ["switch"], cluster.links)


def lowered(model, micro_batching, recompute=KEEP_ACTIVATIONS):
    """A stage a device."""
    strategy = {
        layer.name: Configuration(dict.fromkeys(layer.parallel_dims, 1), (micro_batching.stage_of(i),))
        for i, layer in enumerate(model.graph.layers)
    }
    spaces = spaces_of(model.graph, strategy, len(model.cluster.devices))
    return lower(model, spaces, micro_batching=micro_batching, recompute=recompute)


def stage_times_s(program):
    """Work of each stage's device, and its transfers to the next with those back, one after another."""
    micro_batching, moved = program.micro_batching, program.kind == KINDS.index("transfer")
    stage = np.array([micro_batching.stage_of(i) for i in program.layer])
    assert (program.device[~moved] == stage[~moved] % len(program.cluster.devices)).all()
    seconds = np.where(moved, program.size_bytes / BYTES_PER_S + ALPHA_S, program.work_s)
    return np.bincount(stage, seconds, minlength=len(micro_batching.stages))


@settings(max_examples=9)
@given(
    sizes=st.lists(st.sampled_from([8, 64, 512, 2048]), min_size=1, max_size=4),
    stages=st.integers(1, 4),
    schedule=st.sampled_from(["gpipe", "1f1b"]),
    memory_bytes=st.floats(1e4, 3e7),
)
def test_no_other_cut_that_fits_has_a_faster_slowest_stage(sizes, stages, schedule, memory_bytes):
    graph = chain(sizes, batch=8)
    count = len(graph.layers)
    stages = min(stages, count)
    model = CostModel(graph, small(stages, memory_bytes, share=0.1))
    slowest_s, needs = {}, []
    for micro_batchings in combinations(range(1, count), stages - 1):
        program = lowered(model, MicroBatching(parts=4, order=schedule, stages=(0, *micro_batchings)))
        needs.append(surely_needed_bytes(program).max())
        if needs[-1] <= 0.9 * memory_bytes:
            slowest_s[0, *micro_batchings] = stage_times_s(program).max()
    asked = Pipeline(stages=stages, micro_batches=4, schedule=schedule)
    if not slowest_s:
        with pytest.raises(InfeasiblePlanError, match=f"stage . of {stages}, .* does not fit on node.*: needs"):
            pipeline_strategy(model, asked)
        return
    _, micro_batching = pipeline_strategy(model, asked)
    assert slowest_s[micro_batching.stages] == pytest.approx(min(slowest_s.values()), rel=1e-9)


@pytest.mark.parametrize(
    ("model", "schedule", "stages"),
    [
        ("block", "gpipe", 2),
        ("block", "1f1b", 3),
        ("block", "1f1b", 4),
        ("resnet-cifar:depth=8", "1f1b", 2),
        ("resnet-cifar:depth=8", "gpipe", 3),
        ("resnet-cifar:depth=8", "gpipe", 4),
    ],
)
def test_what_is_refused_would_not_fit_lowered(model, schedule, stages):
    """Of networks with branches the partition counts what is surely needed."""
    graph = residual_block() if model == "block" else load_model(model, batch=8)
    asked = Pipeline(stages=stages, micro_batches=4, schedule=schedule)
    roomy = CostModel(graph, small(stages, 1e12))
    _, fastest = pipeline_strategy(roomy, asked)
    needed = surely_needed_bytes(lowered(roomy, fastest)).max()
    _, micro_batching = pipeline_strategy(CostModel(graph, small(stages, needed)), asked)
    assert micro_batching == fastest


def test_what_a_recomputation_releases_refuses_no_division():
    """With memory for parameters and a little more, only stages that recompute can be had, and they fit lowered."""
    graph = chain([64] * 16, batch=4096)
    request = Pipeline(schedule="gpipe", stages=2, micro_batches=8)
    _, bounds = pipeline_strategy(CostModel(graph, small(2, 1e12)), request)
    kept, again = (
        peak_memory_bytes(lowered(CostModel(graph, small(2, 1e12)), bounds, recompute=recompute)).max()
        for recompute in (KEEP_ACTIVATIONS, recompute_of(graph, "segments", bounds))
    )
    assert again < kept
    model = CostModel(graph, small(2, again))
    with pytest.raises(InfeasiblePlanError):
        pipeline_strategy(model, request)
    _, divided = pipeline_strategy(model, replace(request, recomputes=True))
    assert divided.stages == bounds.stages


def test_the_error_names_the_stage_its_need_and_the_capacity():
    outputs = 2**20
    model = CostModel(chain([outputs], batch=8), small(2, 5e8))
    with pytest.raises(InfeasiblePlanError) as caught:
        pipeline_strategy(model, Pipeline(stages=2, micro_batches=4))
    parameters, samples = 3 * (4 * 4 * 4 + 1) * outputs, 2
    # the loss on the other device: outputs of two micro-batches and a gradient; the convolution's are few
    gib = 4 * (parameters + 3 * samples * outputs) / 2**30
    assert f"stage 1 of 2, conv1 to fc1, does not fit on node0/gpu: needs {gib:.2f} GiB" in str(caught.value)
    assert f"the device has {5e8 / 2**30:.2f} GiB" in str(caught.value)


@pytest.mark.parametrize(
    ("asked", "reason"),
    [
        ({"stages": 5}, "stages must be 1 to the 4 layers of chain, got 5"),
        ({"stages": -1}, "stages must be 1 to the 4 layers"),
        ({"stages": 4}, "stages must be at most the 3 devices for 1f1b, got 4"),
        ({"stages": 4, "schedule": "interleaved"}, "stages must be a multiple of the 3 devices"),
        ({"schedule": "interleaved", "stages": 3, "micro_batches": 4}, "micro_batches must be a multiple of the 3"),
        ({"schedule": "interleaved", "stages": 3}, "batch must be a multiple of the 3 devices"),
        ({"micro_batches": 3}, "micro_batches must be >= 1 and divide the batch of 8, got 3"),
        ({"micro_batches": -1}, "micro_batches must be >= 1"),
        ({"schedule": "2f2b"}, "schedule must be one of gpipe, 1f1b, interleaved, zero-bubble, got '2f2b'"),
        ({"schedule": "zb-h1"}, "got 'zb-h1'; did you mean 'zero-bubble'\\?"),
        ({"stage_at": ("fc9",)}, "stage_at must name layers of chain, got 'fc9'"),
        ({"stage_at": ("fc2", "fc1")}, "stage_at must name later layers one after another, got fc2, fc1"),
        ({"stage_at": ("conv1",)}, "stage_at must name later layers one after another, got conv1"),
        ({"stage_at": ("fc1",), "stages": 3}, "stages must be the 2 that stage_at begins, got 3"),
    ],
)
def test_what_cannot_be_had_is_refused(asked, reason):
    model = CostModel(chain([16, 8], batch=8), star(3))
    with pytest.raises(ConfigError, match=reason):
        pipeline_strategy(model, Pipeline(**asked))


@pytest.mark.parametrize(
    ("asked", "stages", "micro_batches"),
    [({}, 3, 8), ({"schedule": "interleaved", "stages": 3, "micro_batches": 6}, 3, 6), ({"stages": 1}, 1, 4)],
)
def test_what_is_not_said_is_chosen(asked, stages, micro_batches):
    model = CostModel(chain([16, 8], batch=24 if asked.get("micro_batches") else 8), star(3))
    _, micro_batching = pipeline_strategy(model, Pipeline(**asked))
    assert (len(micro_batching.stages), micro_batching.parts) == (stages, micro_batches)
