"""Rings of a communication library against all that could be chosen: they use every cable and every card."""

from itertools import combinations_with_replacement, pairwise, permutations

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from hwprofiles.catalogue.cluster_catalogue import load_cluster
from hwprofiles.devices.device import Device
from hwprofiles.devices.device_graph import DeviceGraph
from hwprofiles.devices.latency import Latency
from hwprofiles.devices.link import Link
from planner.topology.network_routes import ClusterRoutes, routes_of_cluster
from planner.topology.node_rings import chain_order, ring_orders

MESH = [(0, 1, 1), (0, 2, 1), (0, 3, 2), (1, 2, 2), (1, 3, 1), (2, 3, 2)]


def node_of(cables, size):
    """Devices of one node that a slow switch joins, and cables of 20 GB/s directly."""
    devices = [Device(name=f"gpu{i}", node=0, profile="p100", memory_bytes=1e9) for i in range(size)]
    wanted = [(a, b, 20e9 * count, "cable") for a, b, count in cables] + [(i, size, 1e9, "slow") for i in range(size)]
    links = [
        Link(
            name=f"{a}-{b}",
            source=a,
            target=b,
            both_ways=False,
            bandwidth_bytes_per_s=rate,
            latency=Latency.constant(1e-6),
            exclusive=False,
            link_class=kind,
        )
        for low, high, rate, kind in wanted
        for a, b in ((low, high), (high, low))
    ]
    return ClusterRoutes(DeviceGraph("node", devices, ["switch"], links))


def busiest_s_per_byte(network, orders):
    """Time of the busiest link when every ring moves its part of a byte once around."""
    loads = sum(network.link_loads(order, np.roll(order, -1), np.full(len(order), 1 / len(orders))) for order in orders)
    return (loads * network.seconds_per_byte).max()


@st.composite
def meshes(draw):
    size = draw(st.integers(3, 5))
    pairs = [(a, b) for a in range(size) for b in range(a)]
    counts = draw(st.lists(st.integers(0, 2), min_size=len(pairs), max_size=len(pairs)))
    return size, [(a, b, count) for (a, b), count in zip(pairs, counts, strict=True) if count]


def rings_over(cables, size):
    """All rings over cables alone, each direction a ring."""
    joined = {(a, b) for a, b, _ in cables} | {(b, a) for a, b, _ in cables}
    orders = [(0, *rest) for rest in permutations(range(1, size))]
    return [order for order in orders if all(pair in joined for pair in pairwise([*order, 0]))]


@settings(max_examples=12, deadline=None)
@given(meshes())
def test_no_two_or_four_rings_are_faster(mesh):
    """Rings hold each device once, follow cables where a ring over them exists, and share them as well as can be."""
    size, cables = mesh
    network = node_of(cables, size)
    found = ring_orders(network, np.arange(size))
    assert all(sorted(order) == list(range(size)) for order in found.tolist())
    rings = rings_over(cables, size)
    if not rings:
        assert found.tolist() == [list(range(size))]
        return
    one_way = [ring for ring in rings if ring[1] < ring[-1]]
    best = min(
        busiest_s_per_byte(network, np.array([*some, *((0, *ring[:0:-1]) for ring in some)]))
        for count in (1, 2)
        for some in combinations_with_replacement(one_way, count)
    )
    assert busiest_s_per_byte(network, found) <= best * (1 + 1e-9)


def test_a_chain_where_no_ring_is():
    """Device 4 hangs on device 3 alone, by two cables: the chain ends there."""
    network = node_of([*MESH, (3, 4, 2)], 5)
    chain = chain_order(network, np.arange(5)).tolist()

    assert sorted(chain) == list(range(5))
    assert {tuple(chain[:2]), tuple(chain[:-3:-1])} & {(4, 3)}
    assert chain_order(network, np.arange(4)) is None  # these have a ring
    assert chain_order(node_of([], 4), np.arange(4)) is None


@pytest.mark.parametrize("spec", ["dgx-h100:nodes=3", "dgx-a100:nodes=2"])
def test_every_card_carries_a_ring(spec):
    network = routes_of_cluster(load_cluster(spec))
    devices = np.arange(network.device_count)
    orders = ring_orders(network, devices)
    leaving = [order[np.flatnonzero(np.diff(network.node[order]))] % 8 for order in orders]

    assert sorted(row[0] for row in leaving) == list(range(8))
    one = busiest_s_per_byte(network, devices[None])
    assert busiest_s_per_byte(network, orders) < one / 7


def test_the_order_in_which_devices_are_given_does_not_matter():
    """Replicas come with the ends of a node first and last; rings pass its switches in order all the same."""
    network = routes_of_cluster(load_cluster("titanx-4:nodes=2"))
    mixed = np.array([0, 2, 1, 3, 4, 6, 5, 7])
    orders = [[devices[order].tolist() for order in ring_orders(network, devices)] for devices in (np.arange(8), mixed)]

    assert orders[0] == orders[1]


def test_rings_of_a_cube_mesh_cross_no_socket():
    """All eight P100 of a DGX-1 are on rings of NVLinks, so none goes over PCIe."""
    network = routes_of_cluster(load_cluster("dgx1-p100"))
    orders = ring_orders(network, np.arange(8))
    counts, _ = network.routes(orders.ravel(), np.roll(orders, -1, axis=1).ravel())

    assert set(counts.tolist()) == {1}
