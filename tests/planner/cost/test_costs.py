"""Cost tables against prices added up element by element and message by message."""

from dataclasses import replace

import numpy as np
import pytest
from cost_cases import random_cluster, slow_exchange_s, slow_transfer_s
from hypothesis import given, settings, strategies as st

from hwprofiles.catalogue.cluster_catalogue import cluster_names, load_cluster
from hwprofiles.devices.collective_library import InSwitchSums
from hwprofiles.devices.device_graph import DeviceGraph
from planner.cost.all_reduce import all_reduce_s, choose_all_reduce
from planner.cost.cost_model import CostModel
from planner.elimination.search_problem import strategy_cost
from planner.layouts.configurations import Configuration, all_configurations, space_of
from planner.models.builder import ModelBuilder
from planner.models.registry import load_model
from planner.search.search_tables import search_problem
from planner.strategies.named_strategies import named_strategy, spaces_of
from planner.topology.network_routes import routes_of_cluster
from simulator.collectives.schemes import ALL_REDUCES

SHAPES = ((2,), (4,), (3, 1), (2, 2), (2, 3), (2, 2, 2), (3, 1, 2))
clusters = st.builds(
    lambda seed, shape: random_cluster(np.random.default_rng(seed), shape=shape),
    st.integers(0, 2**32),
    st.sampled_from(SHAPES),
)


def small_graph():
    """One edge of every kind: windows with and without overlap, groups, concatenation, flattening, whole inputs."""
    net = ModelBuilder("small", batch=4, image=(2, 6, 6))
    stem = net.conv(4, 3, pad=1, name="stem")
    left = net.conv(4, 3, stem, stride=2, pad=1, groups=2, name="left")
    right = net.pool("max", 2, stem, stride=2, name="right")
    net.concat([left, right], name="both")
    net.linear(6, name="dense")
    return net.build()


def random_pair(model, edge, rng):
    """A configuration for both ends, on shuffled devices half of the time."""
    count, spaces = len(model.cluster.devices), []
    for index in (edge.producer, edge.consumer):
        layer = model.graph.layers[index]
        space = all_configurations(layer.output, layer.parallel_dims, count)
        chosen = space.configuration(int(rng.integers(space.size)))
        if rng.random() < 0.5:
            chosen = Configuration(chosen.degrees, tuple(rng.permutation(count)[: chosen.parts].tolist()))
        spaces.append(space_of(layer, chosen, count))
    return spaces


@settings(max_examples=15)
@given(cluster=clusters, seed=st.integers(0, 2**32))
def test_transfers_equal_a_count_of_elements(cluster, seed):
    """Busiest link and longest latency, forward and back, on trees, wires, half duplex and uneven links."""
    model, rng = CostModel(small_graph(), cluster), np.random.default_rng(seed)
    for edge in model.graph.edges:
        producer, consumer = random_pair(model, edge, rng)
        expected = slow_transfer_s(model, edge, producer, consumer)
        zero = np.zeros(1, dtype=np.int64)
        assert model.transfer_times.seconds(edge, producer, consumer, zero, zero) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("name", cluster_names()[::2])
def test_transfers_on_the_catalogue_equal_a_count_of_elements(name):
    """The same on every second cluster that is shipped, cut to 12 devices."""
    cluster = load_cluster(name)
    model = CostModel(small_graph(), cluster.take(min(12, len(cluster.devices))))
    rng = np.random.default_rng(0)
    for edge in model.graph.edges:
        for _ in range(2):
            producer, consumer = random_pair(model, edge, rng)
            expected = slow_transfer_s(model, edge, producer, consumer)
            zero = np.zeros(1, dtype=np.int64)
            assert model.transfer_times.seconds(edge, producer, consumer, zero, zero) == pytest.approx(
                expected, rel=1e-12
            )


@pytest.mark.parametrize(("spine", "blocks"), [(1.0, 2), (0.3, 1)])
def test_transfers_over_rails_equal_a_count_of_elements(spine, blocks):
    """A spine as wide as the cards decides nothing, so that machines are blocks of devices; a narrow one does."""
    whole = load_cluster("dgx-h100:nodes=2")
    rates = [link.bandwidth_bytes_per_s * (spine if "spine" in link.name else 1.0) for link in whole.links]
    links = [replace(link, bandwidth_bytes_per_s=rate) for link, rate in zip(whole.links, rates, strict=True)]
    cluster = whole.with_links(links)
    model, rng = CostModel(small_graph(), cluster), np.random.default_rng(0)
    assert len(model.network.forward.member_start) == blocks + 1
    for edge in model.graph.edges:
        for _ in range(8):
            producer, consumer = random_pair(model, edge, rng)
            expected = slow_transfer_s(model, edge, producer, consumer)
            zero = np.zeros(1, dtype=np.int64)
            assert model.transfer_times.seconds(edge, producer, consumer, zero, zero) == pytest.approx(
                expected, rel=1e-12
            )


