"""Routes, latencies and subgraphs of device graphs, against networkx and closed forms."""

import pickle
from dataclasses import replace

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from groundwork.errors import ConfigError, UnreachableError
from hwprofiles.catalogue.cluster_catalogue import load_cluster
from hwprofiles.devices.device import CopyEngines, Device, MessageOverhead
from hwprofiles.devices.device_graph import DeviceGraph
from hwprofiles.devices.latency import Latency
from hwprofiles.devices.link import Link


def device(index: int, node: int = 0) -> Device:
    return Device(name=f"gpu{index}", node=node, profile="p100", memory_bytes=2.0**34)


def link(source: int, target: int, *, gbyte_per_s=1.0, latency=0.0, both_ways=True, name="") -> Link:
    return Link(
        name=name or f"{source}-{target}",
        source=source,
        target=target,
        both_ways=both_ways,
        bandwidth_bytes_per_s=gbyte_per_s * 1e9,
        latency=Latency.constant(latency),
        exclusive=False,
        link_class="test",
    )


@st.composite
def random_graphs(draw):
    """Up to 6 devices and 5 switches with random links, one way or both ways, ties likely."""
    devices, switches = draw(st.integers(1, 6)), draw(st.integers(0, 5))
    vertex = st.integers(0, devices + switches - 1)
    ends = draw(st.lists(st.tuples(vertex, vertex).filter(lambda pair: pair[0] != pair[1]), max_size=30))
    rates, waits = st.sampled_from([1.0, 2.0, 4.0]), st.sampled_from([0.0, 1e-4])
    links = [
        link(a, b, gbyte_per_s=draw(rates), latency=draw(waits), both_ways=draw(st.integers(0, 9)) > 0)
        for a, b in (ends if devices + switches > 1 else [])
    ]
    return [device(i) for i in range(devices)], [f"switch{i}" for i in range(switches)], links


def oracle(devices, switches, links, source):
    """Least (cost, links) from a device to all, by networkx on the graph without the other devices' exits."""
    graph = nx.DiGraph()
    graph.add_nodes_from(range(len(devices) + len(switches)))
    for one in links:
        for a, b in [(one.source, one.target), (one.target, one.source)][: 1 + one.both_ways]:
            if a == source or a >= len(devices):
                step = (one.routing_cost << 16) + 1
                graph.add_edge(a, b, weight=min(step, graph.get_edge_data(a, b, {"weight": step})["weight"]))
    return nx.single_source_dijkstra_path_length(graph, source)


@settings(max_examples=25, deadline=None)
@given(random_graphs())
def test_routes_are_shortest_paths_and_unreachable_pairs_are_refused(parts):
    """Cost and length equal networkx's; a graph is refused exactly when networkx misses a pair."""
    devices, switches, links = parts
    found = [oracle(devices, switches, links, a) for a in range(len(devices))]
    missing = [(a, b) for a in range(len(devices)) for b in range(len(devices)) if b not in found[a]]
    if missing:
        a, b = missing[0]
        with pytest.raises(UnreachableError, match=f"from device 'gpu{a}' to 'gpu{b}' in cluster 'random'"):
            DeviceGraph("random", devices, switches, links)
        return
    graph = DeviceGraph("random", devices, switches, links)
    for a in range(len(devices)):
        for b in range(len(devices)):
            route = graph.route(a, b)
            assert_valid_route(graph, a, b, route)
            assert sum((links[i].routing_cost << 16) + 1 for i in route) == found[a][b]


def assert_valid_route(graph, source, target, route):
    """Links join end to end, and only switches lie inside."""
    at = source
    for i, index in enumerate(route):
        one = graph.links[index]
        assert at == one.source or (one.both_ways and at == one.target)
        at = one.target if at == one.source else one.source
        assert at >= len(graph.devices) or i == len(route) - 1
    assert at == target


@pytest.mark.parametrize("spec", ["fdr-32x3:nodes=5", "dgx1-p100:nodes=2", "abci-v100:nodes=18", "k80-16"])
def test_route_table_holds_the_routes(spec):
    """The arrays for compiled code say what ``route`` says, for every pair."""
    graph = load_cluster(spec)
    table, n = graph.route_table(), len(graph.devices)

    assert table.start.dtype == np.int64
    assert table.links.dtype == np.int32
    assert table.start.shape == (n * n + 1,)
    for a in range(n):
        for b in range(n):
            row = a * n + b
            assert tuple(table.links[table.start[row] : table.start[row + 1]]) == graph.route(a, b)
    assert graph.route_table() is table


