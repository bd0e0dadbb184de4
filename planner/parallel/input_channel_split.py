"""Splits of a layer's input channels (the reduction dimension), expressed as graphs without such splits.

A layer of C input and F output channels, split ``in_channel`` r ways and ``channel`` c ways, is replaced by two
layers.  The first, a ``PartialProduct`` with the layer's name and weights, has one partial sum for each of r slices of
C / r input channels: part (q, j) computes the q-th of c shards of the F output channels from slice j, so it reads that
slice and holds those weights only.  The second, a ``PartialSum``, adds the r partial sums and computes what follows
the product.  Its channels are split c r ways on the same devices, part (q, j) beside part (q, j) of the first, so that
each part receives r - 1 of the r regions that it adds (a reduce-scatter of each shard q) and, backward, sends its
gradient to the r - 1 others (an all-gather).  An example with r = 2 slices and c = 1, of F = 4 channels::

    device 0:  partial sums of slice 0, channels 0-3  ->  sum of channels 0-1  (receives 0-1 of slice 1)
    device 1:  partial sums of slice 1, channels 0-3  ->  sum of channels 2-3  (receives 2-3 of slice 0)

Costs, lowering, replay and execution therefore handle such strategies as ordinary graphs.
"""

from collections.abc import Mapping
from dataclasses import replace

from groundwork.errors import ConfigError
from planner.graph.computation_graph import ComputationGraph, Layer
from planner.graph.shapes import IN_CHANNEL
from planner.layouts.configurations import LETTERS, ConfigSpace, Configuration, space_of
from planner.operations.convolution import Convolution
from planner.operations.linear import Linear
from planner.operations.partial import PartialProduct, PartialSum, Reducing


def slices_of(strategy: Mapping[str, Configuration]) -> dict[str, int]:
    """Return the layers whose input channels a strategy splits, with the number of slices of each."""
    degrees = {name: configuration.degrees.get(IN_CHANNEL, 1) for name, configuration in strategy.items()}
    return {name: degree for name, degree in degrees.items() if degree != 1}


def ordered_degrees(degrees: Mapping[str, int]) -> dict[str, int]:
    """Return degrees in the order in which parts are numbered, without an ``in_channel`` of 1."""
    ordered = {dim: degrees[dim] for dim in LETTERS if dim in degrees and (dim, degrees[dim]) != (IN_CHANNEL, 1)}
    return ordered | {dim: degree for dim, degree in degrees.items() if dim not in LETTERS}


def reducing_operation(layer: Layer) -> Reducing | None:
    """Return the operation of a layer whose input channels can be split, or None.

    These are fully connected layers and convolutions of one group.
    """
    operation = layer.operation
    if isinstance(operation, Linear) or (isinstance(operation, Convolution) and operation.groups == 1):
        return operation
    return None


def check_configuration(layer: Layer, configuration: Configuration, device_count: int) -> None:
    """Refuse a configuration that does not fit a layer of a model.

    Args:
        layer: Layer of the model's own graph.
        configuration: Degrees, perhaps with ``in_channel``, and devices.
        device_count: Devices of the cluster.

    Raises:
        ConfigError: It splits a dimension that the layer cannot split, degrees do not divide, or the
            devices are not as many as the parts, not all different or not in the cluster.
    """
    degree = configuration.degrees.get(IN_CHANNEL, 1)
    for divided in (layer,) if degree == 1 else _product_and_sum(layer, configuration, degree):
        space_in(divided, {layer.name: configuration}, device_count, layer.name)


