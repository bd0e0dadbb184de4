"""Strategies that follow from a rule: each layer's configuration depends on that layer and the number of devices only.

A new rule is a function here and a name in ``NAMED`` or ``REDUCING``.
"""

import math
from collections.abc import Callable
from functools import lru_cache

from groundwork.errors import ConfigError
from planner.graph.computation_graph import ComputationGraph, Layer
from planner.graph.shapes import SUMMED
from planner.layouts.configurations import Configuration, Strategy
from planner.strategies.degrees import grid_of, largest_divisor, sums_of_channels


def _packed(degrees: dict[str, int]) -> Configuration:
    """Return a configuration of these degrees on the first devices."""
    return Configuration.of(degrees, _first_devices(math.prod(degrees.values())))


@lru_cache(maxsize=512)
def _first_devices(parts: int) -> tuple[int, ...]:
    """Return the devices of so many parts, one object for all layers."""
    return tuple(range(parts))


def _split(layer: Layer, dim: str, device_count: int) -> Configuration:
    """Split one dimension into the most equal parts that the devices allow; leave a layer without it whole."""
    degrees = dict.fromkeys(layer.parallel_dims, 1)
    if dim in degrees:
        degrees[dim] = largest_divisor(layer.output.size(dim), device_count)
    return _packed(degrees)


def _samples(layer: Layer, device_count: int) -> Configuration:
    """Split a layer's samples over all devices, which must divide the batch."""
    batch = layer.output.size("sample")
    if batch % device_count:
        nearest = max(round(batch / device_count), 1) * device_count
        raise ConfigError(
            f"batch must be a multiple of the {device_count} devices for equal parts of the samples, "
            f"got {batch}; the nearest is {nearest}"
        )
    return _split(layer, "sample", device_count)


def _positions(layer: Layer, device_count: int) -> Configuration:
    """Split a layer's positions; split the channels of a layer without positions."""
    grid = grid_of(layer, device_count)
    if not grid:
        return _split(layer, "channel", device_count)
    return _packed(dict.fromkeys(layer.parallel_dims, 1) | grid)


def _input_channels(layer: Layer, device_count: int) -> Configuration:
    """Split a layer's input channels; split the output channels of a layer that reads the data or has no such sum."""
    summed = sums_of_channels(layer)
    if not summed:
        return _split(layer, "channel", device_count)
    shared = math.gcd(summed, layer.output.size("channel"))
    degrees = dict.fromkeys(layer.parallel_dims, 1) | {SUMMED: largest_divisor(shared, device_count)}
    return _packed(degrees)


def _data(graph: ComputationGraph, device_count: int) -> Strategy:
    """Split every layer by samples over all devices."""
    return {layer.name: _samples(layer, device_count) for layer in graph.layers}


def _model(graph: ComputationGraph, device_count: int) -> Strategy:
    """Split every layer's output channels, and with them its parameters, over as many devices as divide them."""
    return {layer.name: _split(layer, "channel", device_count) for layer in graph.layers}


def _one_weird_trick(graph: ComputationGraph, device_count: int) -> Strategy:
    """Split fully connected layers by output channels and all others by samples.

    Source:
        Krizhevsky, "One weird trick for parallelizing convolutional neural networks", 2014.
    """
    return {
        layer.name: _split(layer, "channel", device_count)
        if layer.operation.kind == "linear"
        else _samples(layer, device_count)
        for layer in graph.layers
    }


def _spatial(graph: ComputationGraph, device_count: int) -> Strategy:
    """Split positions into parts as near to cubes as the sizes allow; split layers without positions by channels."""
    return {layer.name: _positions(layer, device_count) for layer in graph.layers}


def _channel(graph: ComputationGraph, device_count: int) -> Strategy:
    """Split input channels over as many devices as divide them, and the resulting sums by output channels.

    Layers that read the data, whose channels are few, and those that do not sum over their input channels are split
    by output channels, so that each layer holds the channels that its part of the next layer reads.
    """
    return {layer.name: _input_channels(layer, device_count) for layer in graph.layers}


NAMED: dict[str, Callable[[ComputationGraph, int], Strategy]] = {
    "data": _data,
    "model": _model,
    "owt": _one_weird_trick,
    "spatial": _spatial,
}
"""Rules that split outputs only, by name: candidates and starting points of the searches."""
REDUCING: dict[str, Callable[[ComputationGraph, int], Strategy]] = {"channel": _channel}
"""Rules that split input channels, by name; of the searches that on a mesh considers such splits."""
ALIASES = {"filter": "model"}
"""Other names of rules: filters are output channels (ParaDL's word)."""
