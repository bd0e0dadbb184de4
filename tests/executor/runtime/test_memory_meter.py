"""Counted allocations, and the prediction beside them."""

import gc

import pytest
import torch
from plans import cluster_of
from ranks import options, pool_of

from executor.measurement.memory_meter import ALLOCATED, AllocationMeter, MemoryMeter
from executor.processes.status_board import own_status
from executor.runtime.devices import CpuDevice
from executor.runtime.optimizers import OptimizerSpec
from executor.runtime.predicted_memory import memory_policy_of, predicted_bytes
from executor.training.session import open_session
from planner.cost.cost_model import CostModel
from planner.lowering.lower_strategy import lower
from planner.models.registry import load_model
from planner.parallel.recomputation import Recompute
from planner.parallel.strategies import named_strategy, spaces_of

pytestmark = pytest.mark.timeout(200)
RANKS = 2


ranks = pool_of(RANKS)


def test_the_meter_counts_to_the_byte():
    """What lives on, what dies, and what a kernel takes inside: a sum of squares makes the squares first."""
    before = torch.zeros(1000)
    meter = MemoryMeter()
    meter.start()
    kept = torch.empty(1000)
    gone = torch.empty(3000)
    del gone
    squares = (before * before).sum()
    held = meter.stop()
    assert held.peak_bytes == 4 * (1000 + 3000)
    assert held.held_bytes[-1] == 4 * 1000 + squares.nbytes
    assert held.at(held.peak_time_s) == held.peak_bytes
    assert kept.nbytes == 4000


def counted(rank, program, given):
    gc.collect()
    meter = AllocationMeter(CpuDevice())
    session = open_session(
        program, rank, given, reduced=False, device=CpuDevice(), status=own_status(rank), steps=given.steps
    )
    for number in range(given.steps):
        session.worker.step(number)
    meter.stop()
    row = meter.split(session)
    session.worker.close()
    return row


CASES = [
    ("lenet5", "data", 64, Recompute(), OptimizerSpec(momentum=0.0)),
    ("alexnet-cifar", "spatial", 32, Recompute(), OptimizerSpec(name="adam")),
    ("resnet-cifar:depth=8", "model", 32, Recompute(), OptimizerSpec()),
    ("resnet-cifar:depth=8", "spatial", 32, Recompute(("layer1.0.add", "layer2.0.add")), OptimizerSpec()),
]


@pytest.mark.parametrize(("model", "name", "batch", "recompute", "optimizer"), CASES)
def test_the_prediction_is_within_a_twentieth(ranks, model, name, batch, recompute, optimizer):
    graph = load_model(model, batch=batch)
    prices = CostModel(graph, cluster_of("titanx-4", RANKS))
    program = lower(prices, spaces_of(graph, named_strategy(name, graph, RANKS), RANKS), recompute=recompute)
    given = options(steps=2, optimizer=optimizer)
    predicted = predicted_bytes(program, given)
    for row, size in zip(ranks.run(counted, program, given), predicted, strict=True):
        found = dict(zip(ALLOCATED, row, strict=True))
        assert size == pytest.approx(found["peak"], rel=0.05)
        assert sum(row[1:]) == pytest.approx(found["peak"])
        states = memory_policy_of(optimizer, host=True).states
        assert found["optimizer_state"] == states * found["parameters"]
