"""Makes the part of a layer that a rank holds."""

import torch

from executor.boxes import Box
from executor.layers.base import PartLayer, Place
from executor.layers.convolution import ConvolutionPart
from executor.layers.epilogue import BatchNormPart
from executor.layers.joining import AddPart, ConcatPart
from executor.layers.linear import LinearPart
from executor.layers.local_response import LocalResponseNormPart
from executor.layers.losses import LossPart
from executor.layers.normaliser import Normaliser
from executor.layers.pooling import GlobalPoolingPart, PoolingPart
from executor.samples import Samples
from hwprofiles.errors import ConfigError
from planner.configurations import ConfigSpace
from planner.graph import ComputationGraph, Parameter
from planner.operations import (
    Add,
    BatchNorm,
    Concat,
    Convolution,
    GlobalPooling,
    Linear,
    LocalResponseNorm,
    Loss,
    Pooling,
)
from planner.regions import Boxes, held, needed
from planner.shapes import Shape

__all__ = ["parameter_box", "part_layer"]


def part_layer(
    graph: ComputationGraph,
    index: int,
    space: ConfigSpace,
    part: int,
    *,
    reduced: bool = False,
    samples: Samples | None = None,
    dtype: torch.dtype,
    device: torch.device | str,
) -> PartLayer:
    """Make one part of one layer.

    Args:
        graph: The network.
        index: The layer.
        space: The layer's configuration, alone.
        part: Which part of it.
        reduced: Whether batch normalisation takes its statistics over the whole batch, all parts of the same
            channels together; else each part over its own values.
        samples: Which samples the graph's tensors hold; all of its batch if None.
        dtype, device: Of the running statistics of batch normalisation.

    Raises:
        ConfigError: The kind of layer is not one of ``planner.operations``.
    """
    layer = graph.layers[index]
    operation, shapes = layer.operation, layer.input_shapes
    given = [_box(needed(space, operation.needs(slot, shapes), shape), part) for slot, shape in enumerate(shapes)]
    place = Place(layer, index, _box(held(space), part), tuple(given), samples or Samples(batch=graph.batch))

    def normaliser() -> Normaliser:
        count = layer.output.elements // layer.output.size("channel") if reduced else None
        return Normaliser(place.held.shape[1], count=count, dtype=dtype, device=device)

    match operation:
        case Convolution():
            return ConvolutionPart(place, operation, normaliser() if operation.batch_norm else None)
        case BatchNorm():
            return BatchNormPart(place, operation, normaliser())
        case Pooling():
            return PoolingPart(place, operation)
        case GlobalPooling():
            return GlobalPoolingPart(place, operation)
        case Linear():
            return LinearPart(place, operation)
        case Add():
            return AddPart(place, operation)
        case Concat():
            return ConcatPart(place)
        case LocalResponseNorm():
            return LocalResponseNormPart(place, operation)
        case Loss():
            return LossPart(place, operation)
    raise ConfigError(f"layer {layer.name!r} must be of a kind of planner.operations, got {operation.kind}")


def parameter_box(parameter: Parameter, held: Box, output: Shape) -> Box:
    """The slice of a parameter that a part holds.

    Args:
        parameter: A parameter of the layer.
        held: The part's box of the output.
        output: Shape of the layer's output.
    """
    low, high = [0] * len(parameter.shape), list(parameter.shape)
    if parameter.split:
        channel = output.dims.index("channel")
        low[0], high[0] = held.low[channel], held.high[channel]
    return Box(tuple(low), tuple(high))


def _box(boxes: Boxes, part: int) -> Box:
    return Box(tuple(boxes.low[part].tolist()), tuple(boxes.high[part].tolist()))