def split_input_channels(graph: ComputationGraph, slices: Mapping[str, int]) -> ComputationGraph:
    """Return the graph of a model in which some layers are replaced by their partial products and the sums of these.

    Args:
        graph: The model's own graph.
        slices: Names of the layers to replace, with the number of slices of their input channels.

    Raises:
        ConfigError: A layer does not sum over its input channels, their number is not divisible, or the name of the
            sum is taken.

    Source:
        Kahira et al., "An Oracle for Guiding Large-Scale Model/Hybrid Parallel Training of Convolutional Neural
        Networks", HPDC 2021, Table 1, row Channel.
    """
    layers: list[Layer] = []
    origin: list[int] = []
    for i, layer in enumerate(graph.layers):
        inputs = tuple(_sum_name(name) if name in slices else name for name in layer.inputs)
        read = replace(layer, inputs=inputs)
        divided = _divided(read, slices[layer.name]) if layer.name in slices else (read,)
        layers += divided
        origin += [i] * len(divided)
    return ComputationGraph(
        graph.name,
        graph.batch,
        layers,
        element_bytes=graph.element_bytes,
        undivided=graph,
        origin=origin,
        tokens_per_sample=graph.given_tokens,
    )


def space_in(layer: Layer, strategy: Mapping[str, Configuration], device_count: int, name: str) -> ConfigSpace:
    """Return the space that holds the one configuration of a layer of a graph with partial sums.

    Args:
        layer: A layer, perhaps a partial product or the sum of one.
        strategy: Configurations of the model's layers.
        device_count: Devices of the cluster.
        name: Name of the model's layer that the layer is or replaces.

    Raises:
        ConfigError: As for ``space_of``.
    """
    given = strategy[name]
    if not isinstance(layer.operation, PartialSum):
        return space_of(layer, _without_one(given), device_count)
    degrees = {dim: degree for dim, degree in given.degrees.items() if dim != IN_CHANNEL}
    degrees["channel"] = given.degrees.get("channel", 1) * given.degrees[IN_CHANNEL]
    return space_of(layer, Configuration(degrees, given.devices), device_count)


def _without_one(configuration: Configuration) -> Configuration:
    """Return a configuration without a degree 1 of ``in_channel``."""
    if configuration.degrees.get(IN_CHANNEL) != 1:
        return configuration
    return Configuration(ordered_degrees(configuration.degrees), configuration.devices)


def _sum_name(name: str) -> str:
    """Return the name of the layer that adds a layer's partial sums."""
    return f"{name} sum"


def _product_and_sum(layer: Layer, configuration: Configuration, degree: int) -> tuple[Layer, Layer]:
    """Return both layers that replace a layer, after checking that their degrees divide its output channels."""
    divided, channel = _divided(layer, degree), configuration.degrees.get("channel", 1)
    size = layer.output.size("channel")
    if channel >= 1 and size % (channel * degree):
        raise ConfigError(
            f"configuration of {layer.name}: in_channel x channel must divide its {size} channels, which are summed "
            f"in as many parts, got {degree} x {channel}"
        )
    return divided


def _divided(layer: Layer, degree: int) -> tuple[Layer, Layer]:
    """Return a layer's partial product over ``degree`` slices of its input channels, and the sum over the slices."""
    where, operation = f"configuration of {layer.name}", reducing_operation(layer)
    if operation is None:
        kind = layer.operation.kind
        groups = f" of {layer.operation.groups} groups" if isinstance(layer.operation, Convolution) else ""
        raise ConfigError(
            f"{where}: in_channel splits convolutions of one group and linear layers only, this is a {kind}{groups}"
        )
    channels = layer.input_shapes[0].size("channel")
    if degree < 1 or channels % degree:
        raise ConfigError(f"{where}: degree of in_channel must divide its {channels} input channels, got {degree}")
    product = PartialProduct(operation=operation, slices=degree)
    partial = Layer(
        layer.name,
        product,
        layer.inputs,
        layer.input_shapes,
        product.output(layer.input_shapes),
        profile_name=f"{layer.name}, in_channel {degree}",
        frozen=layer.frozen,
    )
    total = PartialSum(operation=operation)
    return partial, Layer(
        _sum_name(layer.name),
        total,
        (layer.name,),
        (partial.output,),
        total.output((partial.output,)),
        frozen=layer.frozen,
    )
