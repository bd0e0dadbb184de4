"""Refusals name the device, the numbers, and changes that fit: each is made and checked."""

import dataclasses
import re

import pytest
from plans import cluster_of

from groundwork.errors import DeviceMemoryError
from hwprofiles.devices.device import MemoryReserve
from hwprofiles.devices.device_graph import DeviceGraph
from planner.cost.conditions import Conditions
from planner.cost.cost_model import CostModel
from planner.lowering.lower_strategy import lower
from planner.memory.fit_advice import fitting_changes
from planner.memory.peak_memory import peak_memory_bytes
from planner.models.registry import load_model
from planner.plan.lowered_plan import lowered
from planner.strategies.micro_batches import WHOLE_BATCH, MicroBatching
from planner.strategies.named_strategies import named_strategy, spaces_of
from planner.strategies.recomputation import SEGMENTS, recompute_of

COUNT = 4


def small(memory_bytes):
    """Four devices with little memory."""
    cluster = cluster_of("titanx-4", COUNT)
    devices = [
        dataclasses.replace(device, memory_bytes=memory_bytes, memory_reserve=MemoryReserve())
        for device in cluster.devices
    ]
    return DeviceGraph("small", devices, cluster.vertices[COUNT:], cluster.links)


def need(graph, cluster, name="data", *, micro_batching=WHOLE_BATCH, recompute="none"):
    spaces = spaces_of(graph, named_strategy(name, graph, COUNT), COUNT)
    program = lower(
        CostModel(graph, cluster),
        spaces,
        micro_batching=micro_batching,
        recompute=recompute_of(graph, recompute, micro_batching),
    )
    return peak_memory_bytes(program).max()


def refusal(graph, memory_bytes, name="data"):
    model = CostModel(graph, small(memory_bytes))
    with pytest.raises(DeviceMemoryError) as caught:
        lowered(model, named_strategy(name, graph, COUNT))
    return caught.value


def test_gathering_again_is_named_where_it_is_enough():
    """Inputs of columns under ``sequence``, in a network whose positions are gathered."""
    graph = load_model("gpt2:layers=2,hidden=64,heads=4,words=100,sequence=128", batch=8)
    again = need(graph, small(1.0), "tensor=4,sequence", recompute="gathers")
    assert again < need(graph, small(1.0), "tensor=4,sequence")
    assert refusal(graph, again, "tensor=4,sequence").change.startswith("what fits: --recompute gathers, or ")


def test_recomputation_is_named_where_it_is_enough():
    graph = load_model("resnet-cifar:depth=8", batch=64)
    again = need(graph, small(1.0), recompute=SEGMENTS)
    error = refusal(graph, again)
    assert error.change.startswith("what fits: --recompute segments, or ")
    assert error.device == small(1.0).devices[0].name
    assert (error.needed_bytes, error.capacity_bytes) == (need(graph, small(1.0)), again)
    assert f"needs {error.needed_bytes / 2**30:.2f} GiB, the device has {again / 2**30:.2f} GiB; {error.change}" in str(
        error
    )


def test_every_change_named_fits_and_smaller_ones_do_not():
    """Micro-batches are the fewest, the batch the largest by eighths, and named strategies are those that fit."""
    graph = load_model("resnet-cifar:depth=8", batch=64)
    capacity = 0.9 * need(graph, small(1.0), recompute=SEGMENTS)
    error = refusal(graph, capacity)
    pieces = int(re.search(r"--micro-batches (\d+)", error.change)[1])
    assert need(graph, small(1.0), micro_batching=MicroBatching(parts=pieces, first=0)) <= capacity
    assert pieces == 2 or need(graph, small(1.0), micro_batching=MicroBatching(parts=pieces // 2, first=0)) > capacity
    assert not error.change.startswith("what fits: --recompute segments")


def test_a_smaller_batch_is_as_many_more_devices():
    graph = load_model("lenet5", batch=36)
    capacity = need(load_model("lenet5", batch=16), small(1.0))
    model = CostModel(graph, small(capacity))
    program = lower(model, spaces_of(graph, named_strategy("data", graph, COUNT), COUNT))
    change = fitting_changes(model, program, most=20)[-1]
    batch, times = map(int, re.search(r"--batch (\d+) \(or (\d+) times the devices\)", change.words).groups())
    assert change.fields == {"batch": batch}
    assert need(load_model("lenet5", batch=batch), small(1.0)) <= capacity
    assert times == -(-36 // batch)


def test_where_nothing_fits_more_devices_are_left():
    error = refusal(load_model("lenet5", batch=4), 1000.0)
    assert error.change == (
        "use more devices: no recomputation, sub-batches, named strategy or smaller batch that was tried fits"
    )


def test_the_optimizer_counts():
    graph = load_model("vgg16", batch=8)
    model = CostModel(graph, small(need(graph, small(1.0))))
    strategy = named_strategy("data", graph, COUNT)
    lowered(model, strategy)
    lowered(dataclasses.replace(model, conditions=Conditions(optimizer="sgd")), strategy)
    with pytest.raises(DeviceMemoryError):
        lowered(dataclasses.replace(model, conditions=Conditions(optimizer="adam")), strategy)
