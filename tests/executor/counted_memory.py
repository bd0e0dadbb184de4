"""Memory counted in real runs of a pool's ranks, for the test and the benchmark of its prediction."""

from itertools import pairwise

import numpy as np
from imported_networks import NETWORKS
from plans import cluster_of

from executor.measurement.memory_meter import AllocationMeter
from executor.runtime.devices import CpuDevice
from executor.supervision.status_board import own_status
from executor.training.session import open_session
from planner.cost.conditions import Conditions
from planner.cost.cost_model import CostModel
from planner.importing.graph_of import imported_graph
from planner.lowering.lower_strategy import lower
from planner.lowering.send_phases import program_order
from planner.lowering.unit_times import UnitTimes
from planner.memory.buffer_account import MemoryAccount
from planner.memory.buffers import BUFFERS, Buffers
from planner.memory.parameter_lifetimes import persistent_buffers
from planner.memory.peak_memory import held_over_time
from planner.memory.storage_lifetimes import divided_storage
from planner.models.builder import ModelBuilder
from planner.search.pipeline_strategy import Pipeline, pipeline_strategy
from planner.strategies.degrees import storage_of
from planner.strategies.named_strategies import named_strategy, spaces_of
from planner.strategies.pipeline_schedule import PIPELINE_SCHEDULES
from planner.tracing.exported import trace_of
from planner.tracing.inputs import input_specs


def counted(rank, program, given):
    """Peak of one rank by ``ALLOCATED``, from its opening to the end of its last step; losses must be finite."""
    device = CpuDevice()
    meter = AllocationMeter(device)
    session = open_session(
        program, rank, given, reduced=False, device=device, status=own_status(rank), steps=given.steps
    )
    losses = [session.worker.step(number).loss for number in range(given.steps)]
    meter.stop()
    row = meter.split(session)
    session.worker.close()
    assert np.isfinite(losses).all()
    return row


def imported(name, batch=None):
    """The graph of one of the small imported networks."""
    network = NETWORKS[name]
    first, _, rest = network.sizes.partition("x")
    trace = trace_of(network.make(), input_specs([f"{batch or first}x{rest}"]))
    return imported_graph(trace, name=name, loss=network.loss).graph


def peaked(kind):
    """A network whose peak lies at one kind of layer."""
    net = ModelBuilder(kind, batch=16, image=(8, 32, 32))
    if kind == "local_response_norm":
        net.local_response_norm(net.conv(32, 1, pad=0))
    elif kind == "concat":
        net.concat([net.conv(16, 1, "input", pad=0), net.conv(24, 1, "input", pad=0)])
    elif kind == "batch_norm":
        net.conv(32, 1, pad=0, batch_norm=True)
    else:
        net.dropout(0.5, net.conv(32, 1, pad=0))
    net.global_pool()
    net.linear(4)
    net.loss()
    return net.build()


def spread(graph, name, count, parts=None, *, micro_batches=4, **how):
    """The program of a strategy on some of the devices; a schedule's name asks for a pipeline."""
    prices = CostModel(graph, cluster_of("titanx-4", count), conditions=Conditions(storage=storage_of(name)))
    if name in PIPELINE_SCHEDULES:
        strategy, micro_batching = pipeline_strategy(prices, Pipeline(schedule=name, micro_batches=micro_batches))
        return lower(prices, spaces_of(graph, strategy, count), micro_batching=micro_batching, **how)
    return lower(prices, spaces_of(graph, named_strategy(name, graph, parts or count), count), **how)


def storage_bytes(program, policy):
    """Predicted peaks of parameters, of gradients and of optimizer state, shape (ranks, 3)."""
    account = MemoryAccount(program, policy)
    whole = Buffers.joined(divided_storage(account, UnitTimes(program, *program_order(program))))
    buffers = Buffers.of([persistent_buffers(account), whole])
    peaks = []
    for name in ("parameters", "parameter gradients", "optimizer state"):
        base, start, _, held = held_over_time(
            buffers.take(buffers.kind == BUFFERS.index(name)), len(program.cluster.devices)
        )
        peaks.append([max([each, *held[a:b]]) for each, (a, b) in zip(base, pairwise(start), strict=True)])
    return np.transpose(peaks)
