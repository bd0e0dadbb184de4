"""Layer blocks, layer paths and dependency distances, against graphs worked by hand and brute force."""

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from groundwork.errors import ConfigError
from planner.graph.layer_paths import dependency_distances, layer_blocks
from planner.models.builder import ModelBuilder
from planner.models.registry import load_model


def inception():
    """One block of four paths, like GoogLeNet's, between two convolutions."""
    net = ModelBuilder("inception", batch=2, image=(4, 8, 8))
    stem = net.conv(4, 1)  # 0
    a = net.conv(4, 1, stem)  # 1
    b = net.conv(4, 3, net.conv(4, 1, stem), pad=1)  # 2, 3
    c = net.conv(4, 5, net.conv(4, 1, stem), pad=2)  # 4, 5
    d = net.conv(4, 1, net.pool("max", 3, stem, stride=1, pad=1))  # 6, 7
    net.concat([a, b, c, d])  # 8
    net.conv(4, 3, pad=1)  # 9
    net.linear(10)  # 10
    net.loss()  # 11
    return net.build()


def residual():
    """Two residual blocks: one with a projection, one with an identity."""
    net = ModelBuilder("residual", batch=2, image=(4, 8, 8))
    stem = net.conv(4, 3, pad=1)  # 0
    main = net.conv(8, 3, net.conv(4, 3, stem, pad=1), pad=1)  # 1, 2
    joined = net.sum([main, net.conv(8, 1, stem)])  # 3, 4
    net.sum([net.conv(8, 3, joined, pad=1), joined])  # 5, 6
    net.linear(10)
    net.loss()
    return net.build()


def test_an_inception_block_by_hand():
    """The 5 x 5 path is longest (2 + 9), then 3 x 3 (2 + 5), the pool (1 + 2), and the single 1 x 1 (2)."""
    graph = inception()
    times = np.array([1, 2, 2, 5, 2, 9, 1, 2, 0.5, 1, 1, 0], dtype=float)
    blocks = layer_blocks(graph, times)
    assert [block.layers for block in blocks] == [tuple(range(9)), (9, 10, 11)]
    first = blocks[0].paths
    assert [path.layers for path in first] == [(0, 4, 5, 8), (2, 3), (6, 7), (1,)]
    assert [path.time_s for path in first] == [12.5, 8.5, 4.5, 3.5]
    assert [path.layers for path in blocks[1].paths] == [(9, 10, 11)]


def test_residual_blocks_by_hand():
    """A projection is a path of its own; an identity has no layer, so no path; a merge that forks is the first's."""
    graph = residual()
    blocks = layer_blocks(graph, np.array([1, 4, 4, 3, 0, 5, 0, 1, 0], dtype=float))
    assert [[path.layers for path in block.paths] for block in blocks] == [[(0, 1, 2, 4), (3,)], [(5, 6)], [(7, 8)]]


@pytest.mark.parametrize(("model", "paths"), [("vgg16", 1), ("alexnet", 1), ("googlenet", 4), ("resnet50", 2)])
def test_paths_of_known_networks(model, paths):
    graph = load_model(model, batch=2)
    blocks = layer_blocks(graph, np.ones(len(graph.layers)))
    assert max(len(block.paths) for block in blocks) == paths
    assert sorted(i for block in blocks for i in block.layers) == list(range(len(graph.layers)))


@st.composite
def chains_between_fork_and_merge(draw):
    """A fork, paths of 0 to 3 layers, a merge; and times."""
    lengths = draw(st.lists(st.integers(1, 3), min_size=2, max_size=5))
    net = ModelBuilder("paths", batch=1, image=(2, 4, 4))
    stem = net.conv(2, 1)
    ends = []
    for length in lengths:
        last = stem
        for _ in range(length):
            last = net.conv(2, 1, last)
        ends.append(last)
    net.concat(ends)
    net.loss()
    graph = net.build()
    times = draw(st.lists(st.floats(0.1, 9), min_size=len(graph.layers), max_size=len(graph.layers)))
    return graph, np.array(times)


@settings(max_examples=15, deadline=None)
@given(chains_between_fork_and_merge())
def test_paths_are_those_that_enumeration_finds(case):
    """Every simple path from fork to merge, sorted by the sum of its times."""
    graph, times = case
    block = layer_blocks(graph, times)[0]
    merge = max(block.layers)
    net = nx.DiGraph([(edge.producer, edge.consumer) for edge in graph.edges])
    sums = sorted((float(times[path].sum()) for path in map(list, nx.all_simple_paths(net, 0, merge))), reverse=True)
    assert [path.time_s for path in block.paths] == pytest.approx(sums)
    assert sorted(i for path in block.paths for i in path.layers) == list(block.layers)


@pytest.mark.parametrize("model", ["googlenet", "resnet18", "densenet121", "inception-v3", "vgg16"])
def test_paths_cover_every_layer_once_and_follow_edges(model):
    graph = load_model(model, batch=2)
    times = np.random.default_rng(3).uniform(0.1, 1, len(graph.layers))
    blocks = layer_blocks(graph, times)
    assert sorted(i for block in blocks for i in block.layers) == list(range(len(graph.layers)))
    for block in blocks:
        assert sorted(i for path in block.paths for i in path.layers) == sorted(block.layers)
        assert [path.time_s for path in block.paths] == sorted((path.time_s for path in block.paths), reverse=True)


@pytest.mark.parametrize("model", ["lenet5", "googlenet", "resnet18"])
def test_distances_are_shortest_paths_over_the_iterations(model):
    """Gradients go back to the data's first layers, the next iteration starts there and goes forward."""
    graph = load_model(model, batch=2)
    steps = nx.DiGraph()
    for edge in graph.edges:
        steps.add_edge(("back", edge.consumer), ("back", edge.producer))
        steps.add_edge(("next", edge.producer), ("next", edge.consumer))
    for i, layer in enumerate(graph.layers):
        if "input" in layer.inputs:
            steps.add_edge(("back", i), ("next", i))
    found = [nx.shortest_path_length(steps, ("back", i), ("next", i)) for i in range(len(graph.layers))]
    assert dependency_distances(graph) == found


def test_times_are_checked():
    with pytest.raises(ConfigError, match="gradient_s must hold a finite time >= 0 for each of 12 layers"):
        layer_blocks(inception(), np.array([1.0, -1.0]))
