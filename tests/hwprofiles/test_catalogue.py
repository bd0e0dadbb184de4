"""The catalogue: device counts, closed-form transfers, agreement with published measurements."""

import numpy as np
import pytest

from groundwork.errors import ConfigError
from hwprofiles.catalogue.cluster_catalogue import cluster_names, describe_cluster, load_cluster

PER_NODE = {
    "a3-mega": 8,
    "abci-a100": 8,
    "abci-v100": 4,
    "alps": 4,
    "dgx-a100": 8,
    "dgx-b200": 8,
    "dgx-h100": 8,
    "dgx1-p100": 8,
    "fdr-32x3": 3,
    "gb200-nvl72": 72,
    "hgx-h200": 8,
    "k80-16": 16,
    "lab-2x2": 1,
    "lab-4": 1,
    "ndv4": 8,
    "ndv5": 8,
    "p100-4x4": 4,
    "p4d": 8,
    "p4de": 8,
    "p5": 8,
    "pcie-2x5": 10,
    "pcie-4x2": 8,
    "polaris": 4,
    "titanx-4": 4,
}
DEFAULT_NODES = {
    "abci-a100": 2,
    "abci-v100": 4,
    "alps": 2,
    "polaris": 2,
    "fdr-32x3": 32,
    "lab-2x2": 4,
    "lab-4": 4,
    "p100-4x4": 4,
}


def bottleneck(graph, a, b):
    return graph.bandwidth[list(graph.route(a, b))].min()


def classes(graph, a, b):
    return [graph.links[i].link_class for i in graph.route(a, b)]


def test_catalogue_holds_the_promised_clusters():
    assert cluster_names() == sorted(PER_NODE)


@pytest.mark.parametrize("name", PER_NODE)
def test_device_counts_follow_the_number_of_nodes(name):
    summary = describe_cluster(name)
    nodes = DEFAULT_NODES.get(name, 1)
    assert (summary.nodes, summary.devices) == (nodes, nodes * PER_NODE[name])
    assert summary.description
    assert summary.sources
    assert summary.parameters[0].name == "nodes"
    for count in (1, 3):
        graph = load_cluster(f"{name}:nodes={count}")
        assert (graph.node_count, len(graph.devices)) == (count, count * PER_NODE[name])
        assert [device.node for device in graph.devices] == np.repeat(range(count), PER_NODE[name]).tolist()


@pytest.mark.parametrize("name", PER_NODE)
def test_full_duplex_is_two_links(name):
    """Every link of the catalogue has its reverse, of the same class; transfers both ways share nothing."""
    graph = load_cluster(f"{name}:nodes=2")
    ends = {(link.source, link.target): link for link in graph.links}
    for (source, target), link in ends.items():
        assert not link.both_ways
        assert ends[target, source].link_class == link.link_class
    last = len(graph.devices) - 1
    assert not set(graph.route(0, last)) & set(graph.route(last, 0))


@pytest.mark.parametrize(
    ("spec", "a", "b", "gbyte_per_s", "latency_us"),
    [
        ("p100-4x4", 0, 1, 36.0, 5.0),  # the doubled pair
        ("p100-4x4", 0, 2, 18.0, 5.0),
        ("p100-4x4", 0, 4, 10.2, 2.4),  # EDR between nodes, PCIe at both ends the narrow place
        ("p100-4x4", 0, 7, 6.0, 6.2),  # and across the sockets of the second
        ("k80-16", 0, 1, 10.0, 7.0),
        ("k80-16", 0, 2, 4.5, 9.0),
        ("k80-16", 0, 15, 4.5, 14.0),
        ("titanx-4", 0, 1, 14.0, 2.0),
        ("titanx-4", 0, 2, 7.0, 4.0),
        ("abci-v100", 0, 3, 44.0, 1.4),
        ("abci-v100:nodes=18", 0, 4, 10.2, 2.4),  # one rack
        ("abci-v100:nodes=18", 0, 68, 10.2, 3.0),  # two racks
        ("dgx1-p100", 0, 4, 18.0, 5.0),
        ("dgx1-p100", 0, 5, 6.0, 4.6),  # no NVLink between them in the cube mesh
        ("dgx-a100", 0, 7, 272.0, 3.2),
        ("dgx-a100:nodes=2", 0, 8, 24.3, 3.2),
        ("dgx-h100", 0, 7, 385.0, 2.5),
        ("dgx-h100:nodes=2", 0, 8, 48.5, 3.2),
        ("dgx-h100:nodes=2", 0, 9, 48.5, 4.8),
    ],
)
def test_transfer_times_have_closed_forms(spec, a, b, gbyte_per_s, latency_us):
    """The narrowest link and the sum of latencies, worked out by hand from the files."""
    graph = load_cluster(spec)
    assert bottleneck(graph, a, b) == pytest.approx(gbyte_per_s * 1e9)
    assert graph.latency_s(a, b, 1e6) == pytest.approx(latency_us * 1e-6)


