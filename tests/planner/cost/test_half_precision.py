"""Prices of one layer in two arithmetics: fewer bits never take longer, as float32 can compute on any data.

Convolutions whose channels tensor cores do not load at once do: DeepBench's V100 takes up to eight times as long.
"""

import numpy as np
import pytest

from hwprofiles.compute.profile_file import load_profile, profile_file, profile_names
from planner.cost.compute_time import kernel_s
from planner.graph.computation_graph import LAYER_PHASES
from planner.models.registry import load_model

MODELS = ("alexnet", "efficientnet-b0", "swin-t", "conv1d")
SAMPLES = np.array([1.0, 16.0, 256.0])
PRECISE = [name for name in profile_names() if profile_file(name).precisions]


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
    some = list(found.values())[::5]  # blocks repeat with other sizes
    return [(model, layer, phase, inner) for model, layer, inner, own in some for phase in own]


@pytest.mark.parametrize("name", PRECISE)
def test_fewer_bits_never_take_longer(phases, name):
    """The kernel of float32 that reads the same data bounds the price; on less data it takes no longer itself."""
    wide, narrow = load_profile(name), [load_profile(f"{name}@{each}") for each in profile_file(name).precisions]
    for model, layer, phase, inner in phases:
        channels = layer.input_shapes[0].size("channel"), layer.output.size("channel")
        if layer.operation.kind == "convolution" and layer.operation.groups == 1 and any(n % 16 for n in channels):
            continue
        sizes = dict(zip(layer.output.dims, map(float, layer.output.sizes), strict=True))
        part = {dim: np.full(3, size) for dim, size in sizes.items()} | {"sample": SAMPLES}
        full_s, *found_s = (kernel_s(each, model, layer, phase, part, inner=inner) for each in (wide, *narrow))
        for profile, half_s in zip(narrow, found_s, strict=True):
            assert (half_s <= full_s * (1 + 1e-9)).all(), (profile.name, layer.name, phase, half_s / full_s)
