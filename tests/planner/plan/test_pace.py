"""What sets the pace, against plans whose bottleneck is known."""

import re

import pytest

from hwprofiles.catalogue.cluster_catalogue import load_cluster
from planner.models.registry import load_model
from planner.plan.analysis import ResourceUse, resource_uses
from planner.plan.compare_strategies import compare
from planner.plan.lowered_plan import lower_plan, plan_lowering
from planner.plan.make_plan import make_plan, simulated_plan
from planner.plan.pace import Pace, PaceSetter, pace_of
from planner.simulation.program_replay import replay
from planner.simulation.sensitivity import sensitivities


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


def test_what_can_save_most_is_the_remedy_and_agrees_with_replays():
    """VGG-16 on 96 GPUs: devices are nearly always busy, so links on the critical path can save next to nothing."""
    graph, cluster = load_model("vgg16", batch=96 * 32), load_cluster("fdr-32x3")
    plan = make_plan(graph, cluster, strategy="data")
    lower_on = plan_lowering(plan, graph, cluster)
    program = lower_on(cluster)
    found = pace_of(replay(program))
    kinds = {"bandwidth": "bandwidth", "latency": "latency", "arithmetic": "speed"}
    effects = {(row.quantity, row.of): -row.effect for row in sensitivities(program, lower_on)}
    assert found.best.kind == "arithmetic"
    assert found.remedy.startswith(
        f"faster devices than titanx-nervana: twice as good saves at most about {found.best.saving:.0%}"
    )
    assert found.busy("titanx-nervana") > 0.9
    told, _, why = found.sentence.partition("; ")
    shares = [int(share) for share in re.findall(r"(\d+)%", told)]
    assert shares == sorted(shares, reverse=True)
    assert len(shares) == 3
    assert sum(shares) == pytest.approx(100, abs=2)
    longest = found.first
    assert longest is not found.best  # what sets the pace is told first, with why something else helps more
    assert told.startswith(f"{longest.name} sets the pace: the iteration waits {shares[0]}% of its time for it")
    assert why.startswith(f"a lower {longest.name} saves at most {longest.saving:.0%}, as titanx-nervana is 97% used")
    for setter in found.setters:
        assert effects[kinds[setter.kind], setter.of] <= setter.saving + 0.01


def test_savings_that_were_replayed_stand_in_place_of_bounds():
    """Where messages take of the memory that arithmetic needs, faster devices save more than half of their share."""
    graph, cluster = load_model("alexnet", batch=64), load_cluster("dgx-a100:nodes=2")
    lower_on = plan_lowering(make_plan(graph, cluster, strategy="data"), graph, cluster)
    program = lower_on(cluster)
    rows, bounds = sensitivities(program, lower_on), pace_of(replay(program))
    best = min(rows, key=lambda row: row.effect)
    found = bounds.replayed_by(rows)
    assert (best.quantity, found.best.kind, found.best.of) == ("speed", "arithmetic", best.of)
    assert found.remedy == f"faster devices than {best.of}: twice as good saves {-best.effect:.0%}"
    assert -best.effect > next(each.saving for each in bounds.setters if each.of == best.of) + 0.01
    assert "twice as good saves about" in bounds.remedy


USES = tuple(
    ResourceUse(name=of, of=of, is_link=of != "gpu", busy=busy, use=busy, moved_bytes=0.0)
    for of, busy in (("port", 0.52), ("cable", 0.2), ("gpu", 0.9))
)


def pace_by_hand(**shares):
    """A pace with the shares that are given; arithmetic is used most."""
    kinds = {"port": "bandwidth", "cable": "latency", "gpu": "arithmetic"}
    setters = [
        PaceSetter(kind=kinds[of], of=of, share=share, where=of, saving=min(share / 2, 0.48 if of == "gpu" else 0.1))
        for of, share in shares.items()
    ]
    rows = tuple(sorted(setters, key=lambda row: -row.share))
    return Pace(iteration_s=1.0, setters=rows, busiest=USES)


@pytest.mark.parametrize("port", [0.05, 0.3, 0.46, 0.5, 0.54, 0.9])
def test_the_largest_share_that_is_shown_sets_the_pace(port):
    """Also where something else can save more, which is the remedy then; the sentence says why."""
    found = pace_by_hand(port=port, gpu=0.95 - port, cable=0.05)
    shown = {text: int(share) for share, text in re.findall(r"(\d+)% (?:of its time )?for ([a-z ]+)", found.sentence)}
    assert found.sentence.startswith("port links set" if port > 0.475 else "arithmetic of gpu sets")
    assert next(iter(shown.values())) == max(shown.values())
    assert found.finding == f"{found.first.name} {found.first.verb} the pace, {max(shown.values())}% of the time"
    assert f"saves at most about {max(each.saving for each in found.setters):.0%}" in found.remedy
    assert ("more bandwidth of port saves at most 10%, as gpu is 90% used already" in found.sentence) == (
        found.best is not found.first
    )


def test_a_change_is_unchanged_where_the_shares_that_are_shown_are():
    before = pace_by_hand(gpu=0.6, port=0.4)
    assert (
        pace_by_hand(gpu=0.6004, port=0.3996)
        .against(before)
        .startswith("unchanged: arithmetic of gpu sets the pace, 60% of the time")
    )
    assert (
        pace_by_hand(gpu=1.0)
        .against(before)
        .startswith("as before, arithmetic of gpu sets the pace: 100% of the time, before 60%; port")
    )
    assert (
        pace_by_hand(port=0.7, gpu=0.3)
        .against(before)
        .startswith(
            "was arithmetic of gpu (60%); now port links set the pace: the iteration waits 70% of its time for them"
        )
    )


def test_calls_of_a_library_are_no_latency_of_links():
    """What its launch and steps take does not shrink with the links' latency."""
    graph, cluster = load_model("lenet5", batch=64), load_cluster("dgx-h100")
    planned = simulated_plan(graph, cluster, strategy="data")
    lower_on = plan_lowering(planned.plan, graph, cluster)
    kinds = {(each.kind, each.of): each.share for each in pace_of(planned.replayed).setters}
    assert kinds["calls", "nccl"] > 0.05
    assert not any(kind == "latency" for kind, _ in kinds)
    rows = {(row.quantity, row.of): row.effect for row in sensitivities(planned.replayed.program, lower_on)}
    assert rows["latency", "nvlink4"] == 0


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