def test_exclusive_ports_are_those_of_the_pcie_switches():
    """8-bit paper, Sec. 2.3.1: crossing pairs uses one exclusive port out and one in; within a pair none."""
    graph = load_cluster("titanx-4")
    assert [graph.links[i].exclusive for i in graph.route(0, 2)] == [False, True, True, False]
    assert not any(graph.links[i].exclusive for i in graph.route(0, 1))
    # Both GPUs of a pair leave by the same port.
    assert set(graph.route(0, 2)) & set(graph.route(1, 3)) == {i for i in graph.route(0, 2) if graph.links[i].exclusive}


def test_dgx1_cube_mesh_has_four_nvlinks_a_gpu():
    """Every GPU has three neighbours in its quad and one in the other, as nvidia-smi topo prints."""
    graph = load_cluster("dgx1-p100")
    for gpu in range(8):
        peers = {link.target for link in graph.links if link.source == gpu and link.link_class == "nvlink1"}
        assert peers == {other for other in range(4 * (gpu // 4), 4 * (gpu // 4) + 4) if other != gpu} | {(gpu + 4) % 8}


def test_rails_meet_only_in_the_spine():
    """Equal GPUs of two DGX H100 stay on one leaf, others cross the spine, which carries all rails in full."""
    graph = load_cluster("dgx-h100:nodes=4")
    spine = graph.vertices.index("spine")
    crossed = lambda a, b: spine in {graph.links[i].target for i in graph.route(a, b)}  # noqa: E731
    assert not any(crossed(gpu, 8 + gpu) for gpu in range(8))
    assert all(crossed(gpu, 8 + (gpu + 1) % 8) for gpu in range(8))
    uplink = next(link for link in graph.links if link.target == spine)
    assert uplink.bandwidth_bytes_per_s == pytest.approx(4 * 48.5e9)


def test_abci_racks_are_oversubscribed_three_to_one():
    """ParaDL: 17 nodes a rack, a third of their bandwidth leaves it; the last rack may be partial."""
    graph = load_cluster("abci-v100:nodes=20")
    uplinks = [link for link in graph.links if graph.vertices[link.target] == "spine"]
    leaf = uplinks[0].source
    inside = sum(link.bandwidth_bytes_per_s for link in graph.links if link.target == leaf and link.link_class == "edr")
    assert len(uplinks) == 2
    assert inside / uplinks[0].bandwidth_bytes_per_s == pytest.approx(3, rel=1e-3)
    assert sum(name.startswith("rack1/") and name.endswith("gpu0") for name in graph.vertices) == 3


def test_each_abci_pcie_switch_uses_its_own_card():
    graph = load_cluster("abci-v100:nodes=2")
    names = [graph.links[graph.route(gpu, gpu + 4)[1]].name for gpu in range(4)]
    assert names == [f"rack0/node0/plx{card} -> rack0/node0/nic{card}" for card in (0, 0, 1, 1)]


# 8-bit paper, Table 5: kB (KiB), and ms a message; the last is marked with a question mark there.
TABLE_5 = [(108, 0.03), (288, 0.07), (576, 0.1), (1152, 0.3), (2312, 0.7), (36, 0.01), (72, 0.02), (3, 0.006)]


@pytest.mark.parametrize(("size_kib", "printed_ms"), TABLE_5)
def test_infiniband_latency_is_that_of_table_5(size_kib, printed_ms):
    graph = load_cluster("fdr-32x3")
    route = [i for i in graph.route(2, 5) if graph.links[i].link_class == "fdr"]
    assert sum(graph.links[i].latency.at(size_kib * 1024) for i in route) == pytest.approx(printed_ms / 1e3)


# 8-bit paper, Table 6: sub-batch's message in kB and ms of a single pass to the 31 other nodes.
TABLE_6 = [(144, 2.1), (288, 4.2), (576, 7.15), (1152, 17.4)]


@pytest.mark.parametrize(("size_kib", "printed_ms"), TABLE_6)
def test_single_passes_of_table_6_at_the_bandwidth_that_it_implies(size_kib, printed_ms):
    """31 messages one after another at 4.4 GB/s; 8 % covers the mean of the two latencies printed at 144 kB."""
    graph = load_cluster("fdr-32x3:fdr_gbyte_per_s=4.4")
    size = size_kib * 1024
    latency_s = graph.latency_s(2, 5, size)
    assert 31e3 * (latency_s + size / bottleneck(graph, 2, 5)) == pytest.approx(printed_ms, rel=0.08)


@pytest.mark.parametrize(
    ("spec", "a", "b", "measured_gbyte_per_s", "measured_us"),
    [
        ("abci-v100", 0, 4, 10.17, 2.4),  # OSU, one pair of GPU buffers between V100 nodes; 8 B
        ("dgx-a100", 0, 1, 274.0, 3.3),  # p2pBandwidthLatencyTest, NVSwitch, medians over 56 pairs
    ],
)
def test_links_agree_with_published_measurements(spec, a, b, measured_gbyte_per_s, measured_us):
    graph = load_cluster(spec)
    assert bottleneck(graph, a, b) / 1e9 == pytest.approx(measured_gbyte_per_s, rel=0.02)
    assert graph.latency_s(a, b, 8.0) * 1e6 == pytest.approx(measured_us, rel=0.05)


def test_spec_names_the_cluster():
    """Parameters at their defaults do not make another cluster."""
    assert load_cluster("p100-4x4:nodes=8").name == "p100-4x4:nodes=8"
    assert load_cluster("p100-4x4:nodes=4").digest == load_cluster("p100-4x4").digest


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("p100-4x5", "cluster must be a known name or a file, got 'p100-4x5'; did you mean 'p100-4x4'?"),
        ("", "cluster must be a known name or a file, got ''; known: a3-mega, abci-a100, "),
        ("nowhere/mine.yaml", "cluster file nowhere/mine.yaml does not exist"),
        ("titanx-4,link.node0/gpu0*.failed=1", "must follow a colon: titanx-4:link.node0/gpu0*.failed=1"),
        ("p100-4x4:node=8", "cluster p100-4x4: parameter must be one of nodes, got 'node'; did you mean 'nodes'?"),
        ("p100-4x4:nodes", "parameters must look like name=number, got 'nodes'"),
        ("p100-4x4:nodes=2,", "parameters must look like name=number, got ''"),
        ("p100-4x4:nodes=0", "nodes must be a whole number in 1 .. 64, got '0'"),
        ("p100-4x4:nodes=1.5", "nodes must be a whole number in 1 .. 64, got '1.5'"),
        ("p100-4x4:nodes=two", "nodes must be a whole number in 1 .. 64, got 'two'"),
        ("abci-v100:nodes=257", "nodes must be a whole number in 1 .. 256, got '257'"),
        ("fdr-32x3:fdr_gbyte_per_s=nan", "fdr_gbyte_per_s must be a number in 0.1 .. 6.8, got 'nan'"),
        ("fdr-32x3:fdr_gbyte_per_s=inf", "fdr_gbyte_per_s must be a number in 0.1 .. 6.8, got 'inf'"),
        ("p100-4x4:nodes=2,nodes=3", "nodes must be given once, got it twice"),
        ("p100-4x4:nodes=0,racks=1", "got '0'; parameter must be one of nodes, got 'racks'"),
    ],
)
def test_bad_specifications_say_what_is_wrong(spec, message):
    with pytest.raises(ConfigError) as caught:
        load_cluster(spec)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)
