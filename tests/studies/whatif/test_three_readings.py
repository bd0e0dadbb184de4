"""A sensitivity, a what-if and a plan for the changed cluster are one number: one strategy, lowered and replayed."""

import random

import pytest

from hwprofiles.catalogue.cluster_catalogue import cluster_with, load_cluster
from planner.models.registry import load_model
from planner.plan.make_plan import make_plan
from studies.whatif.scenarios import Scenario, whatif

BATCH = 96
CLUSTERS = (
    "dgx-a100:nodes=2",
    "dgx-h100",
    "abci-v100:nodes=2",
    "p100-4x4:nodes=2",
    "k80-16",
    "fdr-32x3:nodes=2",
    "lab-4",
)
"""With a library and without, with sums in switches, boards that share their power, turns on links, and overheads."""
STRATEGIES = (
    {"strategy": "data"},
    {"strategy": "owt"},
    {"strategy": "data=2,filter=2"},
    {"strategy": "pipeline", "stages": 2, "stage_at": ("fc1",), "micro_batches": 4},
    {"strategy": "pipeline=2,data=2", "stage_at": ("fc1",), "micro_batches": 4},
)
SYNCS = (None, None, None, "ring", "tree", "halving", "auto")
"""None: the library where there is one."""
FRAMEWORKS = (None, "ideal", "horovod:cycle_ms=5")


def drawn(seed):
    """Return a cluster of a random speed, a model, options of a plan, and changes by what they make better."""
    rng = random.Random(seed)
    spec = CLUSTERS[seed % len(CLUSTERS)]
    cluster = load_cluster(spec)
    profile = cluster.devices[0].profile
    of = rng.choice([link.link_class for link in cluster.links])
    speed = rng.uniform(0.3, 3)
    changes = {f"device.{profile}.speed": f"{speed}", f"link.{of}.bandwidth_factor": f"{rng.uniform(0.3, 3)}"}
    better = {("speed", profile): f"device.{profile}.speed={2 * speed}"}
    for quantity, factor in (("bandwidth", 2), ("latency", 0.5)):
        other = rng.choice([link.link_class for link in cluster.links])
        change = f"link.{other}.{quantity}_factor"
        better[quantity, other] = f"{change}={factor * float(changes.get(change, 1))}"
    strategy = STRATEGIES[seed % len(STRATEGIES)]
    options = strategy | {"gradient_sync": rng.choice(SYNCS), "framework": rng.choice(FRAMEWORKS)}
    return cluster_with(spec, changes), rng.choice(["lenet5", "alexnet"]), options, better


@pytest.mark.parametrize("seed", [0, 3, 4])
def test_three_readings_of_a_change_are_one_number(seed):
    spec, model, options, better = drawn(seed)
    scenarios = [Scenario(name=change, changes=(change,)) for change in better.values()]
    strategy = options["strategy"]
    others = {name: value for name, value in options.items() if name != "strategy"}

    result = whatif(model, spec, batch=BATCH, strategies=[strategy], scenarios=scenarios, **others)

    asked_s = {row.scenario: row.iteration_s for row in result.rows}
    rows = {(row.quantity, row.of): row for row in result.sensitivities[strategy]}
    for key, change in better.items():
        assert rows[key].iteration_s == pytest.approx(asked_s[change], rel=1e-9), (key, options)
    key, change = random.Random(seed).choice(list(better.items()))
    changed = load_cluster(cluster_with(spec, dict([change.split("=")])))
    planned = make_plan(load_model(model, batch=BATCH), changed, **options)
    assert planned.simulated_s == pytest.approx(rows[key].iteration_s, rel=1e-9)


def test_a_library_over_two_nodes_gains_from_its_faster_near_links():
    """A sensitivity that keeps how the library's bytes lay on yesterday's links sees a sixth of it."""
    graph, spec = load_model("alexnet", batch=64), "dgx-a100:nodes=2"
    rows = whatif("alexnet", spec, batch=64, strategies=["data"], scenarios=[]).sensitivities["data"]
    (row,) = (row for row in rows if (row.quantity, row.of) == ("bandwidth", "nvlink3"))
    before, after = (
        make_plan(graph, load_cluster(text), strategy="data").simulated_s
        for text in (spec, f"{spec},link.nvlink3.bandwidth_factor=2")
    )
    assert row.effect == pytest.approx(after / before - 1, rel=1e-9)
    assert row.effect < -0.1
