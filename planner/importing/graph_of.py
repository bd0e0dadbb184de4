"""Computation graph of an exported program: its operations read one by one, then fused, then ended by losses."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from groundwork.errors import ConfigError
from planner.graph.computation_graph import ComputationGraph, Layer
from planner.graph.data_sources import DATA, data_names
from planner.graph.shapes import Shape
from planner.importing import (  # noqa: F401 - each registers its readers
    read_convolutions,
    read_elementwise,
    read_experts,
    read_products,
    read_responses,
    read_slices,
    read_statistics,
    read_views,
)
from planner.importing.axes import TracedValue
from planner.importing.constants import Fixed, listed
from planner.importing.fusion import Fused, fused_layers
from planner.importing.placement import Tag, layout_of
from planner.importing.read_elementwise import written
from planner.importing.read_experts import PLACE_READERS
from planner.importing.reader import HANDLERS, GraphReader
from planner.importing.sections import in_sections
from planner.operations.convolution import Convolution
from planner.operations.linear import Linear
from planner.operations.loss import Loss
from planner.operations.products import Attention, TensorProduct
from planner.tracing.inputs import one_sample_error
from planner.tracing.trace import Argument, Trace, TraceNode, TraceTensor

_VIEWS_WORDS = """
    select slice view reshape permute transpose squeeze unsqueeze narrow t flatten alias detach contiguous expand
    unflatten to view_as
"""
VIEW_OPERATIONS = frozenset(_VIEWS_WORDS.split())
"""Operations whose results are views, through which their operand is written."""
_LEAST_BATCH = 2
LOSSES = ("softmax", "softmax_per_position", "mean_squared_error", "none")
"""Losses that an import may end a network with."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportedModel:
    """A network and what its import did."""

    graph: ComputationGraph
    inputs: tuple[tuple[str, str], ...]
    """Names of the inputs that some layer reads, each with the program's name of it."""
    fused: tuple[Fused, ...]
    """Layers that took in others."""
    by_sample: tuple[tuple[str, str, str], ...]
    """Layers that are split by samples alone: name, operation, reason."""
    unread: tuple[str, ...]
    """Parameters that no layer uses."""
    dropped: tuple[str, ...]
    """Ends that the program computes and does not return."""

    @property
    def product_flop(self) -> float:
        """Floating-point operations of the forward products: convolutions, matrix products, attention."""
        products = (Convolution, Linear, TensorProduct, Attention)
        return sum(layer.forward_flop() for layer in self.graph.layers if isinstance(layer.operation, products))


def check_loss(loss: str) -> None:
    """Refuse what is no loss that an import may end a network with.

    Raises:
        ConfigError: It is none of ``LOSSES``.
    """
    if loss not in LOSSES:
        raise ConfigError(f"loss must be one of {', '.join(LOSSES)}, got {loss!r}")


def imported_graph(trace: Trace, *, name: str, loss: str = "softmax") -> ImportedModel:
    """Return the computation graph of a program.

    Args:
        trace: The program; all its inputs have the batch as their first axis.
        name: Name of the graph.
        loss: Loss that is added behind each tensor that the program returns: one of ``LOSSES``.

    Raises:
        ConfigError: The program has no data, or an operation mixes samples in a way that has no split.
    """
    check_loss(loss)
    reader = _reader_of(trace)
    try:
        for node in trace.nodes:
            _checked_read(reader, node)
    except ConfigError as error:
        raise one_sample_error(error) if trace.samples else error from None
    layers, ends, dropped = _needed(list(reader.layers.values()), _ends(reader, trace))
    layers, fused = fused_layers(layers, ends)
    layers = in_sections(layers, ends)
    kept = {layer.name for layer in layers}
    layers += _losses(layers, loss)
    owned = {key for layer in layers for _, key in layer.keys}
    unread = tuple(dict.fromkeys(key for key, _ in trace.parameters.values() if key not in owned))
    names = data_names(trace.inputs, {source for layer in layers for source in layer.inputs})
    layers = [_marked(layer, trace, names) for layer in _owned(layers)]
    graph = ComputationGraph(name, reader.batch, layers)
    graph = graph.with_batch(trace.samples) if trace.samples else graph
    by_sample = tuple(row for row in reader.by_sample if row[0] in kept)
    return ImportedModel(
        graph=graph,
        inputs=tuple((name, source.partition(":")[2]) for source, name in names.items()),
        fused=tuple(fused),
        by_sample=by_sample,
        unread=unread,
        dropped=tuple(dropped),
    )


