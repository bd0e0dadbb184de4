"""Peak memory on a graph small enough to count by hand."""

import numpy as np
import pytest
import torch
from plans import cluster_of, program_of
from stage_memory import surely_needed_bytes

from groundwork.errors import ConfigError, InfeasiblePlanError
from hwprofiles.devices.device_graph import DeviceGraph
from planner.cost.cost_model import CostModel
from planner.layouts.configurations import Configuration
from planner.lowering.lower_strategy import lower
from planner.memory.buffers import BUFFERS, BufferRows, Buffers
from planner.memory.lifetimes import BufferLifetimes
from planner.memory.memory_policy import MemoryPolicy
from planner.memory.part_memory import part_memories
from planner.memory.peak_memory import check_plan_memory, peak_memory_bytes
from planner.models.builder import ModelBuilder
from planner.models.registry import load_model
from planner.plan.lowered_plan import lowered
from planner.simulation.memory_over_time import memory_curve
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


def peaks(strategy, count):
    model = CostModel(counted(), cluster_of("titanx-4", count))
    return (peak_memory_bytes(program_of(model, strategy(model.graph, count))) / 4).tolist()


def test_one_device_keeps_everything():
    """At conv, which goes back last: the data, its output, the gradient of that and what its activation leaves of it;
    fc's gradients until they are used; and always the parameters with momentum."""
    numbers = 4 * 16 + 128 + (128 + 128) + 99 + 2 * (4 + 99)
    assert peaks(lambda graph, count: named_strategy("data", graph, count), 1) == [numbers]


def test_data_parallelism_keeps_all_parameters_and_half_the_samples():
    """At conv too; fc's gradient is made where it is exchanged."""
    numbers = (4 * 16 + 128 + (128 + 128)) / 2 + 3 * (4 + 99)
    assert peaks(lambda graph, count: named_strategy("data", graph, count), 2) == [numbers] * 2


def test_model_parallelism_keeps_part_of_the_parameters_and_what_it_receives():
    """Channels of the convolution in halves; 3 classes do not halve, so fc and the loss are whole on device 0."""

    def strategy(graph, count):
        return named_strategy("model", graph, count)

    # at fc's weight gradient: all channels of the convolution, put together, and the gradient of them
    first = 64 + 64 + 128 + (12 + 128) + 99 + 2 * (2 + 99)
    # at the convolution: the gradient that has come, the part's, and what the activation leaves of it
    second = 64 + 64 + (64 + 64) + 2 * 2
    assert peaks(strategy, 2) == [first, second]


def test_spatial_parts_hold_copies_of_the_parameters():
    def strategy(graph, count):
        rows = named_strategy("model", graph, 1)
        return rows | {"conv": Configuration({"sample": 1, "channel": 1, "height": 2, "width": 1}, (0, 1))}

    first = 32 + 64 + 128 + (12 + 128) + 99 + 3 * 4 + 2 * 99
    second = 32 + 64 + (64 + 64) + 3 * 4
    assert peaks(strategy, 2) == [first, second]


@pytest.mark.parametrize(("optimizer", "copies"), [("sgd", 0), ("momentum", 1), ("adam", 2)])
def test_optimizers_keep_their_state(optimizer, copies):
    graph = counted()
    program = program_of(CostModel(graph, cluster_of("titanx-4", 2)), named_strategy("data", graph, 2))
    without = peak_memory_bytes(program, MemoryPolicy(optimizer=optimizer), without=("optimizer state",))
    assert (peak_memory_bytes(program, MemoryPolicy(optimizer=optimizer)) - without).tolist() == [4 * 103 * copies] * 2


def test_processors_keep_a_buffer_for_every_message():
    """A half of the convolution's channels there, and its gradient back."""
    graph = counted()
    program = program_of(CostModel(graph, cluster_of("titanx-4", 2)), named_strategy("model", graph, 2))
    lives = BufferLifetimes(program, MemoryPolicy(host=True)).persistent()
    messages = lives.take(lives.kind == BUFFERS.index("messages"))
    assert sorted(zip(messages.device.tolist(), messages.size_bytes.tolist(), strict=True)) == [(0, 256), (1, 256)]


