"""Search problems over the configurations of one mesh, and random small networks for them."""

import numpy as np
from hypothesis import strategies as st
from plans import SMALL_MODELS, cluster_of, device_count, inception_module, residual_block

from hwprofiles.catalogue.cluster_catalogue import cluster_names
from planner.cost.cost_model import CostModel
from planner.graph.parameters import Parameter
from planner.graph.shapes import IntervalMap
from planner.layouts.configurations import mesh_configurations
from planner.layouts.mesh import Mesh
from planner.models.builder import ModelBuilder
from planner.models.registry import load_model
from planner.operations.products import TensorProduct
from simulator.collectives.schemes import ALL_REDUCES

MODELS = (*SMALL_MODELS, "gpt2:layers=1,hidden=64,words=64", "module", "block")
MESHES = {2: (2,), 3: (3,), 4: (2, 2), 6: (2, 3)}
"""Sizes of the axes, by the number of devices."""


def spaces_on(graph, count):
    """All configurations on one mesh, by layer."""
    mesh = Mesh(tuple((f"axis {i}", size) for i, size in enumerate(MESHES[count])), tuple(range(count)))
    return [mesh_configurations(layer, mesh) for layer in graph.layers]


def strategy_of(graph, spaces, choice):
    """The strategy of a choice."""
    rows = zip(graph.layers, spaces, choice, strict=True)
    return {layer.name: space.configuration(int(c)) for layer, space, c in rows}


@st.composite
def mesh_questions(draw):
    """A cost model of a small network on a piece of any cluster, and a generator."""
    spec = draw(st.sampled_from(cluster_names()))
    count = draw(st.sampled_from([count for count in MESHES if count <= device_count(spec)] or [2]))
    name = draw(st.sampled_from(MODELS))
    made = {"module": inception_module, "block": residual_block}.get(name)
    graph = made(4) if made else load_model(name, batch=draw(st.sampled_from([2, 4, 6])))
    scheme, norm = draw(st.sampled_from([*ALL_REDUCES, "auto"])), draw(st.sampled_from(["local", "reduced"]))
    model = CostModel(graph, cluster_of(spec, count), scheme, norm)
    return model, count, np.random.default_rng(draw(st.integers(0, 2**32)))


def product(net, channels, source=None):
    """A product of the channels with one matrix at each position, whose readers add partial sums."""
    depth, length = net.channels(source), net.positions(source)[0]
    operation = TensorProduct(
        kind="matrix_product",
        dims=("channel", "length"),
        sizes=(channels, length),
        reads=((IntervalMap(dim="sample"), IntervalMap(dim=None), IntervalMap(dim="length")),),
        weights=(Parameter("weight", (channels, depth)), Parameter("bias", (channels,))),
        depth=float(depth),
    )
    return net.add(operation, *(() if source is None else (source,)))


def small_network(rng):
    """A chain of two to five convolutions, products and poolings, some of which two layers read, and a loss."""
    net = ModelBuilder("small", batch=int(rng.choice([2, 4])), image=(4, 6))
    last = product(net, 4)
    for _ in range(int(rng.integers(1, 4))):
        kind = rng.choice(["product", "window", "pool", "sum"])
        if kind == "window":
            last = net.conv(net.channels(last), 3, last, pad=1)
        elif kind == "pool":
            last = net.pool("max", 3, last, stride=1, pad=1)
        elif kind == "sum":
            last = net.sum([last, product(net, net.channels(last), last)])
        else:
            last = product(net, int(rng.choice([2, 4, 6])), last)
    if rng.random() < 0.5:
        net.linear(4, last)
    net.loss()
    return net.build()
