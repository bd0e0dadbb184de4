"""A route asked for alone is the route of the table: the search for one skips only what cannot matter."""

import numpy as np
from hypothesis import given, settings, strategies as st

from hwprofiles.catalogue.cluster_catalogue import cluster_names, load_cluster
from hwprofiles.devices.route_search import Arcs, RouteSearch
from hwprofiles.devices.routes import Arc, Router


@st.composite
def networks(draw):
    """Devices on a random tree of switches, with a few more links; equal costs are common."""
    devices, switches = draw(st.integers(2, 6)), draw(st.integers(1, 8))
    count = devices + switches
    edges = [(devices + draw(st.integers(0, k - 1)), devices + k) for k in range(1, switches)]
    edges += [(device, draw(st.integers(devices, count - 1))) for device in range(devices)]
    pairs = st.tuples(st.integers(0, count - 1), st.integers(0, count - 1)).filter(lambda pair: pair[0] != pair[1])
    edges += draw(st.lists(pairs, max_size=6))
    both = [pair for a, b in edges for pair in ((a, b), (b, a))]
    return devices, count, [Arc(a, b, link, draw(st.integers(0, 2))) for link, (a, b) in enumerate(both)]


@given(networks())
def test_one_route_is_the_table_s(network):
    devices, vertices, arcs = network
    table, alone = Router(devices, vertices, arcs).table(), Router(devices, vertices, arcs)
    for row in range(devices * devices):
        links = table.links[table.start[row] : table.start[row + 1]]
        assert alone.route(*divmod(row, devices)) == tuple(links.tolist())


def test_routes_of_the_catalogue_are_the_table_s():
    for name in cluster_names():
        cluster = load_cluster(name).take(min(12, len(load_cluster(name).devices)))
        table, count = load_cluster(name).take(len(cluster.devices)).route_table(), len(cluster.devices)
        for row in range(count * count):
            assert cluster.route(*divmod(row, count)) == tuple(table.links[table.start[row] : table.start[row + 1]])


@st.composite
def networks_of_parts(draw):
    """Parts of one or two kinds around a few switches, of which some lie inside; equal costs are common."""
    counts = [draw(st.integers(1, 5)), draw(st.integers(0, 3))]
    outside, kinds = draw(st.integers(1, 3)), []
    for _ in counts:
        devices, switches = draw(st.integers(1, 3)), draw(st.integers(1, 3))
        size = devices + switches
        inner = [(a, draw(st.integers(devices, size - 1))) for a in range(devices)]
        inner += [(devices + draw(st.integers(0, k - 1)), devices + k) for k in range(1, switches)]
        pairs = st.tuples(st.integers(devices, size - 1), st.integers(0, outside - 1))
        outer = [(devices, 0), *draw(st.lists(pairs, max_size=4))]
        kinds.append((devices, size, inner, outer, draw(st.lists(st.integers(0, 2), min_size=20, max_size=20))))
    order = draw(st.permutations([kind for kind, count in enumerate(counts) for _ in range(count)]))
    devices = sum(kinds[kind][0] for kind in order)
    vertices, numbers = devices, []
    part = [i for i, kind in enumerate(order) for _ in range(kinds[kind][0])]
    for i, kind in enumerate(order):
        before = sum(kinds[each][0] for each in order[:i])
        switches = kinds[kind][1] - kinds[kind][0]
        numbers.append([*range(before, before + kinds[kind][0]), *range(vertices, vertices + switches)])
        part += [i] * switches
        vertices += switches
    hubs = range(vertices, vertices + outside)
    edges = [(hubs[0], hub, draw(st.integers(0, 2))) for hub in hubs[1:]]
    for number, kind in zip(numbers, order, strict=True):
        _, _, inner, outer, costs = kinds[kind]
        cables = [(number[a], number[b]) for a, b in inner] + [(number[a], hubs[b]) for a, b in outer]
        edges += [(a, b, cost) for (a, b), cost in zip(cables, costs, strict=False)]
    rows = [row for a, b, cost in edges for row in ((a, b, cost), (b, a, cost))]
    source, target, cost = np.array(rows, dtype=np.int64).reshape(-1, 3).T
    arcs = Arcs(source, target, np.arange(len(rows)), cost)
    return devices, np.array(part + [-1] * outside, dtype=np.int64), arcs


@settings(max_examples=40, deadline=None)
@given(networks_of_parts())
def test_routes_of_parts_that_are_alike_are_those_of_the_whole_network(network):
    """What is searched once for all parts is, link by link, what a search of the whole network finds for each pair."""
    devices, part, arcs = network
    search = RouteSearch(devices, part, arcs)
    pairs = np.arange(devices * devices)
    counts, links = search.find(*np.divmod(pairs, devices))
    table = Router(devices, len(part), arcs.some(np.ones(len(arcs.link), dtype=bool), np.arange(len(part)))).table()
    assert np.array_equal(counts, np.diff(table.start))
    assert np.array_equal(links, table.links)
    hashed = RouteSearch(devices, part, arcs, hashed=True)
    for one, other in zip(
        hashed.find(*np.divmod(pairs, devices)), hashed._one_by_one(*np.divmod(pairs, devices)), strict=True
    ):
        assert np.array_equal(one, other)


def test_pairs_of_large_clusters_are_searched_once_for_all_machines():
    """The routes of a ring over eight rails, changed at one machine, are those of the table."""
    changes = "link.node7/nic3 -> leaf3.bandwidth_factor=0.01,link.node9/gpu2 -> node9/nvswitch.failed=1"
    for spec in ("dgx-h100:nodes=12", "fdr-32x3:nodes=12", "p100-4x4:nodes=9", f"dgx-h100:nodes=12,{changes}"):
        cluster = load_cluster(spec)
        count = len(cluster.devices)
        found, (arcs, part) = cluster.route_table(), cluster._arcs()
        every = arcs.some(np.ones(len(arcs.link), dtype=bool), np.arange(len(part)))
        table = Router(count, len(part), every).table()
        assert np.array_equal(found.start, table.start)
        assert np.array_equal(found.links, table.links)
