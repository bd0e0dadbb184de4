import pytest

from groundwork.errors import ConfigError, UnreachableError
from hwprofiles.catalogue.cluster_catalogue import cluster_with, load_cluster, load_surviving
from planner.cost.cost_model import CostModel
from planner.models.registry import load_model
from planner.plan.make_plan import make_plan


def speeds(cluster, link_class):
    return {link.bandwidth_bytes_per_s for link in cluster.links if link.link_class == link_class}


def test_a_class_of_links_takes_another_bandwidth_in_either_unit():
    plain = load_cluster("fdr-32x3:nodes=2")
    assert speeds(load_cluster("fdr-32x3:nodes=2,link.fdr.bandwidth_gbyte_per_s=1.5"), "fdr") == {1.5e9}
    assert speeds(load_cluster("fdr-32x3:nodes=2,link.fdr.bandwidth_gbit_per_s=8"), "fdr") == {1e9}
    halved = load_cluster("fdr-32x3:nodes=2,link.fdr.bandwidth_factor=0.5")
    assert speeds(halved, "fdr") == {0.5 * speed for speed in speeds(plain, "fdr")}
    assert speeds(halved, "slot") == speeds(plain, "slot")


def test_latency_replaces_the_table_of_its_class():
    cluster = load_cluster("fdr-32x3:nodes=2,link.fdr.latency_us=7")
    links = [link for link in cluster.links if link.link_class == "fdr"]
    assert links
    assert all(link.latency.at(size) == 7e-6 for link in links for size in (1.0, 1e9))


def test_one_slow_link_is_named_by_a_pattern():
    cluster = load_cluster("fdr-32x3:nodes=2,link.node1/nic -> *.bandwidth_factor=0.1")
    slow = [link.name for link in cluster.links if link.bandwidth_bytes_per_s == 0.6e9]
    assert slow == ["node1/nic -> fabric"]


def test_a_straggler_holds_up_data_parallelism_by_its_own_factor():
    """All devices compute the same, so the slowest one's arithmetic sets the pace."""
    graph = load_model("vgg16", batch=96)
    even, uneven = (
        CostModel(graph, load_cluster(f"fdr-32x3:nodes=2{change}")) for change in ("", ",device.node1/gpu2.speed=0.5")
    )
    assert [profile.name for profile in uneven.profiles] == ["titanx-nervana", "titanx-nervana x 0.5"]
    assert uneven.profile_of.tolist() == [0, 0, 0, 0, 0, 1]
    shares = [make_plan(model.graph, model.cluster, strategy="data").simulated_s for model in (even, uneven)]
    assert shares[1] == pytest.approx(2 * shares[0], rel=0.05)
    assert even.compute_times.digest != uneven.compute_times.digest


def test_speed_one_changes_nothing_that_is_hashed():
    same = load_cluster("fdr-32x3:nodes=2,device.*.speed=1")
    assert CostModel(load_model("lenet5", batch=6), same).profile_of.tolist() == [0] * 6


def test_failures_are_counted_by_the_whole_cluster_and_not_one_after_another():
    cluster = load_cluster("fdr-32x3:nodes=4,node.0.failed=1,node.1.failed=1,device.node3/gpu0.failed=1")
    assert [device.name for device in cluster.devices] == [f"node2/gpu{k}" for k in range(3)] + [
        "node3/gpu1",
        "node3/gpu2",
    ]
    assert cluster.node_count == 2


def test_a_failed_link_is_gone_and_a_lost_route_is_named():
    ring = load_cluster("fdr-32x3:nodes=1,link.node0/plx1 -> node0/host.bandwidth_factor=2")
    assert len(ring.devices) == 3
    with pytest.raises(UnreachableError, match=r"no route leads from device 'node0/gpu0' to 'node1/gpu0'"):
        load_cluster("fdr-32x3:nodes=2,link.node1/nic*.failed=1")


