"""Levels of routes against the routes themselves: the busiest link of any traffic is busy for as long."""

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from hwprofiles.catalogue.cluster_catalogue import load_cluster
from planner.topology.network_routes import routes_of_cluster

CLUSTERS = [
    "titanx-4",
    "k80-16",
    "p100-4x4",
    "fdr-32x3:nodes=3",
    "dgx1-p100:nodes=2",
    "abci-v100:nodes=3",
    "dgx-h100:nodes=2",
]


def busy_s(levels, traffic):
    """Seconds that each link is busy, by what crosses the exits and entries of each level."""
    n = len(traffic)
    level = levels.level.reshape(n, n)
    loads = np.zeros(len(levels.seconds_per_byte))
    for a, b in np.ndindex(n, n):
        if level[a, b] == 1:
            row = a * n + b
            np.add.at(loads, levels.route_links[levels.route_start[row] : levels.route_start[row + 1]], traffic[a, b])
        elif level[a, b] > 1:
            out, into = level[a, b] * n + a, level[a, b] * n + b
            np.add.at(loads, levels.out_links[levels.out_start[out] : levels.out_start[out + 1]], traffic[a, b])
            np.add.at(loads, levels.in_links[levels.in_start[into] : levels.in_start[into + 1]], traffic[a, b])
    return loads * levels.seconds_per_byte


@pytest.mark.parametrize("name", CLUSTERS)
@settings(max_examples=8)
@given(seed=st.integers(0, 2**32), share=st.floats(0.01, 1.0))
def test_the_busiest_link_is_that_of_the_routes(name, seed, share):
    """Some pairs of devices send, from one to all of them, messages of very different sizes."""
    routes = routes_of_cluster(load_cluster(name))
    n, rng = len(routes.node), np.random.default_rng(seed)
    traffic = rng.lognormal(10, 2, (n, n)) * (rng.random((n, n)) < share)
    np.fill_diagonal(traffic, 0)
    source, target = np.nonzero(traffic)
    expected_s = routes.link_loads(source, target, traffic[source, target]) * routes.seconds_per_byte
    found_s = busy_s(routes.forward, traffic)
    assert found_s.max() == pytest.approx(expected_s.max(), rel=1e-12)
    assert (found_s <= expected_s * (1 + 1e-12)).all()  # what never decides is left out, and nothing is added
    assert busy_s(routes.backward, traffic.T).max() == pytest.approx(expected_s.max(), rel=1e-12)


def test_a_device_is_at_level_0_with_itself_alone():
    routes = routes_of_cluster(load_cluster("dgx-a100:nodes=2"))
    level = routes.forward.level.reshape(16, 16)
    assert (level == level.T).all()
    assert ((level == 0) == np.eye(16, dtype=bool)).all()
    same_node = routes.node[:, None] == routes.node
    assert level[same_node].max() < level[~same_node].min()
