"""Sums of gradients in a planned order over real processes, against updates that end the iteration."""

from itertools import pairwise

import numpy as np
import pytest
from plans import inception_module, program_of, star
from ranks import Ranks, joined_tasks, options, slices_of, train, whole

from executor.measurement.measured_run import WARM_UP, Measurement
from executor.runtime.devices import CpuDevice
from executor.supervision.status_board import own_status
from executor.training.session import open_session
from planner.cost.cost_model import CostModel
from planner.lowering.program import KINDS
from planner.models.builder import ModelBuilder
from planner.search.gradient_order import order_gradient_syncs
from planner.search.gradient_sync_chain import chain_gradient_syncs, slice_gradient_syncs
from planner.strategies.named_strategies import named_strategy

pytestmark = pytest.mark.timeout(300)
MOST_RANKS = 4
UPDATE = KINDS.index("update")


@pytest.fixture(scope="module")
def ranks():
    pool = Ranks(MOST_RANKS)
    yield pool
    pool.close()


def chain(batch=8):
    """The last layer has most parameters: its sum is still under way when the first layers' gradients come."""
    net = ModelBuilder("chain", batch=batch, image=(3, 16, 16))
    net.conv(6, 3, pad=1)
    net.pool("max", 2)
    net.conv(8, 3, pad=1, batch_norm=True)
    net.linear(64)
    net.linear(10)
    net.loss()
    return net.build()


GRAPHS = {"chain": chain, "inception": inception_module}


def lowered(graph, strategy, count):
    """On slow links without latency, where order matters and slices cost nothing."""
    model = CostModel(graph, star(count, latency_s=0.0, bandwidth=1e6), "ring", "reduced")
    return program_of(model, named_strategy(strategy, graph, count))


def trained(ranks, program, chosen, work=train):
    """Losses of all ranks, parameters in the end, and what was measured."""
    losses, measured, slices = zip(*ranks.run(work, program, chosen, True), strict=True)
    return np.array(losses), whole(program, slices), measured


def same(one, other):
    """Losses and parameters, to the last bit."""
    equal = [np.array_equal(value, other[1][key]) for key, value in one[1].items()]
    return np.array_equal(one[0], other[0]) and all(equal)


@pytest.mark.parametrize(
    ("count", "name", "order"), [(2, "chain", "reuse"), (4, "chain", "ready"), (4, "inception", "reuse")]
)
def test_training_is_that_of_updates_at_the_end_to_the_last_bit(ranks, count, name, order):
    """Whole sums, each by itself: the arithmetic is the same, whatever goes first."""
    program = lowered(GRAPHS[name](), "data", count)
    moved = order_gradient_syncs(program, order, slice_bytes=[np.inf])
    assert moved.sync_order
    chosen = options(steps=3, join_bytes=0)
    assert same(trained(ranks, program, chosen), trained(ranks, moved, chosen))


def in_any_order(program, seed, slice_bytes=8192.0):
    """Small slices in an order of no sense, which is as right as any."""
    moved = slice_gradient_syncs(program, slice_bytes)
    sums = [task for task in moved.collectives if not moved.statistics[task]]
    assert len(sums) > len(order_gradient_syncs(program, "ready").sync_order)
    return chain_gradient_syncs(moved, np.random.default_rng(seed).permutation(sums).tolist())


@pytest.mark.parametrize("strategy", ["data", "data=2,filter=2", "owt"])
def test_slices_in_any_order_sum_the_same_numbers(ranks, strategy):
    """Two terms have one sum; the ring adds four from another rank on in each piece, so that is equal to rounding."""
    program = lowered(chain(), strategy, 4)
    moved = in_any_order(program, 0, 512.0 if strategy == "owt" else 8192.0)
    chosen = options(steps=3, join_bytes=0)
    plain, found = trained(ranks, program, chosen), trained(ranks, moved, chosen)
    if strategy == "data=2,filter=2":
        assert same(plain, found)
    np.testing.assert_allclose(found[0], plain[0], rtol=1e-5)
    for key, value in plain[1].items():
        np.testing.assert_allclose(found[1][key], value, rtol=1e-4, atol=1e-6)


def settling(rank, program, options, reduced):
    """As ``train``, with updates done after every second step, as before a checkpoint."""
    session = open_session(
        program, rank, options, reduced=reduced, device=CpuDevice(), status=own_status(rank), steps=options.steps
    )
    results = []
    for number in range(options.steps):
        results.append(session.worker.step(number))
        if number % 2:
            session.worker.settle()
    session.worker.set_overlap(False)
    session.worker.close()
    return [result.loss for result in results], [result.measured for result in results], slices_of(session)


def test_updates_may_be_done_between_steps(ranks):
    """What a checkpoint would hold is what has been learned."""
    moved = in_any_order(lowered(chain(), "data", 4), 1)
    chosen = options(steps=4)
    assert same(trained(ranks, moved, chosen), trained(ranks, moved, chosen, settling))


@pytest.mark.parametrize("overlap", [True, False])
def test_every_task_is_measured_in_its_iteration(ranks, overlap):
    """Sums go in the order of the program, each after its gradient; the next iteration's updates come behind them."""
    moved = in_any_order(lowered(chain(), "data", 4), 1)
    _, _, measured = trained(ranks, moved, options(steps=6, overlap=overlap))
    for rows in measured:
        for before, row in pairwise(rows[WARM_UP - 1 :]):
            starts, ends = before.start_s[list(moved.sync_order)], before.end_s[list(moved.sync_order)]
            assert np.isfinite(starts).all()
            assert np.isfinite(ends).all()
            assert (starts[1:] >= ends[:-1]).all()
            mine = [task for task in moved.carried[:, 0] if np.isfinite(row.start_s[task])]
            assert mine
            for late, early in moved.carried.tolist():
                if moved.kind[late] == UPDATE and late in mine:
                    assert row.start_s[late] >= before.end_s[early]
    joined, paused = joined_tasks(measured), np.zeros(len(measured[0]), bool)
    found = Measurement(**vars(joined), paused=paused, loss=np.zeros(6), peak_memory_bytes=np.zeros(4))
    assert np.isfinite(found.iterations_s).all()
    assert len(found.timeline(moved)) == moved.size
