"""Sums of gradients in a planned order: what is done stays the same, and what is simulated is never slower."""

from itertools import permutations

import numpy as np
import pytest
from plans import inception_module, program_of, star

from groundwork.errors import ConfigError
from hwprofiles.catalogue.cluster_catalogue import load_cluster
from planner.cost.cost_model import CostModel
from planner.lowering.program import KINDS
from planner.models.builder import ModelBuilder
from planner.models.registry import load_model
from planner.plan.lowered_plan import lower_plan, lowered
from planner.plan.make_plan import make_plan
from planner.plan.plan_file import load_plan, save_plan
from planner.search.gradient_order import order_gradient_syncs
from planner.search.gradient_sync_chain import chain_gradient_syncs, slice_gradient_syncs
from planner.simulation.program_replay import replay
from planner.strategies.named_strategies import named_strategy

UPDATE, FORWARD = KINDS.index("update"), KINDS.index("forward")


def model_of(graph, *, count=4, latency_s=0.0, bandwidth=1e8, gradient_sync="ring"):
    return CostModel(graph, star(count, latency_s=latency_s, bandwidth=bandwidth), gradient_sync)


def program(graph, *, strategy="data", **changes):
    model = model_of(graph, **changes)
    return program_of(model, named_strategy(strategy, graph, len(model.cluster.devices)))


def classifier():
    net = ModelBuilder("classifier", batch=64, image=(3, 32, 32))
    net.conv(32, 3, pad=1)
    net.conv(32, 3, pad=1)
    net.pool("max", 4)
    net.linear(256)
    net.linear(10)
    net.loss()
    return net.build()


@pytest.mark.parametrize("strategy", ["data", "data=2,filter=2", "owt"])
@pytest.mark.parametrize("order", ["ready", "reuse"])
@pytest.mark.parametrize("graph", [classifier(), inception_module()], ids=lambda graph: graph.name)
def test_work_and_bytes_stay(graph, order, strategy):
    """The same arithmetic and the same bytes a layer; every task waits for earlier ones only."""
    plain = program(graph, strategy=strategy)
    found = order_gradient_syncs(plain, order, slice_bytes=[65536.0])
    for values in ("work_s", "size_bytes"):
        for kind in range(len(KINDS)):
            sums = [np.bincount(row.layer, getattr(row, values) * (row.kind == kind)) for row in (plain, found)]
            np.testing.assert_allclose(sums[1], sums[0], rtol=1e-12)
    late = np.repeat(np.arange(found.size), np.diff(found.after_start))
    sums = np.isin(late, found.sync_order) & np.isin(found.after, found.sync_order)
    assert (found.after[~sums] < late[~sums]).all()
    assert (np.diff(found.group) >= 0).all()


def test_updates_stand_before_their_layers():
    """Each but the softmax: update, then forward, and no update behind the backward pass."""
    found = order_gradient_syncs(program(classifier()), "ready")
    mine = [task for task in range(found.size) if found.device[task] == 0 and found.kind[task] in (UPDATE, FORWARD)]
    assert [(found.layer[task], found.kind[task] == UPDATE) for task in mine] == [
        (0, True),
        (0, False),
        (1, True),
        (1, False),
        (2, False),
        (3, True),
        (3, False),
        (4, True),
        (4, False),
        (5, False),
    ]
    first = [task for task in mine if found.kind[task] == UPDATE]
    waits = {late: early for late, early in found.carried.tolist() if late in first}
    assert [found.layer[waits[task]] for task in first] == [0, 1, 3, 4]


@pytest.mark.parametrize("bandwidth", [1e7, 1e8, 1e9])
def test_no_other_order_of_whole_sums_is_faster_by_a_hundredth(bandwidth):
    """Brute force over all orders of the four sums."""
    plain = program(classifier(), bandwidth=bandwidth)
    moved = slice_gradient_syncs(plain, np.inf)
    best_s = min(replay(chain_gradient_syncs(moved, order)).iteration_s for order in permutations(moved.collectives))
    found = order_gradient_syncs(plain, "reuse", slice_bytes=[np.inf])
    best_s = min(best_s, replay(plain).iteration_s)
    assert best_s * (1 - 1e-9) <= replay(found).iteration_s < best_s * 1.01


