"""A route asked for alone is the route of the table: the search for one skips only what cannot matter."""

from hypothesis import given, strategies as st

from hwprofiles.catalogue.cluster_catalogue import cluster_names, load_cluster
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
