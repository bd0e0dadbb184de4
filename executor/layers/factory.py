"""Makes the part of a layer that a rank holds."""

from collections.abc import Callable

import torch

from executor.layers.base import PartContext, PartLayer
from executor.layers.batch_norm import Normaliser
from executor.layers.convolution import ConvolutionPart
from executor.layers.dropout import DropoutPart
from executor.layers.epilogue import BatchNormPart
from executor.layers.joining import AddPart, ConcatPart
from executor.layers.linear import LinearPart
from executor.layers.local_response import LocalResponseNormPart
from executor.layers.losses import LossPart
from executor.layers.partial import SLICES, PartialProductPart, PartialSumPart
from executor.layers.pooling import GlobalPoolingPart, PoolingPart
from executor.runtime import BatchSamples, Box
from hwprofiles import ConfigError
from planner.graph import IN_CHANNEL, ComputationGraph, Layer, Parameter, Shape
from planner.operations import (
    Add,
    BatchNorm,
    Concat,
    Convolution,
    Dropout,
    GlobalPooling,
    Linear,
    LocalResponseNorm,
    Loss,
    PartialProduct,
    PartialSum,
    Pooling,
)
from planner.parallel import ConfigSpace, Regions, held_regions, needed_regions

__all__ = ["parameter_box", "part_layer"]


def part_layer(
    graph: ComputationGraph,
    index: int,
    space: ConfigSpace,
    part: int,
    *,
    reduced: bool = False,
    samples: BatchSamples | None = None,
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
    place = _place(graph, index, space, part, samples or BatchSamples(batch=graph.batch))
    output = place.layer.output

    def normaliser() -> Normaliser:
        count = output.elements // output.size("channel") if reduced else None
        return Normaliser(place.held.shape[1], count=count, dtype=dtype, device=device)

    return _made(place, normaliser)


def _place(graph: ComputationGraph, index: int, space: ConfigSpace, part: int, samples: BatchSamples) -> PartContext:
    """What a part holds, and what it reads."""
    layer = graph.layers[index]
    operation, shapes = layer.operation, layer.input_shapes
    given = [
        _box(needed_regions(space, operation.needs(slot, shapes), shape), part) for slot, shape in enumerate(shapes)
    ]
    return PartContext(layer, graph.origin[index], _box(held_regions(space), part), tuple(given), samples)


def _made(place: PartContext, normaliser: Callable[[], Normaliser]) -> PartLayer:
    """The part of the layer's kind; one that normalises takes what does it."""
    operation = place.layer.operation
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
        case Dropout():
            return DropoutPart(place, operation)
        case Loss():
            return LossPart(place, operation)
        case PartialProduct():
            return PartialProductPart(place, _product_part(place, operation))
        case PartialSum():
            return PartialSumPart(place, operation, normaliser() if operation.statistics else None)
    raise ConfigError(f"layer {place.layer.name!r} must be of a kind of planner.operations, got {operation.kind}")


def _product_part(place: PartContext, operation: PartialProduct) -> PartLayer:
    """The part of a layer that reads one slice of the input channels and nothing else."""
    product, inputs = operation.product, operation.sliced(place.layer.input_shapes)
    whole = Layer(place.layer.name, product, place.layer.inputs, inputs, product.output(inputs))
    low, high = ((*ends[:SLICES], *ends[SLICES + 1 :]) for ends in (place.held.low, place.held.high))
    (given,), first = place.inputs, place.held.low[SLICES] * inputs[0].size("channel")
    first = first if given.elements else 0
    read = Box(
        (given.low[0], given.low[1] - first, *given.low[2:]), (given.high[0], given.high[1] - first, *given.high[2:])
    )
    inner = PartContext(whole, place.index, Box(low, high), (read,), place.samples)
    if isinstance(product, Convolution):
        return ConvolutionPart(inner, product, None)
    return LinearPart(inner, product)


def parameter_box(parameter: Parameter, held: Box, output: Shape) -> Box:
    """The slice of a parameter that a part holds: of its first dimension, and of partial sums of its second.

    Args:
        parameter: A parameter of the layer.
        held: The part's box of the output.
        output: Shape of the layer's output.
    """
    low, high = [0] * len(parameter.shape), list(parameter.shape)
    if parameter.split:
        channel = output.dims.index("channel")
        low[0], high[0] = held.low[channel], held.high[channel]
    if IN_CHANNEL in output.dims:
        slices = output.dims.index(IN_CHANNEL)
        size = parameter.shape[1] // output.sizes[slices]
        low[1], high[1] = held.low[slices] * size, held.high[slices] * size
    return Box(tuple(low), tuple(high))


def _box(boxes: Regions, part: int) -> Box:
    return Box(tuple(boxes.low[part].tolist()), tuple(boxes.high[part].tolist()))