def _marked(layer: Layer, trace: Trace, names: Mapping[str, str]) -> Layer:
    """Return a layer with the names of the data, that says which parameters are frozen and which have further keys."""
    trained = [(p.name, key) for p in layer.parameters if not p.shared and (key := dict(layer.keys).get(p.name))]
    return replace(
        layer,
        inputs=tuple(names.get(source, source) for source in layer.inputs),
        frozen=tuple(name for name, key in layer.keys if key in trace.frozen),
        aliases=tuple((name, other) for name, key in trained for other in trace.aliases.get(key, ())),
    )


def _reader_of(trace: Trace) -> GraphReader:
    """Return the state at the start: data, parameters and constants."""
    batches = {tensor.shape[0] for tensor in trace.inputs.values() if tensor.shape}
    if not batches:
        raise ConfigError("the model must read data with an axis of samples, it has no input of that kind")
    batch = next(iter(trace.inputs.values())).shape[0]
    for what, tensors in (("input", trace.inputs), ("parameter", dict(trace.parameters.values()))):
        for name, tensor in tensors.items():
            if 0 in tensor.shape:
                raise ConfigError(f"{what} {name!r} must have sizes >= 1, got {list(tensor.shape)}")
    if batch < _LEAST_BATCH:
        raise ConfigError(
            f"batch of the inputs must be at least {_LEAST_BATCH}, got {batch}: an axis of one sample cannot be told "
            f"from others of size 1; export the model again with {_LEAST_BATCH}, plans take any batch"
        )
    reader = GraphReader(trace, batch)
    for argument, tensor in trace.inputs.items():
        if tensor.shape[:1] == (batch,):
            reader.values[argument] = _data(reader, argument, tensor)
        else:
            reader.values[argument] = Fixed(tensor.shape)
    for argument, (key, tensor) in trace.parameters.items():
        origin = tuple((key, axis) for axis in range(len(tensor.shape)))
        reader.values[argument] = Fixed(tensor.shape, (key,), origin=origin, is_number=not tensor.shape)
    for argument, tensor in trace.constants.items():
        if argument in trace.values:
            reader.values[argument] = listed(tensor.shape, trace.values[argument], floating=tensor.floating)
            continue
        kind = (("dtype", "float" if tensor.floating else "int64"),)
        reader.values[argument] = Fixed(tensor.shape, buffer=trace.buffers.get(argument, ""), arguments=kind)
    return reader


def _data(reader: GraphReader, argument: str, tensor: TraceTensor) -> TracedValue:
    """Return an input: images have their channels first, sequences last; integers have one channel."""
    sizes, rank = tensor.shape[1:], len(tensor.shape) - 1
    dims: list[str]
    if not tensor.floating:
        dims = [f"position{i}" for i in range(rank)]
    elif rank == 2 and not _is_convolved(reader.trace, argument):
        dims = ["position0", "channel"]
    else:
        dims = ["channel", *(f"position{i}" for i in range(rank - 1))][:rank]
    tags = [[Tag(reader.batch, "sample")], *([Tag(size, dim)] for size, dim in zip(sizes, dims, strict=True))]
    layout = layout_of(tags)
    reader.shapes[f"{DATA}:{argument}"] = layout.shape
    return TracedValue(f"{DATA}:{argument}", layout.axes)


def _is_convolved(trace: Trace, argument: str) -> bool:
    """Return whether a convolution over one position reads an input."""
    readers = [n for n in trace.nodes if any(a == Argument(argument) for a in n.arguments.values())]
    return any(
        node.operation.startswith(("conv1d", "conv_transpose1d", "batch_norm", "avg_pool1d")) for node in readers
    )


def _checked_read(reader: GraphReader, node: TraceNode) -> None:
    """Read one node; one whose arguments contradict the rest of the graph becomes one line."""
    try:
        _read(reader, node)
    except ConfigError:
        raise
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError) as error:
        text = " ".join(str(error).split())[:200]
        raise reader.problem(
            node, f"node {node.name!r} contradicts the rest of the graph: {type(error).__name__} {text}"
        ) from error


