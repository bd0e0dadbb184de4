import pytest

from groundwork.errors import ConfigError
from hwprofiles.catalogue.cluster_catalogue import load_cluster
from planner.models.registry import load_model
from planner.plan.make_plan import make_plan
from planner.plan.plan_request import PlanRequest
from studies.whatif import scenarios
from studies.whatif.scenarios import Scenario, standard_scenarios, whatif

CLUSTER = "p100-4x4:nodes=2"


def ask(*scenarios, strategies=("data",), batch=64):
    return whatif("lenet5", CLUSTER, batch=batch, strategies=strategies, scenarios=scenarios)


def test_today_and_each_change_are_plans_of_their_own():
    slow = Scenario(name="slow", changes=("link.pcie3-x16.bandwidth_factor=0.1",))
    rows = ask(slow, strategies=("data", "owt")).rows
    assert [(row.scenario, row.strategy) for row in rows] == [
        (scenario, strategy) for scenario in ("today", "slow") for strategy in ("data", "owt")
    ]
    graph = load_model("lenet5", batch=64)
    for row in rows:
        spec = CLUSTER if row.scenario == "today" else f"{CLUSTER},link.pcie3-x16.bandwidth_factor=0.1"
        assert row.iteration_s == make_plan(graph, load_cluster(spec), strategy=row.strategy).simulated_s
        assert row.against_today == row.samples_per_s / rows[row.strategy == "owt"].samples_per_s


SCENARIOS = {
    "lost": ("node.1.failed=1",),
    "cut": ("link.node1/nic*.failed=1",),
    "failed": tuple(f"link.node0/gpu{a} -> node0/gpu{b}.failed=1" for a, b in ((0, 1), (1, 0))),
    "switches": ("nodes.*.switches.gpus_per_port=4",),
    "slow": ("link.edr.bandwidth_factor=0.001",),
    "same": ("device.*.memory_gib=32",),
    "more": ("nodes=4",),
}


@pytest.fixture(scope="module")
def found():
    """Answers to all of them, asked at once, and to one with a batch of its own."""
    strong = Scenario(name="strong", changes=("nodes=4",), batch=64)
    return ask(*(Scenario(name=name, changes=changes) for name, changes in SCENARIOS.items()), strong)


@pytest.fixture
def rows(found):
    return {row.scenario: row for row in found.rows}


def test_a_lost_node_takes_its_samples_with_it(rows):
    lost = rows["lost"]
    assert (lost.devices, lost.batch) == (4, 32)
    assert (
        lost.iteration_s
        == make_plan(load_model("lenet5", batch=32), load_cluster("p100-4x4:nodes=1"), strategy="data").simulated_s
    )


def test_devices_that_are_cut_off_are_given_up(rows):
    """The iteration goes on without them, with the samples of those that are left."""
    cut = rows["cut"]
    assert cut.lost == tuple(f"node1/gpu{i}" for i in range(4))
    assert (cut.devices, cut.batch) == (4, 32)
    alone = make_plan(load_model("lenet5", batch=32), load_cluster("p100-4x4:nodes=1"), strategy="data").simulated_s
    assert cut.iteration_s == alone
    assert cut.detour == ("no way round: node1/gpu0, node1/gpu1, node1/gpu2, node1/gpu3 are cut off, the other 4 go on")


def test_a_failed_link_with_another_way_names_it(rows):
    """Of two GPUs that NVLink no longer joins the messages go over their PCIe switch."""
    row = rows["failed"]
    assert (row.lost, row.devices) == ((), 8)
    assert row.detour == "way round: node0/gpu0 → node0/plx0 → node0/gpu1"
    assert rows["switches"].detour == ""


def test_scenarios_say_what_sets_the_pace_before_and_after(rows):
    """Slow links take over from arithmetic; without a change the same resource is named."""
    today, changed, unchanged = (rows[name] for name in ("today", "slow", "same"))
    assert changed.pace.first.of == "edr"
    assert changed.why.startswith(f"was {today.pace.first.name}")
    assert "now edr links set the pace" in changed.why
    assert unchanged.why.startswith(f"unchanged: {today.pace.first.name}")
    assert today.likely_against_today == (1.0, 1.0)
    assert unchanged.likely_against_today == (1.0, 1.0)  # no error is left of a change that touches nothing
    assert changed.likely_against_today[1] < 1


