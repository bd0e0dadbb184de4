"""Where a ring enters and leaves the nodes: no order of the devices inside a node does better."""

from itertools import permutations

import numpy as np
import pytest

from hwprofiles.catalogue.cluster_catalogue import load_cluster
from planner.topology.network_routes import routes_of_cluster


def ring_s_per_byte(network, order):
    """Busiest link of a ring around all devices, for a byte a hop."""
    loads = network.link_loads(order, np.roll(order, -1), np.ones(len(order)))
    return (loads * network.seconds_per_byte).max()


@pytest.mark.parametrize("spec", ["p100-4x4", "fdr-32x3:nodes=4", "abci-v100:nodes=3", "titanx-4:nodes=2"])
def test_no_order_inside_the_nodes_is_faster(spec):
    network = routes_of_cluster(load_cluster(spec))
    nodes = [np.flatnonzero(network.node == node) for node in range(network.node.max() + 1)]
    assert len({len(devices) for devices in nodes}) == 1
    best = min(
        ring_s_per_byte(network, np.concatenate([devices[list(places)] for devices in nodes]))
        for places in permutations(range(len(nodes[0])))
    )
    assert ring_s_per_byte(network, np.argsort(network.rank)) == pytest.approx(best, rel=1e-12)


def test_rank_keeps_nodes_together():
    network = routes_of_cluster(load_cluster("dgx1-p100:nodes=3"))
    order = np.argsort(network.rank)
    assert sorted(order.tolist()) == list(range(24))
    assert (np.diff(network.node[order]) >= 0).all()