def test_ties_go_to_fewer_links_then_to_the_smaller_vertex():
    """Two switches alike: the first is taken; a direct link of equal cost beats both."""
    devices, switches = [device(0), device(1)], ["left", "right"]
    star = [link(0, 3), link(3, 1), link(0, 2), link(2, 1)]
    graph = DeviceGraph("tie", devices, switches, star)
    assert graph.route(0, 1) == (2, 3)
    assert graph.route(1, 0) == (3, 2)

    direct = DeviceGraph("direct", devices, switches, [*star, link(0, 1, gbyte_per_s=0.5)])
    assert direct.route(0, 1) == (4,)


def test_devices_forward_nothing():
    """A chain of devices does not join its ends, over however fast links."""
    with pytest.raises(UnreachableError, match=r"'gpu0' to 'gpu2'.*devices forward nothing"):
        DeviceGraph("chain", [device(0), device(1), device(2)], [], [link(0, 1), link(1, 2)])


def test_latency_is_linear_between_rows_and_constant_beyond():
    latency = Latency((1000.0, 3000.0), (1e-6, 5e-6))

    assert latency.at(0.0) == 1e-6
    assert latency.at(2000.0) == pytest.approx(3e-6)
    assert latency.at(1e9) == 5e-6
    assert latency.at(np.array([[1000.0], [2500.0]])) == pytest.approx(np.array([[1e-6], [4e-6]]))


def test_latency_of_a_route_is_the_sum_over_its_links():
    graph = load_cluster("fdr-32x3:nodes=2")
    route = graph.route(0, 5)

    for size in (1.0, 7e4, 1e6, 1e9):
        rows = [graph.links[i].latency for i in route]
        each = [np.interp(size, row.sizes_bytes, row.seconds) for row in rows]
        assert graph.latency_s(0, 5, size) == pytest.approx(sum(each))
    assert graph.latency_s(3, 3, 1e6) == 0.0


def test_first_devices_keep_their_routes():
    """Fewer devices of a cluster see the same links between them; nodes are counted anew."""
    whole = load_cluster("p100-4x4")
    part = whole.only([5, 12, 13])

    assert [d.name for d in part.devices] == ["node1/gpu1", "node3/gpu0", "node3/gpu1"]
    assert [d.node for d in part.devices] == [0, 1, 1]
    assert part.node_count == 2
    for a, old_a in enumerate([5, 12, 13]):
        for b, old_b in enumerate([5, 12, 13]):
            names = [part.links[i].name for i in part.route(a, b)]
            assert names == [whole.links[i].name for i in whole.route(old_a, old_b)]
    assert whole.take(4).node_count == 1
    assert whole.take(16).name == "p100-4x4"
    assert part.digest != whole.digest


def test_digest_follows_every_field():
    """Equal graphs have equal digests, and a changed bandwidth, latency or memory changes it."""
    base = DeviceGraph("a", [device(0), device(1)], [], [link(0, 1)])
    assert base.digest == DeviceGraph("a", [device(0), device(1)], [], [link(0, 1)]).digest
    others = [
        DeviceGraph("a", [device(0), device(1)], [], [link(0, 1, gbyte_per_s=2)]),
        DeviceGraph("a", [device(0), device(1)], [], [link(0, 1, latency=1e-6)]),
        DeviceGraph("a", [device(0), device(1)], [], [link(1, 0)]),
        DeviceGraph("a", [device(0), device(1, node=1)], [], [link(0, 1)]),
    ]
    engines = replace(device(0), copy_engines=CopyEngines(peer=1))
    busy = replace(device(0), message_overhead=MessageOverhead(byte_s=1e-9))
    others += [
        DeviceGraph("a", [busy, device(1)], [], [link(0, 1)]),
        DeviceGraph("a", [engines, device(1)], [], [link(0, 1)]),
        DeviceGraph("a", [device(0), device(1)], ["s"], [link(0, 1)]),
        DeviceGraph("a", [device(0), device(1)], ["s"], [link(0, 1)], hosts={"s": 0}),
    ]
    assert len({graph.digest for graph in [base, *others]}) == 9