def _read(reader: GraphReader, node: TraceNode) -> None:
    """Read one node, with what it makes in the state."""
    reader.nodes[node.name] = node
    in_place = node.operation.endswith("_") and not node.operation.endswith("__")
    plain = replace(node, operation=node.operation.rstrip("_")) if in_place else node
    handler = HANDLERS.get(plain.operation)
    if plain.operation not in PLACE_READERS:
        plain = reader.without_places(plain)
    if not reader.depends(plain):
        taken = node.operation in ("getitem", "results")
        result = HANDLERS[node.operation](reader, node) if taken else reader.fixed(node, plain.operation)
    elif handler is not None:
        result = handler(reader, plain)
    elif not node.results:
        return
    elif plain.pointwise and not node.several:
        result = HANDLERS["add"](reader, plain)
    else:
        result = reader.unknown(plain, "no rule is known for it")
    if node.several and not isinstance(result, list):  # others, such as masks and places, are numbers without a layer
        result = [result, *(Fixed(tensor.shape) for tensor in node.results[1:])]
    reader.values[node.name] = result
    first = next((a for a in node.arguments.values() if isinstance(a, Argument)), None)
    if first is not None and plain.operation in VIEW_OPERATIONS:
        reader.views[node.name] = first.name
    if in_place and first is not None:  # later readers of the operand, and of what it is a view of, see new elements
        reader.values[first.name] = result
        _written(reader, plain, first.name, result)


def _written(reader: GraphReader, node: TraceNode, name: str, result: Any) -> None:
    """Give the tensors that a written one is a view of their new elements."""
    while name in reader.views:
        name = reader.views[name]
        base = reader.values[name]
        if isinstance(result, Fixed):  # what it holds now is not written down
            reader.values[name] = base.unrecorded() if isinstance(base, Fixed) else base
            continue
        if not isinstance(result, TracedValue):
            return
        if isinstance(base, TracedValue) and base.layer == result.layer:
            return
        if not isinstance(base, TracedValue | Fixed) or base.shape[:1] != (reader.batch,):
            return
        result = written(reader, replace(node, operation="copy"), base, result, base.shape)
        reader.values[name] = result


def _ends(reader: GraphReader, trace: Trace) -> list[str]:
    """Return the layers whose outputs the program returns or sums, without those that only others of them read."""
    returned = [reader.values.get(name) for name in trace.outputs]
    values = [v for v in (*returned, *reader.losses) if isinstance(v, TracedValue) and v.layer in reader.layers]
    return list(dict.fromkeys(v.layer for v in values))


def _needed(layers: Sequence[Layer], ends: Sequence[str]) -> tuple[list[Layer], list[str], list[str]]:
    """Return the layers that some end depends on, all ends, and those among them that the program drops.

    What a program computes with parameters and then drops, such as early classifiers, is an end as well: its arithmetic
    is done and its parameters are there to be trained.
    """
    if not ends:
        raise ConfigError("the model must return a tensor that depends on its input, it returns none")
    needed, dropped = set(ends), list[str]()
    for again in (False, True):
        for layer in reversed(layers):
            if again and layer.name not in needed and layer.parameters:
                dropped.append(layer.name)
                needed.add(layer.name)
            if layer.name in needed:
                needed |= set(layer.inputs)
    return [layer for layer in layers if layer.name in needed], [*ends, *dropped], dropped


def _losses(layers: Sequence[Layer], loss: str) -> list[Layer]:
    """Return a loss for every layer that no other reads."""
    if loss == "none":
        return []
    read = {source for layer in layers for source in layer.inputs}
    ends = [layer for layer in layers if layer.name not in read]
    operation = Loss(function=loss)
    taken = {layer.name for layer in layers}
    rows: list[Layer] = []
    for end in ends:
        name = loss if not rows else f"{loss}_{len(rows) + 1}"
        while name in taken:
            name += "_loss"
        taken.add(name)
        shape: Shape = end.output
        rows.append(Layer(name, operation, (end.name,), (shape,), shape))
    return rows


def _owned(layers: Sequence[Layer]) -> list[Layer]:
    """Return layers in which each shared parameter is trained by the first layer that is left of those that use it."""
    owners: dict[str, str] = {}
    result = []
    for layer in layers:
        weights = getattr(layer.operation, "weights", ())
        keys = dict(layer.keys)
        if weights:
            row = []
            for each in weights:
                owner = owners.setdefault(keys.get(each.name, f"{layer.name}.{each.name}"), layer.name)
                row.append(replace(each, shared="" if owner == layer.name else owner))
            operation = replace(layer.operation, weights=tuple(row))  # type: ignore[type-var]
            layer = replace(layer, operation=operation)
        else:
            for key in keys.values():
                owners.setdefault(key, layer.name)
        result.append(layer)
    return result