def bounded(model, edge, spaces, rng, count):
    """Lower bounds and prices of random pairs of configurations."""
    producer, consumer = spaces[edge.producer], spaces[edge.consumer]
    u, v = rng.integers(producer.size, size=count), rng.integers(consumer.size, size=count)
    bound = model.transfer_times.bounds(edge, producer, consumer, u, v, np.full(count, np.inf))
    return bound, model.transfer_times.seconds(edge, producer, consumer, u, v)


@settings(max_examples=8)
@given(cluster=clusters, seed=st.integers(0, 2**32))
def test_bounds_of_transfers_are_below_the_price(cluster, seed):
    model, rng = CostModel(load_model("caffenet", batch=12), cluster), np.random.default_rng(seed)
    spaces = model.all_configurations()
    for edge in model.graph.edges:
        bound, price = bounded(model, edge, spaces, rng, 50)
        assert (bound <= price * (1 + 1e-12)).all()


@pytest.mark.parametrize("name", ["p100-4x4:nodes=6", "dgx1-p100:nodes=3", "dgx-h100:nodes=4"])
def test_bounds_on_real_layers_are_below_the_price(name):
    """On large clusters, where a few devices stand for all; where all do the same they are the price."""
    cluster, rng = load_cluster(name), np.random.default_rng(0)
    model = CostModel(load_model("inception-v3", batch=48), cluster)
    spaces, near = model.all_configurations(), 0
    for edge in model.graph.edges[::12]:
        bound, price = bounded(model, edge, spaces, rng, 100)
        assert (bound <= price * (1 + 1e-12)).all()
        near += np.count_nonzero(bound > 0.9 * price)
    assert near > 10


@pytest.mark.parametrize(
    ("name", "scheme"),
    [
        *(("p100-4x4:nodes=3", scheme) for scheme in sorted(ALL_REDUCES)[::2]),
        *(("dgx-h100:nodes=4", scheme) for scheme in sorted(ALL_REDUCES)[1::2]),
        *(("dgx-h100:nodes=4", scheme) for scheme in ("auto", "library", "sums in the network")),
    ],
)
def test_bounds_of_layers_are_below_their_costs(name, scheme):
    """Whatever the algorithm, and what a library chooses; with statistics that are summed, too."""
    cluster = load_cluster(name)
    if scheme == "sums in the network":
        sums = InSwitchSums(call_s=0.0, link_share=1.0)
        scheme, cluster.library = "library", replace(cluster.library, in_network=sums)
    rng, near = np.random.default_rng(0), 0.0
    model = CostModel(load_model("resnet18", batch=24), cluster, scheme, "reduced")
    for i, space in list(enumerate(model.all_configurations()))[1::6]:
        some = space.only(rng.choice(space.size, size=min(space.size, 40), replace=False))
        least = model.least_node_s(i, some)
        assert (least <= model.node_costs(i, some).total_s * (1 + 1e-12)).all()
        near = max(near, float((least / model.node_costs(i, some).total_s).max()))
    assert near > 0.5


def test_bounds_count_the_nodes_of_each_group():
    """Rings between nodes, one device of each: the bound is the links' time, far more than that of the fewest nodes."""
    cluster = load_cluster("dgx-h100:nodes=4")
    model = CostModel(load_model("vgg16", batch=32), cluster, "library")
    index = next(i for i, layer in enumerate(model.graph.layers) if layer.name == "fc1")
    space = model.all_configurations()[index]
    chosen = (space.degrees[:, :2] == [4, 1]).all(axis=1) & (space.strides == 8)
    alone = space.only(np.flatnonzero(chosen))
    least, price = model.sync_times.least_s(index, alone), model.sync_times.seconds(index, alone)[0]
    assert 0.8 * price < least <= price


