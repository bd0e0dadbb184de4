"""One of several replicas that do the same, lowered for all of them, against the program of all devices."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, example, given, settings, strategies as st

from groundwork.errors import ConfigError, InfeasiblePlanError
from hwprofiles.catalogue.cluster_catalogue import load_cluster
from planner.cost.cost_model import CostModel
from planner.lowering.alike_replicas import lower_alike, lower_folded
from planner.lowering.changed_links import relinked
from planner.memory.peak_memory import peak_by_kind_bytes, peak_memory_bytes
from planner.models.registry import load_model
from planner.plan.analysis import resource_uses
from planner.plan.lowered_plan import cost_model_of, plan_lowering
from planner.plan.make_plan import derived, make_plan, request_for
from planner.simulation.execution_models import resources_like
from planner.simulation.lower_bound import iteration_bound
from planner.simulation.memory_over_time import memory_curve
from planner.simulation.program_replay import replay
from planner.simulation.sensitivity import sensitivities
from planner.simulation.steady_path import program_path
from planner.strategies.micro_batches import MicroBatching
from planner.strategies.named_strategies import named_strategy, spaces_of

FABRICS = (
    "fabric=fat-tree,leaf_nodes=2,oversubscription=2",
    "fabric=fat-tree,leaf_nodes=2,routing=hashed",
    "fabric=fat-tree-3,leaf_nodes=1,pod_leaves=2",
    "fabric=dragonfly,leaf_nodes=1,group_leaves=2",
    "fabric=torus,x=2,y=2",
)
CLUSTERS = ("titanx-4", "p100-4x4", "dgx1-p100", "fdr-32x3:nodes=4", "abci-v100", "dgx-a100", "dgx-h100:nodes=2")
CLUSTERS += ("dgx-h100:nodes=4,leaf_nodes=2", *(f"polaris:nodes=4,{fabric}" for fabric in FABRICS))
LLAMA = "llama-1b:layers=2,hidden=256,heads=8,ffn=512,words=512,sequence=64"
MODELS = ("lenet5", "resnet-cifar:depth=8", LLAMA, f"{LLAMA},tied=0")
STORAGE = ("", ",zero=1", ",zero=2", ",zero=3", ",micro-batches=2", ",pipeline=2,micro-batches=2")


def question(model, cluster, batch, **fields):
    """Prices, and a strategy by its text."""
    machines = load_cluster(cluster) if isinstance(cluster, str) else cluster
    graph = load_model(model, batch=batch)
    request = request_for(graph, machines, None, **fields).resolved(machines)
    costs = cost_model_of(request, graph, machines)
    return costs, derived(costs, request)


def both(costs, planned):
    """Programs of one replica and of all devices."""
    return (planned.lowered(costs, check_memory=False, folded=folded) for folded in (True, False))


def same(one, all_devices):
    return one == pytest.approx(all_devices, rel=1e-9, abs=1e-15)


def check(costs, planned, one, whole):
    """Times, bytes, memory, link use and critical path of both are equal."""
    assert one.size < whole.size == one.stands_for.sum()
    first, second = replay(one), replay(whole)
    assert same(first.ends_s, second.ends_s)
    assert same(first.expected_s, second.expected_s)
    assert same(planned.additive_s(costs, one), planned.additive_s(costs, whole))
    for rungs in ({"overlap": False}, {"contention": False}, {"overlap": False, "contention": False}):
        plain = rungs | {"interference": False, "spread": False}
        assert same(replay(one, **plain).iteration_s, replay(whole, **plain).iteration_s)
    assert same(one.moved_bytes, whole.moved_bytes)
    assert same(peak_memory_bytes(one), peak_memory_bytes(whole))
    assert peak_by_kind_bytes(one) == pytest.approx(peak_by_kind_bytes(whole), rel=1e-9)
    assert same(memory_curve(first).peak_bytes, memory_curve(second).peak_bytes)
    assert same(iteration_bound(one)[0], iteration_bound(whole)[0])
    used, known = first.link_use(8), second.link_use(8)
    assert used.alike.sum() == len(known.links)
    assert same(used.moved_bytes[used.like], known.moved_bytes)
    assert used.share[used.like] == pytest.approx(known.share, rel=1e-6, abs=1e-9)
    path, longest = program_path(first), program_path(second)
    assert sum(path.seconds_by("kind").values()) == pytest.approx(sum(longest.seconds_by("kind").values()), rel=1e-9)
    resources, known_resources = ({row.name: row for row in resource_uses(each)} for each in (first, second))
    names, like = first.program_graph.graph.resource_names, resources_like(one)
    like = np.append(like, np.arange(len(like), len(names)))
    assert sum(row.alike for row in resources.values()) == len(known_resources)
    for resource in np.flatnonzero([name in known_resources for name in names]).tolist():
        row, other = resources[names[int(like[resource])]], known_resources[names[resource]]
        assert (row.busy, row.use, row.moved_bytes) == pytest.approx(
            (other.busy, other.use, other.moved_bytes), rel=1e-6, abs=1e-9
        )
    shares, of_all = first.shares(), second.shares()
    assert same(shares.exposed_communication_s, of_all.exposed_communication_s)
    assert same(shares.compute_s, of_all.compute_s)


def slowed(machines, what, places):
    """The cluster with some slower devices, or with a slower link."""
    devices, links = list(machines.devices), list(machines.links)
    if what == "devices":
        for i, place in enumerate(places):
            at = place % len(devices)
            devices[at] = replace(devices[at], speed=0.5 + 0.1 * (i % 2))
        return machines.with_devices(devices)
    if what == "link":
        at = places[0] % len(links)
        links[at] = replace(links[at], bandwidth_bytes_per_s=links[at].bandwidth_bytes_per_s / 3)
        return machines.with_links(links)
    return machines


@example("p100-4x4", "lenet5", "", STORAGE[-1], 2, "ideal", "ideal", "", [0])
@settings(max_examples=10)
@given(
    cluster=st.sampled_from(CLUSTERS),
    model=st.sampled_from(MODELS),
    inner=st.sampled_from(["", "tensor=2", "tensor=4", "filter=2"]),
    storage=st.sampled_from(STORAGE),
    samples=st.sampled_from([2, 4]),
    framework=st.sampled_from(["ideal", "ddp"]),
    software=st.sampled_from(["ideal", "pytorch"]),
    slow=st.sampled_from(["", "", "", "devices", "link"]),
    places=st.lists(st.integers(0, 1000), min_size=1, max_size=3),
)
def test_one_replica_has_the_times_of_all(cluster, model, inner, storage, samples, framework, software, slow, places):
    machines = slowed(load_cluster(cluster), slow, places)
    count = len(machines.devices)
    degree = count // (int(inner[-1]) if inner else 1) // (2 if "pipeline" in storage else 1)
    text = ",".join(part for part in (f"data={degree}", inner) if part) + storage
    try:
        costs, planned = question(
            model, machines, samples * count, strategy=text, framework=framework, software=software
        )
        one, whole = both(costs, planned)
    except (ConfigError, InfeasiblePlanError):
        assume(False)
    if one.classes is None:
        assert one.size == whole.size
        return
    check(costs, planned, one, whole)


@pytest.mark.parametrize(
    ("model", "cluster", "text", "replicas"),
    [
        ("resnet-cifar:depth=8", "dgx-h100:nodes=2", "data", 16),
        (f"{LLAMA},tied=0", "dgx-h100:nodes=4", "tensor=8,pipeline=2,data=2,zero=1,micro-batches=2", 2),
        (LLAMA, "dgx-h100:nodes=4", "tensor=8,pipeline=2,data=2,micro-batches=2", 2),
        (LLAMA, "dgx-h100:nodes=4", "tensor=4,data=8,zero=2", 8),
        (LLAMA, "dgx-h100:nodes=2", "fsdp", 16),
        ("vgg16", "p100-4x4", "data=4,filter=4", 4),
    ],
)
def test_replicas_are_found(model, cluster, text, replicas):
    costs, planned = question(model, cluster, 64, strategy=text)
    one, whole = both(costs, planned)
    assert one.classes.count == replicas
    assert len(np.unique(one.device[one.device >= 0])) * replicas == len(costs.cluster.devices)
    check(costs, planned, one, whole)


def test_normalisation_over_all_replicas():
    costs, planned = question("resnet-cifar:depth=8", "p100-4x4", 64, strategy="data", batch_norm="reduced")
    one, whole = both(costs, planned)
    assert one.classes.count == 16
    check(costs, planned, one, whole)


@pytest.mark.parametrize(
    ("model", "cluster", "text"),
    [
        (f"{LLAMA},tied=0".replace("layers=2", "layers=1"), "dgx-h100:nodes=2", "tensor=4,pipeline=2,data=2"),
    ],
)
def test_sensitivities_are_those_of_all_devices(model, cluster, text):
    machines, graph = load_cluster(cluster), load_model(model, batch=32)
    plan = make_plan(graph, machines, strategy=text)
    one, whole = (plan_lowering(plan, graph, machines, folded=folded) for folded in (True, False))
    assert one(machines).size < whole(machines).size
    rows, known = (
        {row.change: row for row in sensitivities(lower_on(machines), lower_on)} for lower_on in (one, whole)
    )
    assert rows.keys() == known.keys()
    for change, row in rows.items():
        other = known[change]
        assert same(row.iteration_s, other.iteration_s)
        assert row.elasticity == pytest.approx(other.elasticity, abs=1e-6)
        assert row.reroutes == other.reroutes


def test_number_of_tasks_does_not_grow_with_devices():
    sizes = []
    for nodes in (2, 16):
        costs, planned = question("lenet5", f"dgx-h100:nodes={nodes}", 8 * nodes, strategy="data")
        sizes.append(next(both(costs, planned)).size)
    assert sizes[0] == sizes[1]


def test_samples_that_micro_batches_do_not_divide_are_refused():
    """Sixteen samples on eight devices, by one of them: four micro-batches have none for each."""
    model = CostModel(load_model("lenet5", batch=16), load_cluster("dgx-h100"))
    spaces = spaces_of(model.graph, named_strategy("data", model.graph, 8), 8)
    with pytest.raises(ConfigError, match="micro-batches of 4 samples"):
        lower_folded(model, spaces, micro_batching=MicroBatching(parts=4, first=0))
    assert lower_folded(model, spaces, micro_batching=MicroBatching(parts=2, first=0)).classes is not None


def test_a_straggler_and_a_slow_link_are_seen():
    cluster = load_cluster("dgx-h100:nodes=4")
    text = "tensor=8,pipeline=2,data=2,micro-batches=2"
    costs, planned = question(f"{LLAMA},tied=0", cluster, 32, strategy=text)
    assert next(both(costs, planned)).classes is not None
    slow = [replace(each, speed=0.5) if each.name == "node1/gpu3" else each for each in cluster.devices]
    costs, planned = question(f"{LLAMA},tied=0", cluster.with_devices(slow), 32, strategy=text)
    assert next(both(costs, planned)).classes is None  # there are two replicas only
    costs, planned = question(f"{LLAMA},tied=0", cluster.with_devices(slow), 32, strategy="tensor=4,data=8")
    one, whole = both(costs, planned)
    assert one.classes.kind.tolist() == [0, 0, 1, 0, 0, 0, 0, 0]
    assert len(np.unique(one.device[one.device >= 0])) == 8
    check(costs, planned, one, whole)
    used = next(link.name for link in cluster.links if link.name.startswith("node1/gpu0 -> "))
    links = [
        replace(link, bandwidth_bytes_per_s=link.bandwidth_bytes_per_s / 3) if link.name == used else link
        for link in cluster.links
    ]
    costs, planned = question(f"{LLAMA},tied=0", cluster.with_links(links), 32, strategy=text)
    assert next(both(costs, planned)).classes is None
    costs, planned = question(f"{LLAMA},tied=0", cluster.with_links(links), 32, strategy="tensor=4,data=8")
    one, whole = both(costs, planned)
    assert one.classes.kind.tolist() == [0, 0, 1, 2, 0, 0, 0, 0]
    check(costs, planned, one, whole)


def test_changed_links_are_compared_again():
    cluster = load_cluster("dgx-h100:nodes=4")
    text = "tensor=8,pipeline=2,data=2,micro-batches=2"
    costs, planned = question(f"{LLAMA},tied=0", cluster, 32, strategy=text, gradient_sync="ring", framework="ideal")
    one = next(both(costs, planned))
    faster = [replace(link, bandwidth_bytes_per_s=2 * link.bandwidth_bytes_per_s) for link in cluster.links]
    now = costs.on(cluster.with_links(faster), costs.conditions)
    again = relinked(one, costs, now)
    assert again.classes is not None
    assert same(replay(again).iteration_s, replay(planned.lowered(now, check_memory=False)).iteration_s)
    used = next(link.name for link in cluster.links if link.name.startswith("node1/gpu0 -> "))
    links = [
        replace(link, bandwidth_bytes_per_s=link.bandwidth_bytes_per_s / 3) if link.name == used else link
        for link in cluster.links
    ]
    assert relinked(one, costs, costs.on(cluster.with_links(links), costs.conditions)) is None


@pytest.mark.parametrize(
    ("model", "text", "options", "why"),
    [
        ("alexnet", "data", {"framework": "ps"}, "programs with parameter servers have tasks for each device"),
        ("alexnet", "data", {"compress_gradients": "float16"}, "programs with compressed messages have tasks"),
    ],
)
def test_what_keeps_replicas_from_being_alike_is_said(model, text, options, why):
    costs, planned = question(model, "p100-4x4", 64, strategy=text, **options)
    said = lower_alike(costs, costs.spaces_of(planned.strategy), compressed=planned.compressed)
    assert isinstance(said, str)
    assert why in said


def test_the_link_that_tells_replicas_apart_is_named():
    """Of two replicas of two devices of one machine, the link by which the first device sends is slow."""
    machines = load_cluster("dgx-h100")
    links, at = list(machines.links), int(machines.route(0, 1)[0])
    links[at] = replace(links[at], bandwidth_bytes_per_s=links[at].bandwidth_bytes_per_s / 3)
    costs, planned = question(LLAMA, machines.with_links(links), 64, strategy="data=2,tensor=2")
    said = lower_alike(costs, costs.spaces_of(planned.strategy))
    assert isinstance(said, str)
    assert links[at].name in said
