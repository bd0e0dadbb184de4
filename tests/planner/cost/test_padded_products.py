"""Padded operands of products, against networks whose words need no padding."""

import pytest

from hwprofiles.compute.compute_profile import PROFILE_PHASES
from hwprofiles.devices.device import Device
from hwprofiles.devices.device_graph import DeviceGraph
from planner.cost.compute_time import ComputeTimes
from planner.cost.software import software_of
from planner.graph.type_roles import DataTypes
from planner.layouts.configurations import Configuration, space_of
from planner.models.registry import load_model

H200 = DeviceGraph("one h200", (Device(name="gpu0", node=0, profile="h200", memory_bytes=2**40),), (), ())
WORDS, ALIGNED, HIDDEN, TOKENS = 50_257, 50_264, 768, 8_192
COPIED = {
    "forward": WORDS * HIDDEN,
    "activation_gradient": WORDS * (HIDDEN + TOKENS),
    "weight_gradient": WORDS * TOKENS,
}
"""Elements of the operands that have the words as a dimension."""


def scores_s(words, software):
    """Return the times of the last product of GPT-2 by phase, of eight samples of 1,024 tokens."""
    graph = load_model(f"gpt2:layers=1,words={words},sequence=1024", batch=8, element_bytes=2)
    index = next(i for i, layer in enumerate(graph.layers) if layer.name == "lm_head")
    layer = graph.layers[index]
    space = space_of(layer, Configuration(dict.fromkeys(layer.parallel_dims, 1), (0,)), 1)
    times = ComputeTimes(graph, H200, DataTypes.of("bfloat16"), software=software_of(software))
    return {phase: times.part_s(index, space)[phase][0] for phase in PROFILE_PHASES[:3]}


@pytest.mark.parametrize("phase", PROFILE_PHASES[:3])
def test_a_compiler_copies_operands_where_their_alignment_costs_more(phase):
    plain, padded = scores_s(WORDS, "torch-compile:pads=0")[phase], scores_s(WORDS, "torch-compile")[phase]
    aligned = scores_s(ALIGNED, "torch-compile")[phase]
    copies_s = 4.0 * COPIED[phase] / 4.8e12
    assert plain > 4 * aligned
    assert aligned + copies_s < padded < aligned + 1.3 * copies_s


def test_aligned_words_are_not_copied():
    assert scores_s(ALIGNED, "torch-compile") == scores_s(ALIGNED, "torch-compile:pads=0")