@pytest.mark.parametrize(
    ("change", "rule"),
    [
        ("link.fdx.bandwidth_factor=2", r"class of links .* got 'fdx'; did you mean 'fdr'"),
        ("link.ib.latency_us=2", r"must name a class of links \(slot, nic-port, switch-port, fdr\) or pattern"),
        ("nodes.*.switches.gpus_per_port=1", r"must be >= 2 for 3 devices on 2 switches, got 1"),
        ("nodes.*.switches.gpus_per_port=1.5", r"must be a whole number from 1 to 1e.09, got '1.5'"),
        ("nodes.7.switches.gpus_per_port=3", r"nodes must match one of 0 .. 1, got '7'"),
        ("nodes.*.gpus_per_port=3", r"must look like nodes.PATTERN.switches.gpus_per_port=number"),
        ("device.*.profile=", r"must be a compute profile, got ''"),
        ("link.fdr.bandwidth=2", r"must be one of bandwidth_gbyte_per_s"),
        ("link.fdr.bandwidth_gbyte_per_s=0", r"must be a number from 1e-09 to 1e.09, got '0'"),
        ("link.fdr.latency_us=-1", r"must be a number from 0 to 1e.09, got '-1'"),
        ("link.node0/nic*.latency_us=1", r"of single links set bandwidth_factor or latency_factor"),
        ("device.gpu9.speed=1", r"compute profile or pattern of device names, got 'gpu9'"),
        ("device.*.speed=fast", r"must be a number from 1e-09 to 1e.09, got 'fast'"),
        ("device.*.failed=1", r"must leave one of"),
        ("device.*.failed=0", r"failed must be 1, got '0'"),
        ("node.9.failed=1", r"node must be in 0 .. 1, got '9'"),
        ("switch.x.failed=1", r"must look like link\.CLASS\.QUANTITY=number"),
    ],
)
def test_bad_changes_name_the_rule(change, rule):
    with pytest.raises(ConfigError, match=rule):
        load_cluster(f"fdr-32x3:nodes=2,{change}")


def joined(cluster):
    """The switch of every device."""
    return {
        cluster.vertices[link.source]: cluster.vertices[link.target]
        for link in cluster.links
        if link.source < len(cluster.devices) <= link.target
    }


def test_devices_are_dealt_to_switches_in_order():
    """Three GPUs on one switch instead of two and one; the other node, cards and classes stay."""
    plain = load_cluster("fdr-32x3:nodes=2")
    shared = load_cluster("fdr-32x3:nodes=2,nodes.1.switches.gpus_per_port=3")
    assert joined(plain)["node1/gpu2"] == "node1/plx1"
    assert joined(shared) == joined(plain) | {"node1/gpu2": "node1/plx0"}
    assert [link.link_class for link in shared.links] == [link.link_class for link in plain.links]
    names = {(shared.vertices[link.source], shared.vertices[link.target]): link.name for link in shared.links}
    assert all(name == f"{source} -> {target}" for (source, target), name in names.items())


def test_switches_of_devices_alone_keep_them():
    """NVSwitches stay; of the PCIe switches every second one is left to its card."""
    cluster = load_cluster("dgx-h100:nodes.*.switches.gpus_per_port=2")
    ends = {(cluster.vertices[link.source], cluster.vertices[link.target]) for link in cluster.links}
    assert {("node0/gpu3", "node0/plx1"), ("node0/gpu3", "node0/nvswitch"), ("node0/plx7", "node0/nic7")} <= ends
    assert ("node0/gpu3", "node0/plx3") not in ends


def test_devices_take_another_profile():
    cluster = load_cluster("fdr-32x3:nodes=1,device.*.profile=p100,device.*gpu2.profile=t4")
    assert [device.profile for device in cluster.devices] == ["p100", "p100", "t4"]


@pytest.mark.parametrize(
    ("links", "lost"),
    [
        ("link.node1/nic*.failed=1", {"node1/gpu0", "node1/gpu1", "node1/gpu2"}),
        ("link.node0/plx0 -> *.failed=1", {"node0/gpu0", "node0/gpu1"}),
        ("link.node0/gpu1 -> *.failed=1", {"node0/gpu1"}),
        ("link.*fabric*.bandwidth_factor=2", set()),
    ],
)
def test_failed_links_cut_off_the_smaller_part(links, lost):
    """Those that are left reach each other, and any that was given up would not."""
    cluster, names = load_surviving(f"fdr-32x3:nodes=3,{links}")
    assert set(names) == lost
    assert len(cluster.devices) == 9 - len(lost)
    assert all(cluster.route(a, b) for a in range(len(cluster.devices)) for b in range(len(cluster.devices)) if a != b)


def test_a_specification_takes_other_values():
    assert cluster_with("p100-4x4:nodes=2,device.*.speed=0.5", {"nodes": "8", "link.edr.latency_us": "2"}) == (
        "p100-4x4:nodes=8,device.*.speed=0.5,link.edr.latency_us=2"
    )
    assert cluster_with("p100-4x4", {}) == "p100-4x4"
