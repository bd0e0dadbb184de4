"""Search problems over the configurations of one mesh, and random small networks for them."""

import numpy as np
from hypothesis import strategies as st
from plans import SMALL_MODELS, cluster_of, device_count, inception_module, residual_block

from hwprofiles.catalogue.cluster_catalogue import cluster_names
from planner.cost.cost_model import CostModel
from planner.layouts.configurations import mesh_configurations
from planner.layouts.mesh import Mesh
from planner.models.registry import load_model
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
