"""Strategies by degrees: their grammar, their parts against plain definitions, and where their groups lie."""

from itertools import combinations
from math import prod

import numpy as np
import pytest
from plans import cluster_of, star

from groundwork.errors import ConfigError
from hwprofiles.catalogue.cluster_catalogue import cluster_names, load_cluster
from planner.cost.cost_model import CostModel
from planner.lowering.lower_strategy import lower
from planner.models.registry import load_model
from planner.plan.make_plan import make_plan
from planner.search.pipeline_strategy import strategy_and_micro_batching
from planner.simulation.additive_cost import additive_s
from planner.simulation.program_replay import replay
from planner.strategies.degrees import Hybrid, hybrid_of
from planner.strategies.device_groups import grouped_devices
from planner.strategies.named_strategies import named_strategy, spaces_of
from planner.topology.network_routes import routes_of_cluster


@pytest.fixture(scope="module")
def vgg16():
    return load_model("vgg16", batch=64)


@pytest.mark.parametrize(
    ("text", "degrees"),
    [
        ("data=4,filter=2", {"data": 4, "filter": 2}),
        (" filter = 2 , data=4", {"data": 4, "filter": 2}),
        ("spatial=8", {"spatial": 8}),
        ("data=1", {}),
    ],
)
def test_degrees_are_read_and_written_back(text, degrees):
    hybrid = hybrid_of(text)

    assert hybrid == Hybrid(**degrees)
    assert hybrid_of(hybrid.text) == hybrid
    assert hybrid.parts == prod(degrees.values())


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("data=4,filtr=2", r"must be made of pipeline=N, .*, got 'filtr=2'; did you mean 'filter'\?$"),
        ("data=4,filter", "got 'filter'$"),
        ("data=4,data=2", "must give data once"),
        ("data=0", "data must be a whole number >= 1, got '0'$"),
        ("data=-2", "got '-2'$"),
        ("data=x", "got 'x'$"),
        ("data=4,", "got ''$"),
    ],
)
def test_bad_degrees_are_one_line(text, message):
    with pytest.raises(ConfigError, match=message) as caught:
        hybrid_of(text)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("hybrid", "name"),
    [
        ("data=16", "data"),
        ("filter=16", "model"),
        ("spatial=16", "spatial"),
        ("channel=16", "channel"),
        ("data=1", None),
    ],
)
def test_a_single_degree_is_the_named_strategy(vgg16, hybrid, name):
    count = 16 if name else 1
    strategy = named_strategy(hybrid, vgg16, 16, load_cluster("abci-v100"))

    assert strategy == named_strategy(name or "data", vgg16, count)


@pytest.mark.parametrize(
    "words", ["data=4,filter=4", "data=2,spatial=4,filter=2", "data=8,spatial=2", "spatial=4,filter=4"]
)
def test_every_device_is_at_its_place_in_the_nested_groups(vgg16, words):
    """Device (sample, place, channel) of a layer that splits fully is the number with these digits."""
    hybrid, strategy = hybrid_of(words), named_strategy(words, vgg16, 16, load_cluster("abci-v100"))
    for layer in vgg16.layers:
        configuration = strategy[layer.name]
        degrees = [configuration.degrees.get(dim, 1) for dim in layer.output.dims]
        group = hybrid.filter * hybrid.spatial
        assert degrees[0] == hybrid.data
        assert all(layer.output.size(dim) % d == 0 for dim, d in configuration.degrees.items())
        flat = prod(degrees[2:]) == 1 and prod(layer.output.positions) == 1
        expected = [
            sample * group + place * hybrid.filter + channel
            for sample in range(degrees[0])
            for channel in range(degrees[1])
            for place in range(prod(degrees[2:]))
        ]
        assert list(configuration.devices) == expected
        assert degrees[1] <= group if flat else degrees[1] <= hybrid.filter


def test_a_layer_that_cannot_split_so_far_uses_the_first_of_each_group(vgg16):
    strategy = named_strategy("data=2,filter=16", vgg16, 32)

    assert strategy["fc3"].degrees["channel"] == 10  # of 1,000, at most 16
    assert strategy["fc3"].devices == (*range(10), *range(16, 26))
    assert strategy["softmax"].devices == (0, 16)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("data=8,filter=4", "data=8,filter=4 must have at most the cluster's 16 devices, it takes 32$"),
        ("data=3", "batch must be a multiple of data=3 .* got 64; the nearest is 63$"),
    ],
)
def test_refusals_name_what_is_wrong(vgg16, words, message):
    with pytest.raises(ConfigError, match=message):
        named_strategy(words, vgg16, 16)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("filter=8192", "filter must be a number of equal parts .*, got 8192; the most below it are 4096, of fc1$"),
        ("channel=7", "channel must be .*, got 7; the most below it are 4, of conv1_2$"),
        ("spatial=65536", "got 65536; the most below it are 50176, of conv1_1$"),
        ("spatial=5", "spatial must be a number of equal parts .*, got 5; the most below it are 4, of conv1_1$"),
    ],
)
def test_a_degree_that_no_layer_has_names_the_nearest(vgg16, words, message):
    with pytest.raises(ConfigError, match=message):
        named_strategy(words, vgg16, 10**6)


