"""Questions for the tests of the planner's core: small clusters, random strategies, programs."""

from functools import cache

import numpy as np
from hypothesis import strategies as st

from hwprofiles.catalogue.cluster_catalogue import cluster_names, load_cluster
from hwprofiles.devices.device import Device
from hwprofiles.devices.device_graph import DeviceGraph
from hwprofiles.devices.latency import Latency
from hwprofiles.devices.link import Link
from planner.cost.cost_model import CostModel
from planner.layouts.configurations import Configuration, all_configurations
from planner.lowering.lower_strategy import lower
from planner.models.builder import ModelBuilder
from planner.models.registry import load_model
from planner.strategies.named_strategies import spaces_of
from simulator.collectives.schemes import ALL_REDUCES

SMALL_MODELS = ("lenet5", "alexnet", "conv1d", "cosmoflow", "resnet-cifar:depth=8")
ALPHA_S, BYTES_PER_S = 5e-6, 1e9
"""Of the star: latency of a message, and bandwidth of a link."""


@cache
def cluster_of(spec, count):
    """The first devices of a cluster of the catalogue."""
    return load_cluster(spec).take(count)


@cache
def device_count(spec):
    """Devices of a cluster of the catalogue."""
    return len(load_cluster(spec).devices)


def random_strategy(graph, count, rng):
    """Any offered configuration for every layer; half of them on shuffled devices."""
    strategy = {}
    for layer in graph.layers:
        space = all_configurations(layer.output, layer.parallel_dims, count)
        chosen = space.configuration(int(rng.integers(space.size)))
        if rng.random() < 0.5:
            chosen = Configuration(chosen.degrees, tuple(rng.permutation(count)[: chosen.parts].tolist()))
        strategy[layer.name] = chosen
    return strategy


def program_of(model, strategy):
    """A strategy lowered, whether it fits in memory or not."""
    return lower(model, spaces_of(model.graph, strategy, len(model.cluster.devices)))


def lowering_of(program, gradient_sync="ring"):
    """Lowers the strategy of a program anew on another cluster."""
    return lambda cluster: lower(
        CostModel(program.graph, cluster, gradient_sync, conditions=program.conditions), program.spaces
    )


@st.composite
def questions(draw, models=SMALL_MODELS, most_devices=8):
    """A cost model of a small model on a piece of any cluster, and a random strategy."""
    spec = draw(st.sampled_from(cluster_names()))
    count = draw(st.integers(1, min(most_devices, device_count(spec))))
    graph = load_model(draw(st.sampled_from(models)), batch=draw(st.sampled_from([1, 2, 6, 8])))
    model = CostModel(graph, cluster_of(spec, count), draw(st.sampled_from(list(ALL_REDUCES))))
    return model, random_strategy(graph, count, np.random.default_rng(draw(st.integers(0, 2**32))))


def star(count, *, latency_s=ALPHA_S, bandwidth=BYTES_PER_S):
    """Devices on one switch, by equal links that are free for them; half the latency each."""
    devices = [Device(name=f"node{i}/gpu", node=i, profile="p100", memory_bytes=16e9) for i in range(count)]
    links = [
        Link(
            name=f"{a}-{b}",
            source=a,
            target=b,
            both_ways=False,
            bandwidth_bytes_per_s=bandwidth,
            latency=Latency(sizes_bytes=(0.0,), seconds=(latency_s / 2,)),
            exclusive=False,
            link_class="wire",
        )
        for i in range(count)
        for a, b in ((i, count), (count, i))
    ]
    return DeviceGraph("star", devices, ["switch"], links)


def inception_module(batch=8):
    """One tensor read by three branches, two of them through windows of one position."""
    net = ModelBuilder("module", batch=batch, image=(4, 8, 8))
    stem = net.conv(8, 3, pad=1, name="stem")
    one = net.conv(4, 1, stem, name="one")
    net.conv(4, 1, stem, name="reduce")
    three = net.conv(4, 3, pad=1, name="three")
    net.pool("max", 3, stem, stride=1, pad=1, name="pool")
    five = net.conv(4, 1, name="five")
    net.concat([one, three, five], name="concat")
    net.linear(4, name="fc")
    net.loss()
    return net.build()


def residual_block(batch=8):
    """One tensor read by a convolution and by a sum."""
    net = ModelBuilder("block", batch=batch, image=(4, 8, 8))
    stem = net.conv(8, 3, pad=1, name="stem")
    net.conv(8, 3, stem, pad=1, name="first")
    second = net.conv(8, 3, pad=1, name="second")
    net.sum([stem, second], name="sum")
    net.linear(4, name="fc")
    net.loss()
    return net.build()


@st.composite
def small_graphs(draw):
    """A stem in 1 to 3 dimensions, one layer of any kind that reads it, and a classifier."""
    rank, batch = draw(st.integers(1, 3)), draw(st.sampled_from([1, 2, 4]))
    size = draw(st.integers(5, 9)) if rank < 3 else draw(st.integers(4, 5))
    net = ModelBuilder("drawn", batch=batch, image=(2, *[size] * rank))
    stem = net.conv(draw(st.sampled_from([2, 4, 6])), 1, name="stem")
    kernel, stride = draw(st.integers(1, 3)), draw(st.integers(1, 3))
    kind = draw(st.sampled_from(["conv", "pool", "concat", "norm", "sum", "global", "none"]))
    if kind == "conv":
        pad, dilation = draw(st.integers(0, 2)), draw(st.integers(1, 2))
        net.conv(4, kernel, stem, stride=stride, pad=pad, dilation=dilation, groups=draw(st.sampled_from([1, 2])))
    elif kind == "pool":
        net.pool("max", kernel, stem, stride=stride, pad=kernel // 2, ceil_mode=draw(st.booleans()))
    elif kind == "concat":
        net.concat([stem, net.conv(draw(st.integers(1, 4)), 1, stem)])
    elif kind == "norm":
        net.local_response_norm(stem, size=draw(st.sampled_from([1, 3, 5])))
    elif kind == "sum":
        net.sum([stem, net.conv(net.channels(stem), 3, stem, pad=1)])
    elif kind == "global":
        net.global_pool(stem)
    net.linear(4)
    net.loss()
    return net.build()
