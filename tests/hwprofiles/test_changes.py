import pytest

from hwprofiles.catalogue.cluster_catalogue import load_cluster
from hwprofiles.errors import ConfigError, UnreachableError
from planner.cost.cost_model import CostModel
from planner.models.registry import load_model
from planner.plan.planning import make_plan


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
)  # fmt: skip
def test_bad_changes_name_the_rule(change, rule):
    with pytest.raises(ConfigError, match=rule):
        load_cluster(f"fdr-32x3:nodes=2,{change}")
