"""Whole networks, divided anyhow over real processes, against the undivided network."""

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st
from plans import cluster_of, inception_module, program_of, random_strategy, residual_block, star
from ranks import joined_tasks, options, pool_of, train, trained_to, whole
from undivided import undivided_run, wide

from executor.runtime.optimizer_spec import OptimizerSpec
from planner.cost.conditions import Conditions
from planner.cost.cost_model import CostModel
from planner.cost.framework import framework_of
from planner.lowering.lower_strategy import lower
from planner.lowering.program import KINDS
from planner.models.builder import ModelBuilder
from planner.models.registry import load_model
from planner.strategies.named_strategies import named_strategy, spaces_of

pytestmark = pytest.mark.timeout(300)
MOST_RANKS = 6


ranks = pool_of(MOST_RANKS)


def small_alexnet():
    net = ModelBuilder("alexnet", batch=8, image=(3, 20, 20))
    net.conv(8, 5, stride=2, pad=2)
    net.pool("max", 3, stride=2)
    net.local_response_norm()
    net.conv(8, 3, pad=1, groups=2)
    net.pool("average", 3, stride=2, pad=1, ceil_mode=True)
    net.linear(12, activation="relu", dropout=0.5)
    net.linear(6)
    net.loss()
    return net.build()


def small_vgg():
    net = ModelBuilder("vgg", batch=6, image=(3, 12, 12))
    for channels in (4, 6):
        net.conv(channels, 3, pad=1, batch_norm=True)
        net.conv(channels, 3, pad=1, batch_norm=True)
        net.pool("max", 2)
    net.linear(12, activation="tanh")
    net.linear(6)
    net.loss()
    return net.build()


def dense_block():
    net = ModelBuilder("dense", batch=4, image=(4, 8, 8))
    tensor = net.conv(4, 3, pad=1, activation=None)
    for _ in range(2):
        net.batch_norm(tensor)
        grown = net.conv(4, 3, pad=1, activation=None)
        tensor = net.concat([tensor, grown])
    net.global_pool(tensor)
    net.linear(4)
    net.loss("mean_squared_error")
    return net.build()


def volume():
    net = ModelBuilder("volume", batch=2, image=(2, 8, 8, 8))
    net.conv(4, 3, pad=1, stride=2, activation="leaky_relu")
    net.pool("average", 2)
    net.linear(3)
    net.loss("mean_squared_error")
    return net.build()


GRAPHS = {
    "alexnet": small_alexnet,
    "vgg": small_vgg,
    "inception": inception_module,
    "residual": residual_block,
    "dense": dense_block,
    "volume": volume,
    "lenet5": lambda: load_model("lenet5", batch=12),
}


def check(ranks, graph, count, gradient_sync, seed, optimizer, **changes):
    """Train and compare; returns the program and what was measured."""
    model = CostModel(graph, cluster_of("titanx-4" if count <= 4 else "p100-4x4", count), gradient_sync, "reduced")
    strategy = random_strategy(graph, count, np.random.default_rng(seed))
    program = program_of(model, strategy)
    chosen = options(seed=seed % 1000, optimizer=optimizer, **changes)
    losses, measured, slices = zip(*ranks.run(train, program, chosen, True), strict=True)
    expected, parameters = undivided_run(graph, chosen.steps, optimizer, chosen.seed)
    np.testing.assert_allclose(np.sum(losses, axis=0), expected, rtol=1e-9)
    for key, value in whole(program, slices).items():
        np.testing.assert_allclose(value, parameters[key].detach(), rtol=1e-9, atol=1e-12, err_msg=str(key))
    return program, measured


@settings(max_examples=10, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    name=st.sampled_from(list(GRAPHS)),
    count=st.sampled_from([2, 4, 6]),
    gradient_sync=st.sampled_from(
        ["ring", "ps", "ps-spread", "tree", "double-tree", "halving", "direct", "hierarchical"]
    ),
    seed=st.integers(0, 2**32),
    optimizer=st.sampled_from(
        [OptimizerSpec(momentum=0.9, weight_decay=1e-3), OptimizerSpec(name="adam", learning_rate=1e-3)]
    ),
    overlap=st.booleans(),
)
def test_divided_training_is_the_undivided_one(ranks, name, count, gradient_sync, seed, optimizer, overlap):
    check(ranks, wide(GRAPHS[name]()), count, gradient_sync, seed, optimizer, overlap=overlap)


