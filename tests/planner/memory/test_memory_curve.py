"""Memory over time: counted by hand on small graphs, and invariants on drawn ones."""

import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from plans import cluster_of, program_of, questions, random_strategy, star

from groundwork.errors import InfeasiblePlanError
from hwprofiles.devices.device import MemoryReserve
from hwprofiles.devices.device_graph import DeviceGraph
from planner.cost.cost_model import CostModel
from planner.lowering.lower_strategy import lower
from planner.memory.buffers import BUFFERS
from planner.memory.peak_memory import check_plan_memory, peak_memory_bytes
from planner.models.builder import ModelBuilder
from planner.models.registry import load_model
from planner.simulation.memory_over_time import memory_curve, replay_that_fits
from planner.simulation.program_replay import replay
from planner.strategies.micro_batches import MicroBatching
from planner.strategies.named_strategies import named_strategy, spaces_of


def counted():
    """conv: 4 x 2 x 4 x 4 = 128 outputs, 2 x 1 + 2 = 4 parameters; fc: 4 x 3 = 12, 3 x 32 + 3 = 99; loss: 12."""
    net = ModelBuilder("counted", batch=4, image=(1, 4, 4))
    net.conv(2, 1, name="conv")
    net.linear(3, name="fc")
    net.loss()
    return net.build()


def curve_of(graph, strategy, count, *, iterations=3, spec="titanx-4"):
    model = CostModel(graph, cluster_of(spec, count))
    return memory_curve(replay(program_of(model, named_strategy(strategy, graph, count)), iterations=iterations))


def test_every_step_of_one_device_counted_by_hand():
    """Outputs are added one by one; gradients come and go from the loss down."""
    curve = curve_of(counted(), "data", 1, iterations=1)

    kept, data = 2 * (4 + 99), 4 * 16
    steps = [
        kept + data,
        kept + data + 128,  # forward: conv, fc, loss
        kept + data + 128 + 12,
        kept + data + 128 + 12 + 12,
        kept + data + 128 + 12,  # nobody needs fc's output any more
        kept + data + 128 + 12 + 12,  # the loss makes the gradient of fc's output
        kept + data + 128 + 12,  # its own output goes
        kept + data + 128 + 12 + 128,  # the gradient of conv's output comes
        kept + data + 128 + 12 + 128 + 99,  # fc's weight gradient
        kept + data + 128 + 128 + 99,  # fc's tensors go
        kept + data + 128 + 128 + 99 + 128,  # what conv's activation leaves of the gradient
        kept + data + 128 + 99 + 128 + 4,  # conv's weight gradient comes, the gradient of its output has gone
        kept + 99 + 4,  # only the updates are left
        kept + 4,
        kept,
    ]
    assert (curve.of(0)[1] / 4).tolist() == steps
    assert curve.peak_bytes.tolist() == [4 * (kept + data + 128 + 128 + 99 + 128)]


def test_lenet_on_one_device_is_the_sum_by_hand():
    """The peak is pool1's activation gradient: its places of maxima, its gradient, conv1's output and the gradient of
    that, the data, and the later parameters' gradients."""
    curve = curve_of(load_model("lenet5", batch=64), "data", 1)

    conv1, pool1, data = 20 * 24 * 24 * 64, 20 * 12 * 12 * 64, 28 * 28 * 64
    parameters = {"conv1": 520, "conv2": 25_050, "fc1": 400_500, "fc2": 5_010}
    later = sum(parameters.values()) - parameters["conv1"]
    numbers = 2 * conv1 + 2 * pool1 + pool1 + data + later + 2 * sum(parameters.values())
    assert curve.peak_bytes.tolist() == [4 * numbers]
    alive = curve.alive(0, curve.peak_time_s(0))
    assert alive["size_bytes"].sum() == curve.peak_bytes[0]
    assert alive[alive["kind"] == "kept for backward"].set_index("layer")["size_bytes"].to_dict() == {
        "pool1": 8 * pool1
    }


def test_two_devices_hold_what_they_receive_and_what_they_send_back():
    """Channels of the convolution in halves; fc and the loss are whole on device 0.

    It holds most in fc's weight gradient, with all channels put together and the gradient of all of them.
    """
    curve = curve_of(counted(), "model", 2)

    first = 2 * (2 + 99) + 64 + 64 + 128 + (12 + 128 + 99)
    second = 2 * 2 + 64 + 64 + 64 + 64
    assert (curve.peak_bytes / 4).tolist() == [first, second]
    kinds = curve.alive(0, curve.peak_time_s(0)).groupby("kind")["size_bytes"].sum() / 4
    assert kinds["assembled inputs"] == 128
    assert kinds["activation gradients"] == 12 + 128