@pytest.mark.parametrize("spec", cluster_names())
def test_groups_lie_in_one_node_where_they_fit(spec):
    cluster = load_cluster(spec)
    node = np.array([device.node for device in cluster.devices])
    size = int(np.bincount(node).min())
    for group in range(1, size + 1):
        parts = size // group * group * (node.max() + 1)
        rows = np.array(grouped_devices(cluster, parts, [group])).reshape(-1, group)
        assert len(set(rows.ravel().tolist())) == parts
        assert (node[rows] == node[rows[:, :1]]).all()


def test_groups_of_two_nodes_keep_to_their_rack():
    """17 nodes a rack: the last of each is left out where there are enough."""
    cluster = load_cluster("abci-v100:nodes=34")
    rack = routes_of_cluster(cluster).rack
    rows = np.array(grouped_devices(cluster, 128, [8])).reshape(-1, 8)

    assert (rack[rows] == rack[rows[:, :1]]).all()
    assert sorted(grouped_devices(cluster, 136, [8])) == list(range(136))  # all are needed


@pytest.mark.parametrize("spec", ["dgx1-p100", "titanx-4", "abci-v100", "dgx-a100"])
@pytest.mark.parametrize("group", [2, 4])
def test_groups_in_a_node_are_as_near_as_the_best_division(spec, group):
    """Brute force over the divisions of a node into two halves, or a pair and the rest."""
    cluster = load_cluster(spec)
    network = routes_of_cluster(cluster)
    members = np.flatnonzero(network.node == 0)

    def slowest(devices):
        pairs = [(a, b) for a in devices for b in devices if a != b]
        source, target = np.array(pairs).T
        counts, links = network.routes(source, target)
        return max(np.maximum.reduceat(network.seconds_per_byte[links], np.cumsum(counts) - counts))

    first = grouped_devices(cluster, len(members), [group])[:group]

    assert slowest(first) <= min(slowest(list(rows)) for rows in combinations(members.tolist(), group)) * (1 + 1e-9)


@pytest.mark.parametrize(
    ("words", "name"),
    [
        ("data=2,filter=4", "resnet18"),
        ("data=4,spatial=2", "lenet5"),
        ("data=2,spatial=2,filter=2", "cosmoflow"),
        ("data=2,channel=4", "resnet18"),
        ("filter=2,channel=2", "lenet5"),
    ],
)
def test_a_hybrid_replays_to_its_additive_cost(words, name):
    graph, cluster = load_model(name, batch=8), cluster_of("p100-4x4", 8)
    model = CostModel(graph, cluster)
    strategy = named_strategy(words, graph, 8, cluster)
    program = lower(model, model.spaces_of(strategy))

    seconds = replay(program, overlap=False, contention=False, iterations=1).iteration_s
    assert seconds == pytest.approx(additive_s(model, strategy), rel=1e-9)


def test_plans_by_degrees_use_as_many_devices_as_their_product():
    plan = make_plan(load_model("lenet5", batch=8), star(8), strategy="data=2,filter=2")

    assert {d for configuration in plan.configurations.values() for d in configuration.devices} == set(range(4))


@pytest.mark.parametrize("words", ["pipeline=2,data=2,filter=2", "pipeline=4,spatial=2", "pipeline=2,data=4"])
def test_stages_lie_on_groups_of_their_own_and_replay_to_their_additive_cost(words):
    hybrid, graph, cluster = hybrid_of(words), load_model("resnet18", batch=16), cluster_of("p100-4x4", 8)
    model = CostModel(graph, cluster)
    strategy, micro_batching = strategy_and_micro_batching(model, words)

    size = hybrid.parts // hybrid.pipeline
    for i, layer in enumerate(graph.layers):
        assert {device // size for device in strategy[layer.name].devices} == {micro_batching.stage_of(i)}
    program = lower(model, spaces_of(graph, strategy, 8), micro_batching=micro_batching)
    seconds = replay(program, overlap=False, contention=False, iterations=1).iteration_s
    assert seconds == pytest.approx(additive_s(model, strategy, micro_batching), rel=1e-9)


def test_a_pipeline_of_groups_keeps_to_what_is_asked():
    graph, cluster = load_model("vgg11", batch=16), cluster_of("abci-v100", 16)
    asked = {"schedule": "gpipe", "micro_batches": 4}
    plan = make_plan(graph, cluster, strategy="pipeline=2,filter=4", **asked)

    assert (plan.micro_batching.order, plan.micro_batching.parts, len(plan.micro_batching.stages)) == ("gpipe", 4, 2)
    with pytest.raises(ConfigError, match=r"stages must be those of pipeline=2,filter=4, 2, got 3$"):
        make_plan(graph, cluster, strategy="pipeline=2,filter=4", stages=3)
    with pytest.raises(ConfigError, match=r"are for the strategy pipeline, not data=4$"):
        make_plan(graph, cluster, strategy="data=4", **asked)
    with pytest.raises(ConfigError, match=r"must be one without micro-batches here, got pipeline=2,filter=4$"):
        named_strategy("pipeline=2,filter=4", graph, 16)