@pytest.mark.parametrize("name", ["inception", "alexnet"])
def test_sent_bytes_are_the_programs(ranks, name):
    program, measured = check(ranks, wide(GRAPHS[name]()), 4, "ps-spread", 7, OptimizerSpec())
    transfers = program.kind == KINDS.index("transfer")
    assert transfers.sum() > 20
    for step in range(2):
        sent = np.nansum([rank[step].sent_bytes for rank in measured], axis=0)
        np.testing.assert_array_equal(sent[transfers], program.size_bytes[transfers])


def test_measured_tasks_keep_the_programs_order(ranks):
    """Every task is measured, begins before it ends, and begins after what it waits for has ended."""
    program, measured = check(ranks, wide(GRAPHS["residual"]()), 4, "ring", 3, OptimizerSpec())
    joined = joined_tasks(measured)
    assert np.isfinite(joined.start_s).all()
    assert (joined.end_s >= joined.start_s).all()
    task = np.repeat(np.arange(program.size), np.diff(program.after_start))
    # arithmetic waits for its rank's own end of a sum, which may still run elsewhere
    arithmetic = program.is_compute[task]
    task, before = task[arithmetic], program.after[arithmetic]
    assert {"forward", "weight_gradient", "transfer", "collective"} <= {KINDS[kind] for kind in program.kind[before]}
    for step in range(2):
        starts = np.array([rank[step].start_s for rank in measured])[program.device[task], task]
        ends = np.array([rank[step].end_s for rank in measured])[program.device[task], before]
        assert (starts >= ends - 1e-4).all()


SMALL = "ddp:first_mib=0.001,bucket_mib=0.008"
"""Buckets of one and of eight kilobytes: several, some of several layers."""


def lowered_for(graph, strategy, count, framework, gradient_sync="ring"):
    cluster = cluster_of("dgx1-p100", count) if gradient_sync == "library" else star(count)
    model = CostModel(graph, cluster, gradient_sync, "reduced", Conditions(framework=framework_of(framework)))
    spaces = spaces_of(graph, named_strategy(strategy, graph, count), count)
    return lower(model, spaces)


@pytest.mark.parametrize(
    ("name", "strategy", "count", "framework", "gradient_sync"),
    [
        ("vgg", "data", 2, "ddp", "ring"),
        ("vgg", "data", 2, SMALL, "ring"),
        ("inception", "data", 4, SMALL, "ring"),
        ("dense", "data", 4, "ddp", "halving"),
        ("inception", "data", 4, SMALL, "library"),
        ("residual", "data=2,filter=2", 4, SMALL, "ring"),
        ("vgg", "data", 2, "horovod", "ring"),
        ("inception", "data", 4, "horovod:fusion_mib=0.004,cycle_ms=0.1", "ring"),
        ("dense", "data", 4, "horovod:fusion_mib=0", "ps"),
    ],
)
def test_training_by_a_framework_is_the_undivided_one(ranks, name, strategy, count, framework, gradient_sync):
    graph, optimizer = wide(GRAPHS[name]()), OptimizerSpec(name="sgd", learning_rate=0.05, momentum=0.9)
    program = lowered_for(graph, strategy, count, framework, gradient_sync)
    chosen = options(optimizer=optimizer)
    expected, parameters = undivided_run(graph, chosen.steps, optimizer, chosen.seed)
    measured = trained_to(ranks, program, chosen, expected, parameters, reduced=True, rtol=1e-10)
    sums = [task for task in program.collectives if not program.statistics[task]]
    assert max(len(program.layers_of(task)) for task in sums) > 1 or "fusion_mib=0" in framework
    starts = np.fmax.reduce([rows[-1].start_s for rows in measured])
    assert np.isfinite(starts[sums]).all()
    coordinated = program.kind == KINDS.index("coordinate")
    assert coordinated.any() == framework.startswith("horovod")
    assert np.isfinite(starts[coordinated]).all()


def test_buckets_are_summed_in_order_and_updates_come_behind_all_of_them(ranks):
    program = lowered_for(small_alexnet(), "data", 4, SMALL)
    _, measured, _ = zip(*ranks.run(train, program, options(), True), strict=True)
    sums = sorted(task for task in program.collectives if not program.statistics[task])
    updates = np.flatnonzero(program.kind == KINDS.index("update"))
    assert len(sums) > 1
    for rows in measured[:4]:
        row = rows[-1]
        assert (row.start_s[sums[1:]] >= row.end_s[sums[:-1]]).all()
        assert np.nanmin(row.start_s[updates]) >= row.end_s[sums[-1]]
