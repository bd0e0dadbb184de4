"""A program on changed links is the one that lowering anew gives, or there is none."""

from dataclasses import fields

import numpy as np
import pytest

from hwprofiles.catalogue.cluster_catalogue import load_cluster
from planner.cost.conditions import Conditions
from planner.cost.cost_model import CostModel
from planner.cost.framework import framework_of
from planner.lowering.changed_links import relinked
from planner.lowering.lower_strategy import lower
from planner.models.registry import load_model
from planner.simulation.additive_cost import additive_s
from planner.simulation.program_replay import replay
from planner.strategies.named_strategies import named_strategy, spaces_of
from simulator.collectives.schemes import ALL_REDUCES

SIX, EIGHT = "fdr-32x3:nodes=2", "abci-v100:nodes=2"
SLOW = f"{SIX},link.fdr.bandwidth_gbyte_per_s=1.5"
CUT = f"{EIGHT},link.*node1/plx1 -> *nic1.failed=1"
"""All messages of the second node go by the first of its two network cards."""
TURNED = f"{SIX},link.*/gpu2 -> *.bandwidth_factor=0.01"
"""The devices that were nearest to the other node are the farthest."""
GRAPH = load_model("alexnet", batch=48)


def model_on(spec, sync="ring", framework="ideal"):
    conditions = Conditions(framework=framework_of(framework))
    return CostModel(GRAPH, load_cluster(spec), sync, conditions=conditions)


def lowered(model, name):
    count = len(model.cluster.devices)
    return lower(model, spaces_of(GRAPH, named_strategy(name, GRAPH, count), count))


def assert_same(one, other):
    """Equal in every field; rounds of collectives are compared one by one."""
    for field in fields(one):
        left, right = getattr(one, field.name), getattr(other, field.name)
        if isinstance(left, np.ndarray):
            np.testing.assert_array_equal(left, right, err_msg=field.name)
        elif field.name == "collectives":
            assert left.keys() == right.keys()
            for mine, theirs in zip(left.values(), right.values(), strict=True):
                assert (mine.devices, mine.buffer_bytes) == (theirs.devices, theirs.buffer_bytes)
                np.testing.assert_array_equal(mine.round.source, theirs.round.source)
                np.testing.assert_array_equal(mine.round.target, theirs.round.target)
                np.testing.assert_array_equal(mine.round.share, theirs.round.share)
        else:
            assert left == right, field.name


@pytest.mark.parametrize(
    ("name", "spec", "changed", "sync"),
    [
        *(("data", SIX, SLOW, sync) for sync in list(ALL_REDUCES)[::2]),
        *(("owt", EIGHT, CUT, sync) for sync in {"ring", *list(ALL_REDUCES)[1::2]}),
    ],
)
def test_it_is_the_program_that_lowering_gives_anew(name, sync, spec, changed):
    before = model_on(spec, sync)
    now = before.on(load_cluster(changed), before.conditions)
    new = lowered(CostModel(GRAPH, now.cluster, sync, conditions=now.conditions), name)
    again = relinked(lowered(before, name), before, now)
    assert_same(again, new)
    assert replay(again).iteration_s == replay(new).iteration_s
    if changed == SLOW or sync == "ring":  # not all trees cross by the second card
        assert replay(again).iteration_s != replay(lowered(before, name)).iteration_s


@pytest.mark.parametrize(
    ("spec", "quantity", "sync"), [("dgx-h100:nodes=2", "ndr", "library"), ("dgx-a100:nodes=2", "hdr", "auto")]
)
@pytest.mark.parametrize(("framework", "name"), [("ideal", "owt"), ("ddp", "data")])
def test_algorithms_are_chosen_again(spec, quantity, sync, framework, name):
    """With one per cent more, algorithms stay and there is a program; with a tenth they need not."""
    before = model_on(spec, sync, framework)
    for factor in (1.01, 0.1):
        now = before.on(load_cluster(f"{spec},link.{quantity}.bandwidth_factor={factor}"), before.conditions)
        again = relinked(lowered(before, name), before, now)
        assert (again is None) == (framework == "ddp") or factor < 1
        if again is not None:
            new = lowered(CostModel(GRAPH, now.cluster, sync, conditions=now.conditions), name)
            assert_same(again, new)
            assert replay(again).iteration_s == replay(new).iteration_s


@pytest.mark.parametrize(
    ("spec", "sync", "framework"),
    [
        (SLOW, "ring", "ps"),  # parameters go over the links of hosts
        (f"{SIX},device.node0/gpu0.speed=0.5", "ring", "ideal"),  # computes longer
        (TURNED, "ring", "ideal"),  # devices in another order around the ring
    ],
)
def test_there_is_none_where_lowering_may_look_at_the_change(spec, sync, framework):
    before = model_on(SIX, sync, framework)
    now = before.on(load_cluster(spec), before.conditions)
    assert relinked(lowered(before, "data"), before, now) is None
    assert (now.network.rank.tolist() != before.network.rank.tolist()) == (spec == TURNED)


def test_another_order_around_the_ring_gives_another_program():
    """So none may be taken over from before."""
    before, now = (lowered(model_on(spec), "data") for spec in (SIX, TURNED))
    pairs = zip(before.collectives.values(), now.collectives.values(), strict=True)
    assert any(one.round.target.tolist() != other.round.target.tolist() for one, other in pairs)


@pytest.mark.parametrize("change", ["link.fdr.bandwidth_gbyte_per_s=1.5", "device.node0/gpu0.speed=0.5"])
def test_prices_on_a_changed_cluster_are_those_of_a_new_model(change):
    """Arithmetic is priced once where devices stay as they are, and again where one is slower."""
    before, strategy = model_on(SIX), named_strategy("owt", GRAPH, 6)
    known_s = additive_s(before, strategy)
    changed = f"{SIX},{change}"
    now = before.on(load_cluster(changed), before.conditions)
    assert additive_s(now, strategy) == additive_s(model_on(changed), strategy) != known_s
    assert (now.compute_times is before.compute_times) == change.startswith("link")
