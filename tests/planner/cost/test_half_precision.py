"""Prices of one layer in two arithmetics: fewer bits never take longer, as float32 can compute on any data."""

import numpy as np
import pytest

from hwprofiles.compute.profile_file import load_profile, profile_file, profile_names
from planner.cost.compute_time import kernel_s
from planner.graph.computation_graph import LAYER_PHASES
from planner.models.registry import load_model

MODELS = ("alexnet", "efficientnet-b0", "vit-b16", "swin-t", "conv1d")
SAMPLES = np.array([1.0, 16.0, 256.0])
PRECISIONS = [(name, each) for name in profile_names() for each in profile_file(name).precisions]


@pytest.fixture(scope="module")
def phases():
    """Different layers and phases: windows that are wide, narrow, depthwise or of few channels, attention, norms."""
    found = {}
    for model in MODELS:
        graph = load_model(model, batch=256)
        for index, layer in enumerate(graph.layers):
            inner = graph.has_phase(index, "activation_gradient")
            key = (layer.operation, layer.input_shapes, inner)
            found[key] = model, layer, inner, [each for each in LAYER_PHASES if graph.has_phase(index, each)]
    return [(model, layer, phase, inner) for model, layer, inner, own in found.values() for phase in own]


@pytest.mark.parametrize(("name", "arithmetic"), PRECISIONS)
def test_fewer_bits_never_take_longer(phases, name, arithmetic):
    """The kernel of float32 that reads the same data bounds the price; on less data it takes no longer itself."""
    narrow, wide = load_profile(f"{name}@{arithmetic}"), load_profile(name)
    for model, layer, phase, inner in phases:
        sizes = dict(zip(layer.output.dims, map(float, layer.output.sizes), strict=True))
        part = {dim: np.full(3, size) for dim, size in sizes.items()} | {"sample": SAMPLES}
        half_s, full_s = (kernel_s(each, model, layer, phase, part, inner=inner) for each in (narrow, wide))
        assert (half_s <= full_s * (1 + 1e-9)).all(), (layer.name, phase, half_s / full_s)
