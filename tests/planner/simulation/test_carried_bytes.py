"""Bytes that links carry in an iteration, by hand."""

import pytest

from hwprofiles.catalogue.cluster_catalogue import load_cluster
from planner.cost.conditions import Conditions
from planner.cost.cost_model import CostModel
from planner.cost.framework import framework_of
from planner.lowering.lower_strategy import lower
from planner.models.registry import load_model
from planner.simulation.collective_use import carried_bytes
from planner.strategies.named_strategies import named_strategy, spaces_of
from planner.topology.network_routes import routes_of_cluster


def test_copies_into_hosts_cross_links_by_their_shares():
    """Two GPUs push and fetch all parameters, half of which lie behind the other socket."""
    graph, cluster = load_model("alexnet", batch=64), load_cluster("k80-16").take(2)
    model = CostModel(graph, cluster, conditions=Conditions(framework=framework_of("ps:random=0")))
    program = lower(model, spaces_of(graph, named_strategy("data", graph, 2), 2))
    names = [link.name for link in cluster.links]
    carried = dict(zip(names, carried_bytes(program, routes_of_cluster(cluster)), strict=True))
    parameters = 4 * graph.parameter_count
    gpu, plx, root = "node0/socket0/card0/gpu1", "node0/socket0/card0/plx", "node0/socket0/root"

    for one, other, bytes_ in (
        (gpu, plx, parameters),
        (plx, root, 2 * parameters),
        (root, "node0/socket1/root", parameters),
    ):
        assert carried[f"{one} -> {other}"] == carried[f"{other} -> {one}"] == pytest.approx(bytes_)