@given(questions(models=("lenet5", "alexnet")), st.integers(1, 3))
@settings(max_examples=8)
def test_curves_hold_what_is_alive_and_end_where_they_began(question, iterations):
    """At every step the curve is the sum over the buffers then alive, and never below what is always there."""
    model, strategy = question
    curve = memory_curve(replay(program_of(model, strategy), iterations=iterations))

    known = curve.buffers
    assert set(known.kind.tolist()) <= set(range(len(BUFFERS)))
    assert (known.released_s > known.allocated_s).all()
    for device in range(len(model.cluster.devices)):
        times_s, held_bytes = curve.of(device)
        assert (np.diff(times_s) > 0).all()
        for step in np.linspace(0, len(times_s) - 1, 5).astype(int)[: len(times_s)]:
            alive = curve.alive(device, times_s[step])
            assert alive["size_bytes"].sum() == pytest.approx(held_bytes[step])
        assert held_bytes[-1:].tolist() == curve.always_bytes[device : device + 1][: len(times_s)].tolist()
        assert curve.peak_bytes[device] >= curve.always_bytes[device]


@pytest.mark.parametrize(
    ("name", "strategy"),
    [
        ("lenet5", "owt"),
        ("alexnet", "model"),
        ("vgg11", "data"),
        ("googlenet", "spatial"),
        ("googlenet", "model"),
        ("resnet18", "data"),
        ("resnet18", "owt"),
        ("cosmoflow", "spatial"),
        ("conv1d", "model"),
    ],
)
def test_the_check_before_planning_is_near_the_curve(name, strategy):
    """Devices run their tasks in program order in both; a replay also shows how long messages are on their way."""
    graph = load_model(name, batch=16)
    curve = curve_of(graph, strategy, 4)
    checked = peak_memory_bytes(curve.program)

    assert 0.99 * curve.peak_bytes.max() <= checked.max() <= curve.peak_bytes.max() * (1 + 1e-9)


def test_curves_repeat_to_the_last_bit():
    first, second = (curve_of(load_model("lenet5", batch=64), "model", 4) for _ in range(2))

    assert first.time_s.tobytes() == second.time_s.tobytes()
    assert first.held_bytes.tobytes() == second.held_bytes.tobytes()


def test_a_plan_that_only_the_replay_shows_too_large_is_refused():
    """Devices that run ahead of each other hold more than the check before planning counts."""
    graph, cluster = load_model("cosmoflow", batch=16), cluster_of("p100-4x4", 4)
    model = CostModel(graph, cluster)
    program = program_of(model, random_strategy(graph, 4, np.random.default_rng(0)))
    checked, held = (peak.max() for peak in (peak_memory_bytes(program), memory_curve(replay(program)).peak_bytes))
    assert checked < held

    between = (checked + held) / 2
    devices = [
        dataclasses.replace(device, memory_bytes=between, memory_reserve=MemoryReserve()) for device in cluster.devices
    ]
    small = DeviceGraph("small", devices, cluster.vertices[4:], cluster.links)
    check_plan_memory(dataclasses.replace(program, cluster=small), peak_memory_bytes(program))
    with pytest.raises(InfeasiblePlanError, match=f"needs {held / 2**30:.2f} GiB"):
        replay_that_fits(dataclasses.replace(program, cluster=small))


def test_sub_batches_hold_less_where_they_go_one_by_one():
    """On one device: layers behind the cut hold one sub-batch at a time, or all of them."""
    graph = load_model("lenet5", batch=64)
    model = CostModel(graph, star(1))
    spaces = spaces_of(graph, named_strategy("data", graph, 1), 1)
    peaks, numbers = {}, ("parameters", "optimizer state", "parameter gradients", "workspace")
    for name, micro_batching in {
        "whole": MicroBatching(),
        "each": MicroBatching(parts=4, first=0),
        "all": MicroBatching(parts=4, first=0, order="all"),
    }.items():
        program = lower(model, spaces, micro_batching=micro_batching)
        peaks[name] = peak_memory_bytes(program, without=numbers)[0]
        assert peak_memory_bytes(program)[0] == memory_curve(replay(program, iterations=1)).peak_bytes[0]
    assert peaks["each"] < 0.3 * peaks["whole"]
    assert peaks["each"] < peaks["all"] <= peaks["whole"]
