"""Sums over replicas by the rounds of every scheme, against a plain sum of what all ranks had."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from plans import program_of, star
from ranks import Ranks

from executor.communication.bucketed_sync import BucketedSync
from executor.communication.reduction import Reducer
from executor.program.buckets import reductions_of
from executor.program.messages import region_messages_of
from executor.program.rank_program import RankProgram
from executor.program.recorder import Recorder
from executor.runtime.devices import CpuDevice
from executor.runtime.run_options import RunOptions
from hwprofiles.devices.device_graph import DeviceGraph
from planner.cost.cost_model import CostModel
from planner.memory.cpu_backend import PAIR_BYTES
from planner.models.builder import ModelBuilder
from planner.strategies.named_strategies import named_strategy
from simulator.collectives.schemes import ALL_REDUCES

pytestmark = pytest.mark.timeout(120)
MOST_RANKS = 4
SIZES = (1, 2, 5, 7, 64, 1003)
"""Numbers in a buffer: fewer than pieces, no multiple of them, and many."""


@pytest.fixture(scope="module")
def ranks():
    pool = Ranks(MOST_RANKS)
    yield pool
    pool.close()


def pairs(count):
    """A star whose devices sit two by two in nodes, so that hierarchies have two levels."""
    alone = star(count)
    devices = [replace(device, node=i // 2) for i, device in enumerate(alone.devices)]
    return DeviceGraph("pairs", devices, ["switch"], alone.links)


def program(count, scheme):
    """Three linear layers, each with a replica on every device."""
    net = ModelBuilder("three", batch=12, image=(3, 2, 2))
    for channels in (5, 7, 3):
        net.linear(channels)
    net.loss()
    graph = net.build()
    graph.element_bytes = 8
    model = CostModel(graph, pairs(count), scheme)
    return program_of(model, named_strategy("data", graph, count))


def buffer(rank, size):
    return torch.from_numpy(np.random.default_rng([rank, size]).standard_normal(size))


def sums(rank, lowered, sizes):
    """What a rank holds after summing a buffer of each size, and the bytes that it sent for each."""
    view = RankProgram(lowered, rank, region_messages_of(lowered))
    recorder = Recorder(lowered.size, CpuDevice())
    reducer = Reducer(view, recorder, statistics=False)
    found = []
    for size in sizes:
        content = buffer(rank, size)
        for chain in reductions_of(view, statistics=False)[:1]:
            reducer.sum(chain, content)
            found.append((content.numpy(), float(np.nansum(recorder.finish().sent_bytes))))
    reducer.close()
    return found


@pytest.mark.parametrize("count", [2, 3, 4])
@pytest.mark.parametrize("scheme", ALL_REDUCES)
def test_rounds_sum_what_all_ranks_had(ranks, scheme, count):
    lowered = program(count, scheme)
    answers = ranks.run(sums, lowered, SIZES)
    assert all(not rows for rows in answers[count:])
    for place, size in enumerate(SIZES):
        expected = sum(buffer(rank, size).numpy() for rank in range(count))
        held = [rows[place][0] for rows in answers[:count]]
        np.testing.assert_allclose(held[0], expected, rtol=1e-13, atol=1e-13)
        for other in held[1:]:
            np.testing.assert_array_equal(other, held[0])  # replicas stay equal to the last bit


def test_two_ranks_sum_a_long_buffer_piece_by_piece(ranks):
    size = PAIR_BYTES // 8 * 2 + 3
    (one,), (other,), *_ = ranks.run(sums, program(2, "ring"), (size,))
    np.testing.assert_allclose(one[0], (buffer(0, size) + buffer(1, size)).numpy(), rtol=1e-13, atol=1e-13)
    np.testing.assert_array_equal(one[0], other[0])


@pytest.mark.parametrize("scheme", [scheme for scheme in ALL_REDUCES if scheme != "ring"])
def test_rounds_send_what_the_program_says(ranks, scheme):
    """With a multiple of all numbers of pieces; a ring's bytes are the back end's own affair."""
    lowered = program(4, scheme)
    first = reductions_of(RankProgram(lowered, 0, []), statistics=False)[0]
    size = 8 * 4 * 3 * 8
    share = sum(lowered.size_bytes[task] for task in first.tasks) / lowered.collectives[first.tasks[0]].buffer_bytes
    answers = ranks.run(sums, lowered, (size,))
    assert sum(rows[0][1] for rows in answers) == pytest.approx(share * size * 8)


def exchanged(rank, lowered, join_bytes, overlap):
    """Sums of three iterations, layer by layer, and whether each layer has replicas."""
    view = RankProgram(lowered, rank, region_messages_of(lowered))
    recorder, device = Recorder(lowered.size, CpuDevice()), CpuDevice()
    gradient_sync = BucketedSync(
        view, device, recorder, RunOptions(overlap=overlap, timeout_s=20.0, join_bytes=join_bytes)
    )
    found = []
    for iteration in range(3):
        layers = [i for i, layer in enumerate(lowered.graph.layers) if layer.parameters]
        shared = [gradient_sync.submit(i, gradients(lowered, rank, i, iteration)) for i in reversed(layers)]
        assert all(shared)
        # copied: the buffers are those of the next iteration too
        found.append([{name: value.numpy().copy() for name, value in gradient_sync.wait(i).items()} for i in layers])
        measured = recorder.finish()
        found[-1].append(int(np.isfinite(measured.end_s - measured.start_s).sum()))
    gradient_sync.close()
    return found


def gradients(lowered, rank, layer, iteration):
    """Some of them transposed, as layers make them."""
    rows = {}
    for number, parameter in enumerate(lowered.graph.layers[layer].parameters):
        random = np.random.default_rng([rank, layer, number, iteration]).standard_normal(parameter.shape[::-1])
        rows[parameter.name] = torch.from_numpy(random.T)
    return rows


@pytest.mark.parametrize("overlap", [True, False])
@pytest.mark.parametrize("join_bytes", [0.0, 300.0, 1e9])
@pytest.mark.parametrize("scheme", ["ring", "ps"])
def test_gradients_come_back_summed_by_layer_and_name(ranks, scheme, join_bytes, overlap):
    lowered = program(MOST_RANKS, scheme)
    tasks = len([task for task in lowered.collectives if not lowered.statistics[task]])
    for rows in ranks.run(exchanged, lowered, join_bytes, overlap):
        for iteration, (*layers, measured) in enumerate(rows):
            assert measured == tasks
            for layer, found in enumerate(layers):
                for name, value in found.items():
                    parts = [gradients(lowered, rank, layer, iteration)[name].numpy() for rank in range(MOST_RANKS)]
                    np.testing.assert_allclose(value, sum(parts), rtol=1e-13, atol=1e-13)
