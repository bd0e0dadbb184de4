"""What sets the pace, against plans whose bottleneck is known."""

import re

import pytest

from hwprofiles.catalogue import load_cluster
from planner.models import load_model
from planner.plan import compare, lower_plan, make_plan, plan_lowering, simulated_plan
from planner.plan.analysis import resource_uses
from planner.plan.pace import pace_of
from planner.simulation import replay, sensitivities


def pace(model, spec, batch):
    """Pace of data parallelism."""
    graph, cluster = load_model(model, batch=batch), load_cluster(spec)
    plan = make_plan(graph, cluster, strategy="data")
    return pace_of(replay(lower_plan(plan, graph, cluster)))


@pytest.mark.parametrize(
    ("changes", "kind", "of"),
    [
        ("device.*.speed=0.001", "arithmetic", "titanx-nervana"),
        ("link.fdr.bandwidth_factor=0.001", "bandwidth", "fdr"),
        ("link.switch-port.bandwidth_factor=0.001", "bandwidth", "switch-port"),
        ("link.fdr.latency_factor=10000", "latency", "fdr"),
    ],
)
def test_what_is_slow_sets_the_pace(changes, kind, of):
    """A resource a thousand times slower than the others; shares add up, and little of its time is left."""
    found = pace("lenet5", f"fdr-32x3:nodes=2,{changes}", 96)
    assert (found.first.kind, found.first.of) == (kind, of)
    assert found.first.share > 0.9
    assert sum(each.share for each in found.setters) == pytest.approx(1.0)
    if kind != "latency":
        assert found.busy(of) > 0.9
    assert found.first.name in found.sentence
    assert of in found.remedy
    assert found.busy("no such class") == 0


def test_faster_than_the_pace_saves_no_more_than_said():
    """Twice the bandwidth of what sets the pace saves some, and at most half of its share."""
    spec = "fdr-32x3:nodes=2,link.fdr.bandwidth_factor=0.2"
    before, after = pace("lenet5", spec, 96), pace("lenet5", f"{spec},link.*fabric*.bandwidth_factor=2", 96)
    saved = 1 - after.iteration_s / before.iteration_s
    assert before.first.of == "fdr"
    assert 0 < saved <= before.first.saving + 1e-9


def test_what_can_save_most_comes_first_and_agrees_with_replays():
    """VGG-16 on 96 GPUs: devices are nearly always busy, so links on the critical path can save next to nothing."""
    graph, cluster = load_model("vgg16", batch=96 * 32), load_cluster("fdr-32x3")
    plan = make_plan(graph, cluster, strategy="data")
    lower_on = plan_lowering(plan, graph, cluster)
    program = lower_on(cluster)
    found = pace_of(replay(program))
    kinds = {"bandwidth": "bandwidth", "latency": "latency", "arithmetic": "speed"}
    effects = {(row.quantity, row.of): -row.effect for row in sensitivities(program, lower_on)}
    assert found.first.kind == "arithmetic"
    assert found.busy("titanx-nervana") > 0.9
    told, _, why = found.sentence.partition("; ")
    shares = [int(share) for share in re.findall(r"(\d+)%", told)]
    assert shares == sorted(shares, reverse=True)
    assert len(shares) == 3
    assert sum(shares) == pytest.approx(100, abs=2)
    longest = max(found.setters, key=lambda setter: setter.share)
    assert longest is not found.first  # what is waited for longest is told first, with why it does not set the pace
    assert why.startswith(f"a lower {longest.name} saves at most {longest.saving:.0%}, as titanx-nervana is 97% used")
    for setter in found.setters:
        assert effects[kinds[setter.kind], setter.of] <= setter.saving + 0.01


def test_boards_that_share_their_power_are_resources():
    """Two dies of a K80 share a board; under interference the analysis names it, and comparisons say the same."""
    graph, cluster = load_model("lenet5", batch=64), load_cluster("k80-16")
    planned = simulated_plan(graph, cluster, strategy="data")
    uses = resource_uses(planned.replayed)

    assert planned.replayed.program.conditions.interference
    assert [use for use in uses if use.of == "board"]
    (compared,) = compare(graph, cluster, ["data"]).strategies
    assert compared.pace.sentence == pace_of(planned.replayed).sentence
    assert compared.pace.left == pace_of(planned.replayed).left


def framework_pace(framework, model="alexnet"):
    """Pace of data parallelism on four K80 under a framework, and what each resource saves if twice as good."""
    graph, cluster = load_model(model, batch=128), load_cluster("k80-16").take(4)
    planned = simulated_plan(graph, cluster, strategy="data", framework=framework)
    lower_on = plan_lowering(planned.plan, graph, cluster)
    rows = sensitivities(planned.replayed.program, lower_on)
    return pace_of(planned.replayed), {(row.quantity, row.of): -row.effect for row in rows}


def test_copies_to_and_from_servers_are_waited_for_on_their_links():
    found, effects = framework_pace("ps")
    shares = {(setter.kind, setter.of): setter.share for setter in found.setters}

    assert shares["bandwidth", "card-port"] > 0.5
    assert (found.first.kind, found.first.of) == ("bandwidth", "card-port")
    assert effects["bandwidth", "card-port"] > 0.2
    assert sum(shares.values()) == pytest.approx(1.0)
    assert effects["bandwidth", found.first.of] <= found.first.saving + 0.01


def test_coordination_of_ranks_sets_the_pace_where_cycles_are_long():
    found, _ = framework_pace("horovod:cycle_ms=400", "lenet5")

    assert (found.first.kind, found.first.of, found.first.where) == ("coordination", "ranks", "")
    assert found.sentence.startswith("coordination of the ranks sets the pace: the iteration waits ")
    assert found.remedy.startswith("a quicker coordination of ranks: twice as good saves at most about ")


def test_boards_become_faster_with_their_devices():
    """The power of a board is no reason why faster devices should not help."""
    found, effects = framework_pace("ideal")
    (arithmetic,) = (setter for setter in found.setters if setter.kind == "arithmetic")

    assert found.busy("board") > 0
    assert effects["speed", "k80"] <= arithmetic.saving + 0.01
    assert arithmetic.saving > 0.8 * min(arithmetic.share / 2, effects["speed", "k80"])