def test_a_cluster_survives_a_pickle():
    """As that of a plan which ranks are to run."""
    cluster = load_cluster("k80-16")
    again = pickle.loads(pickle.dumps(cluster))
    assert again.digest == cluster.digest
    assert again.hosts == cluster.hosts


def test_parts_and_other_links_keep_engines_and_hosts():
    devices = [replace(device(i), copy_engines=CopyEngines(total=i + 1)) for i in range(3)]
    whole = DeviceGraph("g", devices, ["s"], [link(i, 3) for i in range(3)], hosts={"s": 0})
    part = whole.only([2, 0])
    assert [each.copy_engines.total for each in part.devices] == [3, 1]
    assert part.hosts == whole.hosts
    fast = whole.with_links([link(i, 3, gbyte_per_s=2.0) for i in range(3)])
    assert (fast.name, fast.devices, fast.vertices, fast.hosts) == (
        whole.name,
        whole.devices,
        whole.vertices,
        whole.hosts,
    )
    assert fast.bandwidth.tolist() == [2e9] * 3


@pytest.mark.parametrize("bad", [0.0, -1.0, float("nan"), float("inf")])
def test_numbers_that_are_no_sizes_are_refused(bad):
    with pytest.raises(ConfigError, match=r"Link\.bandwidth_bytes_per_s must be finite and > 0"):
        link(0, 1, gbyte_per_s=bad)
    with pytest.raises(ConfigError, match=r"Device\.memory_bytes must be finite and > 0"):
        Device(name="gpu", node=0, profile="p100", memory_bytes=bad)
    if bad:
        with pytest.raises(ConfigError, match="must be finite and >= 0"):
            Latency.constant(bad)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: DeviceGraph("g", [], [], []), "devices of 'g' must be at least one"),
        (lambda: DeviceGraph("g", [device(0), device(0)], [], []), "got 'gpu0' twice"),
        (lambda: DeviceGraph("g", [device(0)], [], [link(0, 1)]), "two different vertices of 0 .. 0"),
        (lambda: DeviceGraph("g", [device(0)], ["s"], [link(1, 1)]), "got 1 and 1"),
        (lambda: DeviceGraph("g", [device(0)], ["s"], [], hosts={"gpu0": 0}), "must be switches of it, got 'gpu0'"),
        (lambda: DeviceGraph("g", [device(0)], [], []).route(0, -1), "device must be in 0 .. 0, got -1"),
        (lambda: DeviceGraph("g", [device(0)], [], []).take(2), "must be in 1 .. 1 of 'g', got 2"),
        (lambda: DeviceGraph("g", [device(0)], [], []).only([0, 0]), r"must be different ones of 0 .. 0, got \[0, 0\]"),
        (lambda: Latency((2.0, 1.0), (0.0, 0.0)), "must rise strictly"),
        (lambda: Latency((), ()), "at least one"),
        (lambda: device(0, node=-1), "Device.node must be >= 0"),
    ],
)
def test_other_broken_rules_are_named(make, message):
    with pytest.raises(ConfigError, match=message):
        make()


def crossing(spec, source, target):
    """Vertices that a route of a cluster crosses, by the names of its links."""
    cluster = load_cluster(spec)
    return " ".join(cluster.links[link].name for link in cluster.route(source, target))


def test_routes_stay_in_a_node_however_fast_the_network_is():
    """Messages between sockets go over the processors' link, as drivers copy them, unless that has failed."""
    for fast in ("", ",link.nic-port.bandwidth_factor=4,link.edr.bandwidth_factor=100"):
        inside = crossing(f"dgx1-p100:nodes=2{fast}", 0, 5)
        assert "root0 -> node0/root1" in inside
        assert "fabric" not in inside
        assert "fabric" in crossing(f"dgx1-p100:nodes=2{fast}", 0, 8)
    assert "fabric" in crossing("dgx1-p100:nodes=2,link.inter-socket.failed=1", 0, 5)
