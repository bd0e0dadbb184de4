"""Memory of a case by the closed form of Table 1, and gamma, the share of it that memory reuse leaves."""

from dataclasses import replace

import numpy as np

from groundwork.array_types import Ints
from hwprofiles.devices.device_graph import DeviceGraph
from planner.cost.cost_model import CostModel
from planner.graph.computation_graph import ComputationGraph
from planner.layouts.configurations import Configuration
from planner.lowering.lower_strategy import lower
from planner.memory.peak_memory import peak_memory_bytes
from planner.strategies.named_strategies import spaces_of
from studies.oracle import forms
from studies.oracle.cases import OracleCase
from studies.oracle.layer_sizes import Sizes
from studies.oracle.oracle_request import OracleRequest


def case_memory_bytes(
    sizes: Sizes, case: OracleCase, request: OracleRequest, gamma: float, bounds: Ints | None
) -> float:
    """Return the memory of the fullest device of a case.

    Args:
        sizes: Sizes of the network's layers.
        case: The case.
        request: Says how many elements the optimizer keeps for each parameter.
        gamma: Memory reuse.
        bounds: First layer of each stage of a pipeline, then the number of layers; None without stages.

    Source: Kahira et al., "An Oracle ...", Table 1, third column.
    """
    activations = case.batch * (sizes.x + sizes.y)
    weights, copies = sizes.w, 2 + request.optimizer_copies
    if case.kind in ("data", "filter", "channel"):
        activations = activations / case.p1
    if case.kind in ("filter", "channel"):
        weights = weights / case.p2
    if case.kind == "spatial":
        activations = activations / case.p1 / np.where(sizes.flat, 1, case.p2)
        weights = weights / np.where(sizes.flat, case.p2, 1)
    ends = bounds if bounds is not None else np.array([0, len(sizes.y)])
    # each stage is a row of one number, so that the form's sum over layers is over the whole stage
    sums = [np.add.reduceat(row, ends[:-1])[:, None] for row in (activations, weights, sizes.b)]
    delta = sizes.graph.element_bytes
    stages = forms.memory_bytes(sums[0], sums[1], sums[2], gamma=gamma, delta=delta, weight_copies=copies)
    return float(stages.max())


def least_memory_bytes(cluster: DeviceGraph, devices: int) -> float:
    """Return the smallest memory among the first ``devices`` devices."""
    return min(device.usable_bytes for device in cluster.devices[:devices])


def memory_reuse(graph: ComputationGraph, cluster: DeviceGraph) -> float:
    """Return gamma of a model: the share of 2 sum(|x| + |y|) that ``planner.memory`` keeps at the peak.

    The peak is that of one device without a split, of which only activations, their gradients and what they need
    are counted.

    Args:
        graph: The model.
        cluster: Its first device is the one device.

    Source:
        Kahira et al., "An Oracle ...", Table 1, third column.
    """
    alone = {layer.name: Configuration(dict.fromkeys(layer.parallel_dims, 1), (0,)) for layer in graph.layers}
    model = CostModel(graph, DeviceGraph(cluster.name, [replace(cluster.devices[0], node=0)], (), ()))
    program = lower(model, spaces_of(graph, alone, 1))
    counted = 2 * sum(
        layer.output.elements + sum(shape.elements for shape in layer.input_shapes) for layer in graph.layers
    )
    peak_bytes = peak_memory_bytes(
        program, without=("parameters", "optimizer state", "parameter gradients", "statistics")
    )
    return float(peak_bytes[0]) / (counted * graph.element_bytes)