def test_an_unknown_optimizer_is_refused():
    with pytest.raises(ConfigError, match="optimizer must be one of sgd, momentum, adam, got 'lamb'"):
        MemoryPolicy(optimizer="lamb")


@pytest.mark.parametrize(("order", "alive"), [("gpipe", (4, 4)), ("1f1b", (2, 1))])
def test_a_stage_keeps_what_the_schedule_has_in_flight(order, alive):
    """Four micro-batches of one sample; the convolution is the first stage, fc and the loss are the second."""
    graph, cluster = counted(), cluster_of("titanx-4", 2)
    strategy = {
        layer.name: Configuration(dict.fromkeys(layer.parallel_dims, 1), (int(layer.name != "conv"),))
        for layer in graph.layers
    }
    micro_batching = MicroBatching(parts=4, stages=(0, 1), order=order)
    program = lower(CostModel(graph, cluster), spaces_of(graph, strategy, 2), micro_batching=micro_batching)
    # the data and the output; going back, what has come and its sum; of 1F1B the gradients of those before
    first = (16 + 32) * alive[0] + 32 + 32 + 2 * 4 + (4 if order == "1f1b" else 0)
    # at fc's second weight gradient: the tensor received, its gradient, which leaves after the stage, and that
    # of the output; what the other micro-batches received, of 1F1B where it arrives, with the loss's outputs; the
    # gradients so far, those that come, and their sum
    waiting = 32 if order == "1f1b" else (32 + 3) * 2
    second = 32 + 32 + 3 + waiting + 3 * 99 + 2 * 99
    assert (peak_memory_bytes(program) / 4).tolist() == [first, second]
    assert (memory_curve(replay(program)).peak_bytes / 4).tolist() == [first, second]
    assert surely_needed_bytes(program)[0] / 4 == 32 * alive[0] + 32 + 3 * 4


def small_devices(memory_bytes):
    """Two devices with little memory."""
    cluster = cluster_of("titanx-4", 2)
    devices = [type(d)(name=d.name, node=d.node, profile=d.profile, memory_bytes=memory_bytes) for d in cluster.devices]
    return DeviceGraph("small", devices, cluster.vertices[2:], cluster.links)


def test_a_plan_that_does_not_fit_is_refused_with_the_numbers():
    graph = load_model("lenet5", batch=2**16)
    model = CostModel(graph, small_devices(2.0**29))
    strategy = named_strategy("data", graph, 2)
    needed = peak_memory_bytes(program_of(model, strategy)).max()

    assert needed > 2**29
    with pytest.raises(InfeasiblePlanError) as caught:
        lowered(model, strategy)
    assert f"needs {needed / 2**30:.2f} GiB, the device has 0.50 GiB" in str(caught.value)
    assert model.cluster.devices[0].name in str(caught.value)


def test_a_device_has_no_room_for_a_plan_of_its_nominal_size():
    """VGG-16 with 152 samples a device needs 11.98 GiB: of 12 GiB the context and others take more than the rest."""
    graph, cluster = load_model("vgg16", batch=2 * 152), cluster_of("titanx-4", 2)
    usable = cluster.devices[0].usable_bytes
    match = rf"needs 11\.98 GiB, the device has 12\.00 GiB, {usable / 2**30:.2f} GiB of it beside context"
    with pytest.raises(InfeasiblePlanError, match=match):
        lowered(CostModel(graph, cluster), named_strategy("data", graph, 2))
    fits = load_model("vgg16", batch=2 * 134)
    assert peak_memory_bytes(lowered(CostModel(fits, cluster), named_strategy("data", fits, 2))).max() <= usable