@pytest.mark.parametrize(
    ("bandwidth", "latency_s"),
    [(1e6, 0.0), (1e7, 1e-3), (1e8, 0.0), (1e8, 1e-5), (1e9, 1e-5), (1e10, 0.0), (1e10, 1e-3)],
)
def test_reuse_is_never_slower(bandwidth, latency_s):
    """Than with all updates at the end, nor than sums as they are made."""
    plain = program(classifier(), bandwidth=bandwidth, latency_s=latency_s)
    seconds = [replay(order_gradient_syncs(plain, order)).iteration_s for order in ("end", "ready", "reuse")]
    assert seconds[2] <= min(seconds[:2])


def test_reuse_hides_the_exchange_behind_the_forward_pass():
    """Where the links are the bottleneck, an iteration comes down to little more than the time on them."""
    model = CostModel(load_model("alexnet-cifar", batch=512), load_cluster("lab-4"), "ring")
    plain = program_of(model, named_strategy("data", model.graph, 4))
    link_s = 1.5 * sum(layer.parameter_count * 4 for layer in plain.graph.layers) / model.cluster.bandwidth[0]
    seconds = {order: replay(order_gradient_syncs(plain, order)).iteration_s for order in ("end", "reuse")}
    assert seconds["reuse"] > link_s
    assert seconds["reuse"] - link_s < 0.2 * (seconds["end"] - link_s)


def test_both_engines_agree():
    """Also on sums whose slices wait for one another."""
    found = order_gradient_syncs(program(classifier()), "reuse", slice_bytes=[65536.0])
    times = [replay(found, engine=engine).schedule.end_s for engine in ("compiled", "simpy")]
    np.testing.assert_allclose(times[1], times[0], rtol=1e-9)


def test_additive_reading_has_every_slice_with_its_latency():
    """Phases one after another: the sum of Eq. 1, and a ring's latency more for each further slice."""
    plain = program(classifier(), latency_s=1e-5, bandwidth=1e7)
    found = chain_gradient_syncs(slice_gradient_syncs(plain, 65536.0))
    more = len(found.sync_order) - len(order_gradient_syncs(plain, "ready").sync_order)
    assert more > 0
    seconds = [replay(row, overlap=False, contention=False).iteration_s for row in (plain, found)]
    assert seconds[1] - seconds[0] == pytest.approx(more * 6 * 1e-5)
    assert replay(found, contention=False).iteration_s <= seconds[1]


def test_one_device_has_nothing_to_order():
    """The program itself."""
    plain = program(classifier(), count=1)
    assert order_gradient_syncs(plain, "reuse") is plain


def test_plan_keeps_its_order(tmp_path):
    """In the file, and in the program lowered from it."""
    graph, cluster = load_model("alexnet-cifar", batch=512), load_cluster("lab-4")
    plan = make_plan(graph, cluster, strategy="data", gradient_sync_order="reuse")
    save_plan(plan, tmp_path / "plan.json")
    read = load_plan(tmp_path / "plan.json")
    assert read == plan
    found = lower_plan(read, graph, cluster)
    assert found.sync_order
    assert replay(found).iteration_s == plan.simulated_s
    assert plan.simulated_s < make_plan(graph, cluster, strategy="data").simulated_s


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"gradient_sync_order": "last"}, "gradient_sync_order must be one of end, ready, reuse, got 'last'"),
        ({"gradient_sync_order": "reuse", "strategy": "layerwise"}, "must be end for layerwise"),
        ({"gradient_sync_order": "reuse", "gradient_sync": "ps-spread"}, "unless gradient_sync is ring"),
        ({"gradient_sync_order": "ready", "strategy": "zero=1"}, "must be end if zero is not 0, got 'ready'"),
    ],
)
def test_what_cannot_be_ordered_is_refused(changes, words):
    """One line that names the field and the rule."""
    with pytest.raises(ConfigError, match=words):
        make_plan(load_model("lenet5", batch=16), load_cluster("lab-4"), **{"strategy": "data", **changes})


def test_messages_of_their_own_have_no_order():
    """Expanded exchanges are not ordered."""
    model = model_of(classifier())
    with pytest.raises(ConfigError, match="messages are tasks of their own"):
        lowered(model, named_strategy("data", model.graph, 4), collectives="steps", gradient_sync_order="reuse")
