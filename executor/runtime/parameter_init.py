"""Initial parameters: a function of seed, layer and position, so that every split starts from the same network."""

import math
from collections.abc import Mapping

import torch
from torch import Tensor

from executor.runtime.boxes import Box
from executor.runtime.positional_random import key_of, uniform
from planner.graph.computation_graph import ComputationGraph

_PURPOSE = 1
"""Part of the key that separates these random numbers from those of other purposes with the same seed."""
_RECTIFIED = ("relu", "leaky_relu")


def initial_parameters(
    graph: ComputationGraph,
    index: int,
    boxes: Mapping[str, Box],
    *,
    seed: int,
    dtype: torch.dtype,
    device: torch.device | str,
) -> dict[str, Tensor]:
    """Return the values that training starts from.

    Weights are uniform with the variance 2 / fan-in before a rectifier and 1 / fan-in elsewhere.  Biases are 0,
    and normalisations start as the identity: one-dimensional weights are 1.

    Args:
        graph: The model, or a graph of it in which layers are partial sums.
        index: Index of a layer of the graph; its values are those of the model's layer.
        boxes: The slice of each parameter that the rank holds, by name.
        seed: Seed of the whole network.
        dtype: Type of the elements.
        device: Device that makes them.

    Returns:
        Tensors by name, each of its box's shape.

    Source:
        He et al., "Delving deep into rectifiers", ICCV 2015, Eq. 10; the uniform distribution on [-a, a) has
        the variance a^2 / 3, which is gain / fan-in here.
    """
    layer = graph.layers[index]
    gain = 2.0 if getattr(layer.operation, "activation", None) in _RECTIFIED else 1.0
    values = {}
    for number, parameter in enumerate(layer.parameters):
        if parameter.name not in boxes:
            continue
        box = boxes[parameter.name]
        if parameter.name.endswith("bias"):
            values[parameter.name] = torch.zeros(box.shape, dtype=dtype, device=device)
        elif len(parameter.shape) == 1:
            values[parameter.name] = torch.ones(box.shape, dtype=dtype, device=device)
        else:
            key = key_of(seed, _PURPOSE, index, number)
            unit = uniform(key, box, parameter.shape, dtype=dtype, device=device)
            fan_in = math.prod(parameter.module_shape[1:])
            values[parameter.name] = unit.sub_(0.5).mul_(2 * math.sqrt(3 * gain / fan_in))
    return values
