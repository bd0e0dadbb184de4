"""The reduction dimension: strategies that split the input channels of a layer, as graphs without such splits.

A layer of C input and F output channels, split ``in_channel`` r ways and ``channel`` c ways, is replaced by two.  The
first, a ``PartialProduct`` that keeps its name and its weights, holds for each of r slices of C / r input channels a
sum of its own; part (q, j) computes the q-th of c pieces of F from slice j, so it reads that slice and holds those
weights only.  The second, a ``PartialSum``, adds the r sums and does what follows the product; its channels are split
c r ways on the same devices, part (q, j) on that of part (q, j) of the first, so that each receives r - 1 of the r
pieces that it adds (a reduce-scatter of each piece q) and, backward, sends its gradient to the r - 1 others (an
all-gather).  So transfers, prices, replay and runs need to know no more than graphs.
"""

from collections.abc import Mapping

from hwprofiles import ConfigError
from planner.graph import IN_CHANNEL, ComputationGraph, Layer
from planner.operations import Convolution, Linear, PartialProduct, PartialSum, Reducing
from planner.parallel.configurations import LETTERS, ConfigSpace, Configuration, space_of

__all__ = [
    "check_configuration",
    "ordered_degrees",
    "reducing_operation",
    "slices_of",
    "space_in",
    "split_input_channels",
]


def slices_of(strategy: Mapping[str, Configuration]) -> dict[str, int]:
    """Layers whose input channels a strategy splits, and into how many slices."""
    degrees = {name: configuration.degrees.get(IN_CHANNEL, 1) for name, configuration in strategy.items()}
    return {name: degree for name, degree in degrees.items() if degree != 1}


def ordered_degrees(degrees: Mapping[str, int]) -> dict[str, int]:
    """Degrees in the order in which parts are numbered, without an ``in_channel`` of 1."""
    ordered = {dim: degrees[dim] for dim in LETTERS if dim in degrees and (dim, degrees[dim]) != (IN_CHANNEL, 1)}
    return ordered | {dim: degree for dim, degree in degrees.items() if dim not in LETTERS}


def reducing_operation(layer: Layer) -> Reducing | None:
    """The operation of a layer whose input channels can be split: a product of one group; None for other layers."""
    operation = layer.operation
    if isinstance(operation, Linear) or (isinstance(operation, Convolution) and operation.groups == 1):
        return operation
    return None


def check_configuration(layer: Layer, configuration: Configuration, device_count: int) -> None:
    """Refuse a configuration that does not fit a layer of a model.

    Raises:
        ConfigError: It splits a dimension that the layer cannot split, degrees do not divide, or the
            devices are not as many as the parts, not all different or not in the cluster.
    """
    degree = configuration.degrees.get(IN_CHANNEL, 1)
    for piece in (layer,) if degree == 1 else _pieces(layer, configuration, degree):
        space_in(piece, {layer.name: configuration}, device_count, layer.name)


def split_input_channels(graph: ComputationGraph, slices: Mapping[str, int]) -> ComputationGraph:
    """The graph of a model with the layers named in ``slices`` as partial products and their sums.

    Raises:
        ConfigError: A layer cannot be so, its input channels do not divide, or the name of the sum is taken.
    """
    layers: list[Layer] = []
    origin: list[int] = []
    for i, layer in enumerate(graph.layers):
        inputs = tuple(_sum_name(name) if name in slices else name for name in layer.inputs)
        read = Layer(layer.name, layer.operation, inputs, layer.input_shapes, layer.output)
        pieces = _sliced(read, slices[layer.name]) if layer.name in slices else (read,)
        layers += pieces
        origin += [i] * len(pieces)
    return ComputationGraph(
        graph.name, graph.batch, layers, element_bytes=graph.element_bytes, undivided=graph, origin=origin
    )


def space_in(layer: Layer, strategy: Mapping[str, Configuration], device_count: int, name: str) -> ConfigSpace:
    """The space that holds the one configuration of a layer of an expanded graph.

    Args:
        layer: A layer, perhaps a partial product or the sum of one.
        strategy: Configurations of the model's layers.
        device_count: Devices of the cluster.
        name: Of the model's layer that it is, or is a piece of.

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
    if configuration.degrees.get(IN_CHANNEL) != 1:
        return configuration
    return Configuration(ordered_degrees(configuration.degrees), configuration.devices)


def _sum_name(name: str) -> str:
    return f"{name} sum"


def _pieces(layer: Layer, configuration: Configuration, degree: int) -> tuple[Layer, Layer]:
    pieces, channel = _sliced(layer, degree), configuration.degrees.get("channel", 1)
    size = layer.output.size("channel")
    if channel >= 1 and size % (channel * degree):
        raise ConfigError(
            f"configuration of {layer.name}: in_channel x channel must divide its {size} channels, which are summed "
            f"in as many pieces, got {degree} x {channel}"
        )
    return pieces


def _sliced(layer: Layer, degree: int) -> tuple[Layer, Layer]:
    """A layer as its partial product and the sum of that."""
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
        layer.name, product, layer.inputs, layer.input_shapes, product.output(layer.input_shapes),
        profile_name=f"{layer.name}, in_channel {degree}",
    )  # fmt: skip
    total = PartialSum(operation=operation)
    return partial, Layer(
        _sum_name(layer.name), total, (layer.name,), (partial.output,), total.output((partial.output,))
    )