@pytest.mark.parametrize("name", ["dgx-h100:nodes=4", "dgx1-p100:nodes=3", "abci-v100:nodes=3"])
def test_a_library_takes_for_each_configuration_what_it_takes_for_that_alone(name):
    """Costs price the chosen algorithm; a choice for one configuration prices all of them."""
    network, rng = routes_of_cluster(load_cluster(name)), np.random.default_rng(1)
    layer = small_graph().layers[0]
    space = all_configurations(layer.output, layer.parallel_dims, network.device_count, network.node_size)
    for size in (1e3, 1e6, 1e8):
        seconds = all_reduce_s(network, "library", space, size)
        for c in rng.choice(space.size, size=min(space.size, 12), replace=False).tolist():
            choice = choose_all_reduce(network, "library", space.alone(c), size, split=("channel",))
            assert seconds[c] == pytest.approx(choice.price_s, rel=1e-12)


@given(
    cluster=clusters,
    seed=st.integers(0, 2**32),
    scheme=st.sampled_from(sorted(ALL_REDUCES)),
    split=st.sampled_from([(), ("channel",), ("channel", "width"), ("height",), ("channel", "height", "width")]),
)
def test_exchanges_equal_a_count_of_messages(cluster, seed, scheme, split):
    """All rounds of all groups, on their routes."""
    rng, count = np.random.default_rng(seed), len(cluster.devices)
    layer = small_graph().layers[0]
    space = all_configurations(layer.output, layer.parallel_dims, count)
    chosen = space.configuration(int(rng.integers(space.size)))
    chosen = Configuration(chosen.degrees, tuple(rng.permutation(count)[: chosen.parts].tolist()))
    space, size = space_of(layer, chosen, count), float(rng.integers(1, 10**6))
    expected = slow_exchange_s(cluster, scheme, space, size, split=split)
    assert all_reduce_s(routes_of_cluster(cluster), scheme, space, size, split=split) == pytest.approx(
        [expected], rel=1e-12
    )


def test_consumers_with_one_layout_pay_once():
    """Two layers that read the same boxes on the same devices cost one transfer, a third elsewhere its own."""
    net = ModelBuilder("fork", batch=4, image=(2, 4, 4))
    stem = net.conv(4, 1, name="stem")
    for name in ("one", "two", "three"):
        net.conv(4, 1, stem, name=name)
    graph, cluster = net.build(), load_cluster("p100-4x4:nodes=1")
    model = CostModel(graph, cluster)
    split = Configuration({"sample": 2}, (0, 1))
    apart = {"one": (2, 3), "two": (2, 3), "three": (1, 0)}
    strategy = {"stem": split} | {name: Configuration({"sample": 2}, devices) for name, devices in apart.items()}
    spaces = spaces_of(graph, strategy, 4)
    once, _, other = (float(model.transfer_times.table(e, spaces[0], spaces[e.consumer])[0, 0]) for e in graph.edges)
    nodes = sum(float(model.node_costs(i, space).total_s[0]) for i, space in enumerate(spaces))
    assert min(once, other) > 0
    assert strategy_cost(search_problem(model, spaces, model.transfer_times.table), [0] * 4) == pytest.approx(
        nodes + once + other
    )


def test_times_that_equal_layers_share_cannot_be_written():
    """Neither those of all configurations nor those of the parts of one; pools have phases that take no time."""
    model = CostModel(small_graph(), load_cluster("titanx-4"))
    for index, layer in enumerate(model.graph.layers):
        one = space_of(layer, Configuration({"sample": 4}, (0, 1, 2, 3)), 4)
        for times in (model.compute_times.slowest_part_s(index, one), model.compute_times.part_s(index, one)):
            for array in times.values():
                with pytest.raises(ValueError, match="read-only"):
                    array[:] = 0.0


def test_a_layer_takes_as_long_as_on_the_slowest_of_its_devices():
    """Two equal parts on devices of two kinds: the time is that of the slower kind, in every phase."""
    cluster = load_cluster("titanx-4").take(2)
    (fast, slow), links = cluster.devices, cluster.links
    switches = cluster.vertices[2:]
    mixed = DeviceGraph("mixed", (fast, replace(slow, profile="k80")), switches, links, hosts=cluster.hosts)
    graph = load_model("alexnet", batch=8)
    space = spaces_of(graph, named_strategy("data", graph, 2), 2)[0]
    times = CostModel(graph, mixed).compute_times
    found, parts = times.slowest_part_s(0, space), times.part_s(0, space)
    for phase, each_s in parts.items():
        assert each_s[0] != each_s[1]
        assert found[phase][0] == each_s.max()
