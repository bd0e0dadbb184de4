"""Phases of layers that train a part of their parameters, or none."""

from dataclasses import replace

import pytest

from planner.graph.computation_graph import LAYER_PHASES, ComputationGraph
from planner.models.registry import load_model


@pytest.mark.parametrize("frozen", [(), ("bias",), ("weight", "bias")])
def test_a_layer_is_updated_while_one_of_its_parameters_trains(frozen):
    """The first layer has no activation gradient; frozen as a whole, it computes forward alone."""
    graph = load_model("lenet5", batch=2)
    graph = ComputationGraph("frozen", 2, [replace(graph.layers[0], frozen=frozen), *graph.layers[1:]])

    trains = len(frozen) < 2
    assert [graph.has_phase(0, phase) for phase in LAYER_PHASES] == [
        phase == "forward" or (trains and phase != "activation_gradient") for phase in LAYER_PHASES
    ]
