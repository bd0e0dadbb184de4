"""Factory of parts: makes the part of a layer that a rank holds."""

from collections.abc import Callable

import torch

from executor.layers.base import PartContext, PartLayer
from executor.layers.batch_norm import BatchNormalization
from executor.layers.convolution import ConvolutionPart
from executor.layers.dropout import DropoutPart
from executor.layers.epilogue import BatchNormPart
from executor.layers.joining import AddPart, ConcatPart
from executor.layers.linear import LinearPart
from executor.layers.local_response import LocalResponseNormPart
from executor.layers.losses import LossPart
from executor.layers.parameters import parameter_boxes
from executor.layers.pooling import GlobalPoolingPart, PoolingPart
from executor.layers.recorded import RecordedPart
from executor.runtime.boxes import Box
from executor.runtime.samples import BatchSamples
from groundwork.errors import ConfigError
from planner.graph.computation_graph import ComputationGraph
from planner.graph.operation import Operation
from planner.layouts.configurations import ConfigSpace, product_space
from planner.layouts.regions import held_regions, needed_regions
from planner.operations.convolution import Convolution
from planner.operations.dropout import Dropout
from planner.operations.joining import Add, Concat
from planner.operations.linear import Linear
from planner.operations.loss import Loss
from planner.operations.mapped import Mapped
from planner.operations.normalisation import BatchNorm, LocalResponseNorm
from planner.operations.pooling import GlobalPooling, Pooling
from planner.strategies.zigzag import position_order


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
        index: Index of the layer.
        space: The space that holds the layer's one configuration.
        part: Index of the part.
        reduced: Whether batch normalisation takes its statistics over the whole batch, all parts of the same
            channels together; else each part over its own elements.
        samples: Samples that the graph's tensors hold; all of its batch if None.
        dtype: Type of the running statistics of batch normalisation.
        device: Their device.

    Raises:
        ConfigError: The kind of layer is not one of ``planner.operations``.
    """
    context = _context(graph, index, space, part, samples or BatchSamples(batch=graph.batch))
    output = context.layer.output

    def normalization() -> BatchNormalization:
        count = output.elements // output.size("channel") if reduced else None
        eps, momentum = _norm_constants(context.layer.operation)
        return BatchNormalization(
            context.held.shape[1], count=count, dtype=dtype, device=device, eps=eps, momentum=momentum
        )

    if isinstance(context.layer.operation, Mapped):
        return RecordedPart(context, dtype, device)
    return _made(context, normalization)


def _norm_constants(operation: Operation) -> tuple[float, float]:
    """Return eps and momentum of a layer's batch normalisation."""
    if isinstance(operation, BatchNorm):
        return operation.eps, operation.momentum
    assert isinstance(operation, Convolution)
    return operation.norm_eps, operation.norm_momentum


def _context(graph: ComputationGraph, index: int, space: ConfigSpace, part: int, samples: BatchSamples) -> PartContext:
    """Return the regions that a part computes and reads."""
    layer = graph.layers[index]
    operation, shapes = layer.operation, layer.input_shapes
    needed = [needed_regions(space, operation.interval_maps(slot, shapes), shape) for slot, shape in enumerate(shapes)]
    parameters = parameter_boxes(layer, space, part)
    held, product = (Box.of(held_regions(each), part) for each in (space, product_space(space)))
    given, largest = (
        tuple(Box.of(regions, part) for regions in needed),
        Box.of(needed[0], int(needed[0].volume.argmax())),
    )
    return PartContext(
        layer, index, held, product, given, parameters, samples, largest.shape, position_order(graph, layer)
    )


_PLAIN_PARTS: dict[type[Operation], Callable[..., PartLayer]] = {
    Pooling: PoolingPart,
    GlobalPooling: GlobalPoolingPart,
    Linear: LinearPart,
    Add: AddPart,
    LocalResponseNorm: LocalResponseNormPart,
    Dropout: DropoutPart,
    Loss: LossPart,
}
"""Parts that are made from their context and their operation alone."""


def _made(context: PartContext, normalization: Callable[[], BatchNormalization]) -> PartLayer:
    """Return the part of the layer's kind; ``normalization`` makes the batch normalisation of one that needs it."""
    operation = context.layer.operation
    match operation:
        case Convolution():
            return ConvolutionPart(context, operation, normalization() if operation.batch_norm else None)
        case BatchNorm():
            return BatchNormPart(context, operation, normalization())
        case Concat():
            return ConcatPart(context)
    if type(operation) in _PLAIN_PARTS:
        return _PLAIN_PARTS[type(operation)](context, operation)
    raise ConfigError(f"layer {context.layer.name!r} must be of a kind of planner.operations, got {operation.kind}")
