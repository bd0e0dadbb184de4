"""One message of each class, lowered for all of its class, against the program of all devices."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given, settings, strategies as st

from groundwork.errors import ConfigError, InfeasiblePlanError
from groundwork.sparse_rows import ranks_in_runs
from hwprofiles.catalogue.cluster_catalogue import load_cluster
from planner.cost.cost_model import CostModel
from planner.layouts.device_classes import MessageClasses
from planner.lowering.alike_replicas import lower_alike
from planner.models.builder import ModelBuilder
from planner.plan.lowered_plan import PlannedStrategy
from planner.strategies.named_strategies import named_strategy
from tests.planner.lowering.test_alike_replicas import both, check, question, slowed

CLUSTERS = ("p100-4x4", "dgx-h100:nodes=2", "dgx1-p100", "abci-v100:nodes=4", "titanx-4")
CLUSTERS += ("polaris:nodes=4,fabric=torus,x=2,y=2", "dgx-h100:nodes=4,leaf_nodes=2")


@settings(max_examples=10)
@given(
    cluster=st.sampled_from(CLUSTERS),
    model=st.sampled_from(["lenet5", "alexnet"]),
    rules=st.lists(st.sampled_from(["data", "model", "spatial", "mixed"]), min_size=30, max_size=30),
    framework=st.sampled_from(["ideal", "ddp"]),
    software=st.sampled_from(["ideal", "pytorch"]),
    slow=st.sampled_from(["", "", "devices", "link"]),
    place=st.integers(0, 1000),
)
def test_one_message_has_the_times_of_all_of_its_class(cluster, model, rules, framework, software, slow, place):
    """Each layer by samples, channels or positions, at random: all devices send to all others, or to some."""
    machines = slowed(load_cluster(cluster), slow, [place])
    count = len(machines.devices)
    conditions = {"framework": framework, "software": software}
    costs, mixed = question(model, machines, 4 * count, strategy=f"data={count // 2},filter=2", **conditions)
    named = {rule: named_strategy(rule, costs.graph, count) for rule in {*rules} - {"mixed"}}
    named["mixed"] = mixed.strategy  # two groups of replicas sum gradients side by side
    strategy = {layer.name: named[rule][layer.name] for layer, rule in zip(costs.graph.layers, rules, strict=False)}
    planned = PlannedStrategy(strategy=strategy)
    try:
        one, whole = both(costs, planned)
    except (ConfigError, InfeasiblePlanError):
        assume(False)
    if one.classes is None:
        assert one.size == whole.size
        return
    check(costs, planned, one, whole)


@pytest.mark.parametrize(
    ("model", "cluster", "strategy", "classes"),
    [
        ("alexnet", "dgx1-p100", "owt", 1),
        ("alexnet", "p100-4x4", "owt", 6),  # of 16 devices 10 have a part of fc3; two of a machine are at each switch
        ("alexnet", "abci-v100:nodes=4", "model", 7),
    ],
)
def test_devices_that_send_to_all_others_fall_into_classes(model, cluster, strategy, classes):
    costs, planned = question(model, cluster, 64, strategy=strategy)
    one, whole = both(costs, planned)
    assert isinstance(one.classes, MessageClasses)
    assert np.count_nonzero(one.classes.lowered) == classes
    check(costs, planned, one, whole)


@pytest.mark.parametrize("cluster", ["abci-v100:nodes=4", "p100-4x4"])
def test_several_groups_of_replicas_that_sum_side_by_side(cluster):
    costs, mixed = question("alexnet", cluster, 64, strategy="data=4,filter=4")
    samples, channels = (named_strategy(rule, costs.graph, 16) for rule in ("data", "model"))
    of = {"fc1": mixed.strategy, "fc2": mixed.strategy, "fc3": channels}
    planned = PlannedStrategy(strategy={name: of.get(name, samples)[name] for name in samples})
    one, whole = both(costs, planned)
    assert isinstance(one.classes, MessageClasses)
    assert any(each.others for each in one.collectives.values())
    check(costs, planned, one, whole)


def test_number_of_tasks_does_not_grow_with_machines():
    sizes = []
    for nodes in (4, 16):
        costs, planned = question("alexnet", f"dgx-h100:nodes={nodes}", 8 * nodes, strategy="owt")
        sizes.append(next(both(costs, planned)).size)
    assert sizes[1] < 1.5 * sizes[0]  # of all devices it grows by 16


def test_a_slow_device_is_a_class_of_its_own():
    machines = load_cluster("dgx-h100:nodes=4")
    slow = [replace(each, speed=0.5) if each.name == "node1/gpu3" else each for each in machines.devices]
    costs, planned = question("alexnet", machines.with_devices(slow), 64, strategy="owt")
    one, whole = both(costs, planned)
    assert one.classes.alike[11] == 1
    check(costs, planned, one, whole)


def test_turns_on_exclusive_links_are_not_folded():
    costs, planned = question("alexnet", "titanx-4", 64, strategy="owt")
    said = lower_alike(costs, costs.spaces_of(planned.strategy))
    assert isinstance(said, str)
    why = (
        "fc1 divides samples by 1 and conv1 divides samples by 4, and messages take turns on links that serve one at a"
    )
    assert why in said


def test_one_layer_alone_sends_nothing():
    net = ModelBuilder("one", batch=8, image=(16, 1, 1))
    net.linear(8, name="fc")
    costs = CostModel(net.build(), load_cluster("dgx1-p100"))
    said = lower_alike(costs, costs.spaces_of(named_strategy("model", costs.graph, 8)))
    assert str(said).endswith("and no device sends to another")


def test_ranks_in_runs():
    assert ranks_in_runs(np.array([7, 7, 3, 4, 4, 4])).tolist() == [0, 1, 0, 0, 1, 2]
    assert ranks_in_runs(np.empty(0, dtype=np.int64)).tolist() == []