def test_the_fullest_device_is_named():
    """What counts is the share of its own memory."""
    graph = counted()
    program = program_of(CostModel(graph, small_devices(1000.0)), named_strategy("model", graph, 2))
    with pytest.raises(InfeasiblePlanError, match=f"on {program.cluster.devices[0].name}: "):
        check_plan_memory(program, peak_memory_bytes(program))


def test_a_plan_that_just_fits_is_kept():
    graph = counted()
    strategy = named_strategy("data", graph, 2)
    needed = peak_memory_bytes(program_of(CostModel(graph, cluster_of("titanx-4", 2)), strategy))
    fits = program_of(CostModel(graph, small_devices(float(needed.max()))), strategy)
    misses = program_of(CostModel(graph, small_devices(float(needed.max()) - 1)), strategy)

    check_plan_memory(fits, needed)
    with pytest.raises(InfeasiblePlanError):
        check_plan_memory(misses, needed)


def test_rows_are_joined_without_buffers_that_are_never_there():
    """Numbers stand for all buffers of a row; one is empty, one is released at once, one never allocated."""
    two, times = np.array([4, 7]), np.array([1.0, np.inf])
    rows = [
        BufferRows("parameters", 2, two, 8.0, 0.0, np.inf),
        BufferRows("messages", np.array([0, 1]), two, np.array([0.0, 3.0]), 1.0, 2.0),
        BufferRows("workspace", 3, two, np.asarray(5.0), times, np.array([1.5, np.inf])),
        BufferRows("data", 3, two, 5.0, 1.0, 1.0),
        BufferRows("data", 3, two[:0], 5.0, 1.0, 2.0),
    ]
    joined = Buffers.joined(rows)
    assert [BUFFERS[kind] for kind in joined.kind] == ["parameters", "parameters", "messages", "workspace"]
    assert joined.device.tolist() == [4, 7, 7, 4]
    assert joined.layer.tolist() == [2, 2, 1, 3]
    assert joined.size_bytes.tolist() == [8, 8, 3, 5]
    assert joined.allocated_s.tolist() == [0, 0, 1, 1]
    assert joined.released_s.tolist() == [np.inf, np.inf, 2, 1.5]
    assert len(Buffers.joined(rows[3:]).device) == len(Buffers.joined([]).device) == 0


def test_a_concatenation_has_its_channels_last_where_all_inputs_have():
    """As ``torch.cat`` leaves them: a convolution that reads another order copies it."""
    net = ModelBuilder("joined", batch=2, image=(8, 16, 16))
    both = [net.conv(8, 1, "input", pad=0), net.conv(4, 1, "input", pad=0)]
    joined, mixed = net.concat(both), net.concat([both[0], "input"])
    net.concat([joined, mixed])
    net.global_pool()
    net.linear(4)
    net.loss()
    graph = net.build()
    program = program_of(CostModel(graph, cluster_of("titanx-4", 1)), named_strategy("data", graph, 1))
    found = part_memories(program, MemoryPolicy(host=True))
    first, last = torch.zeros(2, 8, 16, 16), torch.zeros(2, 4, 16, 16).to(memory_format=torch.channels_last)
    for name, tensors in ((joined, [last, last]), (mixed, [last, first])):
        expected = torch.cat(tensors, 1).is_contiguous(memory_format=torch.channels_last)
        assert found[graph.index[name]].channels_last == expected


@pytest.mark.parametrize("name", ["efficientnet-b0", "swin-t", "u-net"])
def test_imported_models_of_the_catalogue_hold_all_that_their_optimizer_needs(name):
    """Also where a factor of each channel drops the positions, of which there is one."""
    graph = load_model(name, batch=1)
    model = CostModel(graph, cluster_of("titanx-4", 1))
    (peak,) = peak_memory_bytes(program_of(model, named_strategy("data", graph, 1)))
    weights = sum(each.elements for layer in graph.layers for each in layer.parameters if not each.shared)
    assert peak > 4 * (2 * weights + max(layer.output.elements for layer in graph.layers))