def test_a_scenario_replaces_parameters_and_may_have_a_batch_of_its_own(rows):
    asked = [rows[name] for name in ("today", "more", "strong")]
    assert [(row.devices, row.batch) for row in asked] == [(8, 64), (16, 128), (16, 64)]
    with pytest.raises(ConfigError, match="change must look like name=value, got 'nodes'"):
        ask(Scenario(name="bad", changes=("nodes",)))


def test_a_strategy_that_cannot_be_had_is_a_row_with_the_reason():
    row = ask(batch=63).rows[0]
    assert "multiple of the 8 devices" in row.reason


def test_standard_scenarios_name_every_class_in_use_and_never_speed_up():
    cluster = load_cluster(CLUSTER)
    scenarios = standard_scenarios(cluster)
    classes = {cluster.links[i].link_class for target in range(1, 8) for i in cluster.route(0, target)}
    assert sum("at a tenth" in scenario.name for scenario in scenarios) == len(classes)
    assert scenarios[-1].changes == ("node.1.failed=1",)
    rows = ask(*scenarios, batch=4096).rows  # of few samples one machine makes more than two, whose sums take longer
    answered = [row for row in rows if not row.reason]
    assert len(answered) > len(rows) / 2
    assert all(row.against_today <= 1 + 1e-9 for row in answered)


def test_the_straggler_has_half_the_speed_that_the_device_has():
    spec = f"{CLUSTER},device.node0/gpu0.speed=0.25"
    today, slow = (load_cluster(each).devices for each in (spec, standard_scenarios(load_cluster(spec))[0].spec(spec)))
    assert (today[0].speed, slow[0].speed) == (0.25, 0.125)
    assert slow[1:] == today[1:]


def test_sensitivities_are_those_of_today(found):
    assert set(found.sensitivities) == {"data"}
    assert {row.of for row in found.sensitivities["data"]} >= {"p100", "pcie3-x16"}
    assert len(found.to_frame()) == len(found.rows)


@pytest.mark.parametrize(
    ("change", "rule"),
    [
        ("link.ibx.bandwidth_factor=2", r"class of links \(nvlink1, .*\) or pattern"),
        ("node.7.failed=1", "node must be in 0 .. 1"),
    ],
)
def test_a_bad_change_is_an_error_and_no_row(change, rule, monkeypatch):
    """It is said before any plan is made."""
    monkeypatch.setattr(scenarios, "simulated_plan", None)
    with pytest.raises(ConfigError, match=rule):
        ask(Scenario(name="bad", changes=(change,)))
    with pytest.raises(ConfigError, match="at least one"):
        ask(strategies=())


def test_options_are_those_of_the_plans():
    slow = Scenario(name="slow", changes=("link.pcie3-x16.bandwidth_factor=0.1",))
    options = {"dtype": "float64", "framework": "ideal", "gradient_sync": "tree", "spread": False}
    today, then = whatif("lenet5", CLUSTER, batch=64, strategies=("data",), scenarios=(slow,), **options).rows
    graph = load_model("lenet5", batch=64, element_bytes=8)
    for row, cluster in ((today, load_cluster(CLUSTER)), (then, load_cluster(slow.spec(CLUSTER)))):
        request = PlanRequest(model="lenet5", cluster=CLUSTER, batch=64, strategy="data", **options)
        assert row.iteration_s == make_plan(graph, cluster, request).simulated_s


def test_what_only_the_change_makes_possible_is_an_answer():
    short = f"{CLUSTER},device.*.memory_gib=0.001"
    more = Scenario(name="more memory", changes=("device.*.memory_gib=16",))
    today, then = whatif("lenet5", short, batch=64, strategies=("data",), scenarios=(more,)).rows
    assert "does not fit" in today.reason
    assert then.iteration_s > 0
