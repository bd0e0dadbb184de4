"""Zigzag order of positions: parts of the queries that have equal work under a causal mask.

Of N parts, part i holds chunks i and 2N - 1 - i of 2N: what queries of the first read less, those of the second read
more.  A network of eight positions in two parts::

    part 0     positions 0 1   6 7     keys that they read: 1 + 2 + 7 + 8 = 18
    part 1     positions 2 3   4 5                          3 + 4 + 5 + 6 = 18

All tensors have their positions in this order, from the data on, so that parts stay runs of indices and no message
changes.  Layers that compute each position by itself see no difference; constants of positions are read in the same
order, and attention masks keys by the positions that they truly have.

Source:
    Grattafiori et al., "The Llama 3 Herd of Models", 2024, Sec. 3.3.2: 2 x CP chunks, of which rank i has i and
    2 x CP - 1 - i.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from types import MappingProxyType

import numpy as np

from groundwork.array_types import Ints
from groundwork.errors import ConfigError
from planner.graph.computation_graph import ComputationGraph, Layer
from planner.graph.data_sources import is_data
from planner.graph.shapes import IntervalMap
from planner.operations.computation import parse_axis
from planner.operations.products import Attention

_CONSTANTS = ("pointwise", "contract", "norm", "embedding")
_FORMS = (*_CONSTANTS, "dropout", "attention", "take", "join", "along", "reduce")
"""Steps that may stand in a network whose positions have another order; of these, those that may read constants."""
_DATA = "length"
"""Dimension of the positions of data."""


@dataclass(frozen=True, slots=True, eq=False)
class PositionOrder:
    """Order of the positions of a tensor."""

    dim: int
    """Dimension of the positions."""
    places: Ints
    """Positions by their index in that dimension."""


@lru_cache(maxsize=32)
def zigzag_order(size: int, parts: int) -> Ints:
    """Return the positions by their index in the zigzag order of so many parts; of one part as they are."""
    chunks = np.arange(size).reshape(2 * parts, -1)
    order = np.concatenate([chunks[[part, -1 - part]].ravel() for part in range(parts)])
    order.setflags(write=False)
    return order


def in_zigzag(graph: ComputationGraph, parts: int) -> ComputationGraph:
    """Return a network with its positions in the zigzag order of so many parts; itself for one part.

    Raises:
        ConfigError: It has no causal attention, twice the parts do not divide its positions, or a layer would compute
            something else in another order.
    """
    if parts == 1 or graph.zigzag == parts:
        return graph
    if not any(isinstance(each.operation, Attention) and each.operation.causal for each in graph.layers):
        raise ConfigError(f"zigzag must stand beside context=N of a network with causal attention, not {graph.name}")
    for layer in graph.layers:
        dim = _position_dims(graph)[layer.name]
        if dim and (size := layer.output.size(dim)) % (2 * parts):
            nearest = max(round(size / (2 * parts)), 1) * 2 * parts
            raise ConfigError(
                f"zigzag must have positions that 2 x context = {2 * parts} divides, got {size} of {graph.name}; the "
                f"nearest are {nearest}"
            )
    return graph.with_layers(
        [
            replace(each, operation=replace(each.operation, zigzag=parts))
            if isinstance(each.operation, Attention)
            else each
            for each in graph.layers
        ]
    )


def position_order(graph: ComputationGraph, layer: Layer) -> PositionOrder | None:
    """Return the order of the positions of a layer's output; None where they are as they are, or there are none."""
    dim = _position_dims(graph)[layer.name] if graph.zigzag > 1 else ""
    if not dim:
        return None
    return PositionOrder(layer.output.dims.index(dim), zigzag_order(layer.output.size(dim), graph.zigzag))


@lru_cache(maxsize=32)
def _position_dims(graph: ComputationGraph) -> Mapping[str, str]:
    """Return the dimension of the positions of each layer's output; empty where it has none.

    Raises:
        ConfigError: A layer neither computes each position by itself, nor is attention without a mask of its own.
    """
    dims = {source: _DATA if _DATA in shape.dims else "" for source, shape in graph.data.items()}
    for layer in graph.layers:
        found = _followed(layer, [dims[source] for source in layer.inputs])
        if found is None:
            raise ConfigError(
                f"zigzag must have layers that compute each position by itself, or are attention without a mask of "
                f"their own; layer {layer.name} of {graph.name} ({layer.operation.kind}) is neither"
            )
        dims[layer.name] = found
    return MappingProxyType({name: dim for name, dim in dims.items() if not is_data(name)})


def _followed(layer: Layer, inputs: list[str]) -> str | None:
    """Return the dimension of a layer's positions by those of its inputs; None where it needs them in their order."""
    found = set[str | None]()
    for slot, (dim, shape) in enumerate(zip(inputs, layer.input_shapes, strict=True)):
        if not dim:
            continue
        read = layer.operation.interval_maps(slot, layer.input_shapes)[shape.dims.index(dim)]
        if not (isinstance(layer.operation, Attention) and read == IntervalMap(dim=None)):
            same = read == IntervalMap(dim=read.dim) and read.dim in layer.output.dims[2:]
            found.add(read.dim if same and layer.output.size(str(read.dim)) == shape.size(dim) else None)
    if not any(inputs):
        return ""
    own = found.pop() if len(found) == 1 else None
    return own if own and _is_ordered(layer, inputs, own) else None


def _is_ordered(layer: Layer, inputs: list[str], dim: str) -> bool:
    """Return whether no step of a layer divides its positions, and all read only constants whose order is known."""
    for step in getattr(layer.operation, "computes", ()):
        axes = [
            (axis, dim if each.input is None else inputs[each.input]) for each in step.operands for axis in each.axes
        ]
        axes += [(axis, dim) for axis in step.out]
        divided = any(f.size and f.dim == own for axis, own in axes for f in parse_axis(axis))
        constants = [each for each in step.operands if each.constant is not None]
        if divided or step.form not in (_CONSTANTS if constants else _FORMS):
            return False
        if step.form == "contract" and constants:  # a matrix for each position
            labels = dict(zip(step.argument("out"), step.out, strict=True))
            second: tuple[str, ...] = step.argument("second")
            if any(f.dim == dim for label in second for f in parse_axis(labels.get(label, "one"))):
                return False
    return True
