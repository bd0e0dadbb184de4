"""The computation graph: layers and the tensors between them."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from groundwork.errors import ConfigError
from groundwork.notebook_tables import html_table
from hwprofiles.compute.kernels import Kernels
from planner.graph.data_sources import is_data
from planner.graph.operation import Operation
from planner.graph.parameters import Parameter, SharedParameter, parameter_maps
from planner.graph.shapes import IntervalMap, Shape

LAYER_PHASES = ("forward", "activation_gradient", "weight_gradient", "update")
"""The compute phases of a layer in one iteration, in order."""


_ELEMENT_SIZES = (2, 4, 8)
"""Bytes of an element of a tensor, of those that networks are trained in."""


@dataclass(frozen=True)
class Layer:
    """A node of the computation graph: an operation with its inputs and all shapes."""

    name: str
    operation: Operation
    inputs: tuple[str, ...]
    """Names of the layers whose outputs the layer reads, in order; ``input``, ``input:2`` and so on are the data."""
    input_shapes: tuple[Shape, ...]
    output: Shape
    splits: tuple[str, ...] = ()
    """Dimensions that a model file allows to be split, fewer than the operation could; empty: all of those."""
    keys: tuple[tuple[str, str], ...] = ()
    """Names of the layer's parameters, each with its key in the imported module's ``state_dict``."""
    aliases: tuple[tuple[str, str], ...] = ()
    """Names of parameters, each with a further key of it in the ``state_dict``, where it has several."""
    frozen: tuple[str, ...] = ()
    """Names of the parameters that the imported module does not train."""

    @property
    def reads_data(self) -> bool:
        """True if some input is training data."""
        return any(map(is_data, self.inputs))

    @property
    def parallel_dims(self) -> tuple[str, ...]:
        """Output dimensions that a configuration may split."""
        dims = self.operation.parallel_dims(self.output)
        return tuple(dim for dim in dims if dim in self.splits) if self.splits else dims

    @property
    def mesh_dims(self) -> tuple[str, ...]:
        """Output dimensions that an axis of a mesh may split: also channels whose parts share statistics of rows."""
        dims = self.parallel_dims
        return (*dims, "channel") if self.operation.row_statistics and "channel" not in (*dims, *self.splits) else dims

    @cached_property
    def summed_size(self) -> int:
        """Size of the index that it sums over and that may be split; 0 where there is none."""
        return self.operation.summed_size(self.input_shapes)

    @cached_property
    def parameters(self) -> tuple[Parameter, ...]:
        """Tensors that the layer computes with and that training changes, unless they are frozen."""
        rows = self.operation.parameters(self.input_shapes)
        return tuple(replace(p, frozen=True) if p.name in self.frozen else p for p in rows) if self.frozen else rows

    @cached_property
    def split(self) -> tuple[str, ...]:
        """Dimensions of the output that split some of its parameters, channels among them."""
        dims = {dim for parameter in self.parameters for dim in parameter.split}
        return tuple(dim for dim in self.output.dims if dim in {"channel", *dims})

    @property
    def splits_of_parameters(self) -> tuple[tuple[str, ...], ...]:
        """Dimensions of the output that split a parameter, different ones of different parameters."""
        return tuple(dict.fromkeys(sorted((parameter.split for parameter in self.parameters), reverse=True)))

    @property
    def parameter_count(self) -> int:
        """Number of elements of its parameters, frozen ones included, without those that another layer trains."""
        return sum(parameter.stored for parameter in self.parameters if not parameter.shared)

    @property
    def trains(self) -> bool:
        """True if the layer updates parameters: not where all of them are frozen or those of other layers."""
        return any(parameter.elements for parameter in self.parameters)

    def kernels(self, phase: str, part: dict[str, NDArray[np.float64]]) -> Kernels:
        """Return the work of parts of the given sizes; see ``Operation.kernels``."""
        kernels = self.operation.kernels(phase, self.input_shapes, self.output, part)
        if phase == "update" and self.frozen and (count := self.parameter_count):
            share = sum(parameter.elements for parameter in self.parameters) / count
            return replace(kernels, flop=kernels.flop * share, memory_bytes=kernels.memory_bytes * share)
        return kernels

    def forward_flop(self) -> float:
        """Return the floating-point operations of the whole layer's forward pass."""
        whole = {dim: np.array([float(size)]) for dim, size in zip(self.output.dims, self.output.sizes, strict=True)}
        return float(self.kernels("forward", whole).flop[0])


class Edge(NamedTuple):
    """A tensor's way from the layer that makes it to one that reads it; layers are given by their indices."""

    producer: int
    """Layer whose output is read."""
    consumer: int
    """Layer that reads it."""
    slot: int
    """Index of the tensor among the consumer's inputs."""


class ComputationGraph:
    """Layers in topological order, and the tensors between them.

    The training data is not a layer: every device loads its parts of it.

    Args:
        name: Name and parameters of the model, as on the command line.
        batch: Samples in a mini-batch.
        layers: Layers in topological order: each reads the data or layers before it.
        element_bytes: Bytes of an element of a tensor: 2, 4 or 8.
        tokens_per_sample: Tokens of a sample, 0 if it has none; None to derive it from the layers that read the data.

    Raises:
        ConfigError: Two layers have one name, one has a name of the data or reads one that comes after it, or elements
            have another size.
    """

    def __init__(
        self,
        name: str,
        batch: int,
        layers: Sequence[Layer],
        *,
        element_bytes: int = 4,
        tokens_per_sample: int | None = None,
    ) -> None:
        self.name = name
        self.batch = batch
        self.layers = tuple(layers)
        if element_bytes not in _ELEMENT_SIZES:
            raise ConfigError(f"element_bytes must be 2, 4 or 8, got {element_bytes!r}")
        self.element_bytes = element_bytes
        self.given_tokens = tokens_per_sample
        """``tokens_per_sample`` as it was given."""
        self.index = {layer.name: i for i, layer in enumerate(self.layers)}
        if len(self.index) != len(self.layers):
            raise ConfigError(f"layers of {name} need different names, {len(self.layers) - len(self.index)} repeat")
        if taken := next(filter(is_data, self.index), None):
            raise ConfigError(f"layers of {name} need names other than those of the data, got {taken!r}")
        self.edges = tuple(
            Edge(self.index[source], i, slot)
            for i, layer in enumerate(self.layers)
            for slot, source in enumerate(layer.inputs)
            if not is_data(source)
        )
        for edge in self.edges:
            if edge.producer >= edge.consumer:
                raise ConfigError(f"layer {self.layers[edge.consumer].name!r} reads a layer that comes after it")

    @property
    def samples_are(self) -> str:
        """Word for samples: ``sequences`` of tokens, ``images`` if data is read by height, else ``samples``."""
        if self.tokens_per_sample:
            return "sequences"
        first = [layer for layer in self.layers if layer.reads_data]
        return "images" if any("height" in layer.parallel_dims for layer in first) else "samples"

    @cached_property
    def data(self) -> dict[str, Shape]:
        """Shapes of the training data that layers read, by their names, in the order in which the model takes them."""
        found = {
            source: shape
            for layer in self.layers
            for source, shape in zip(layer.inputs, layer.input_shapes, strict=True)
            if is_data(source)
        }
        return dict(sorted(found.items(), key=lambda row: int(row[0].partition(":")[2] or 1)))

    @cached_property
    def tokens_per_sample(self) -> int:
        """Tokens of a sample; 0 where samples are no sequences of tokens.

        Unless it was given, it is the length of the data, if each position is read by itself, as by an embedding or a
        product with the channels: windows over it are of signals.
        """
        if self.given_tokens is not None:
            return self.given_tokens
        for layer in self.layers:
            for slot, source in enumerate(layer.inputs):
                shape = layer.input_shapes[slot]
                if is_data(source) and "length" in shape.dims:
                    read = layer.operation.interval_maps(slot, layer.input_shapes)[shape.dims.index("length")]
                    return shape.size("length") if read == IntervalMap(dim="length") else 0
        return 0

    @cached_property
    def zigzag(self) -> int:
        """Parts in whose zigzag order all positions lie, as attention says; 1: as they are."""
        return max((layer.operation.zigzag for layer in self.layers), default=1)

    def __repr__(self) -> str:
        return f"ComputationGraph({self.name}, batch {self.batch}, {len(self.layers)} layers)"

    def _repr_html_(self) -> str:
        """Return the layers as a table, for notebooks."""
        rows = [
            {
                "layer": layer.name,
                "kind": layer.operation.kind,
                "inputs": ", ".join(layer.inputs),
                "output": " x ".join(map(str, layer.output.sizes)),
                "parameters": f"{layer.parameter_count:,}",
            }
            for layer in self.layers
        ]
        return html_table(repr(self), rows)

    @cached_property
    def consumers(self) -> tuple[tuple[Edge, ...], ...]:
        """Edges that leave each layer."""
        return self._edges_by([edge.producer for edge in self.edges])

    @cached_property
    def producers(self) -> tuple[tuple[Edge, ...], ...]:
        """Edges that enter each layer, in the order of its inputs."""
        return self._edges_by([edge.consumer for edge in self.edges])

    @cached_property
    def shared(self) -> dict[Edge, SharedParameter]:
        """Parameters that several layers use, by their way from the layer that trains one to another that borrows it.

        Raises:
            ConfigError: A layer names as trainer of a parameter one that is none.
        """
        return {
            Edge(owner, i, len(layer.inputs) + number): _shared_parameter(self.layers[owner], layer, parameter)
            for i, layer in enumerate(self.layers)
            for number, parameter in enumerate(layer.parameters)
            if parameter.shared
            for owner in (self.index.get(parameter.shared, i),)
        }

    @cached_property
    def outgoing(self) -> tuple[tuple[Edge, ...], ...]:
        """Edges that leave each layer, and behind them the ways of the parameters that it trains for others."""
        return tuple(
            (*edges, *(way for way in self.shared if way.producer == i)) for i, edges in enumerate(self.consumers)
        )

    @cached_property
    def incoming(self) -> tuple[tuple[Edge, ...], ...]:
        """Edges that enter each layer, and behind them the ways of the parameters that it borrows."""
        return tuple(
            (*edges, *(way for way in self.shared if way.consumer == i)) for i, edges in enumerate(self.producers)
        )

    def returns_gradient(self, edge: Edge) -> bool:
        """Return True if a gradient comes back over an edge, or the way of a shared parameter."""
        return not self.shared[edge].frozen if edge in self.shared else self.has_gradient(edge.producer)

    def _edges_by(self, layers: Sequence[int]) -> tuple[tuple[Edge, ...], ...]:
        """Group the edges by the layer given for each, one group for every layer of the graph."""
        rows: list[list[Edge]] = [[] for _ in self.layers]
        for edge, layer in zip(self.edges, layers, strict=True):
            rows[layer].append(edge)
        return tuple(tuple(row) for row in rows)

    @cached_property
    def _trained(self) -> tuple[bool, ...]:
        """Layers that are trained or come after one that is."""
        trained: list[bool] = []
        for layer in self.layers:
            below = any(trained[self.index[source]] for source in layer.inputs if not is_data(source))
            trained.append(below or any(not parameter.frozen for parameter in layer.parameters))
        return tuple(trained)

    def has_gradient(self, index: int) -> bool:
        """Return True if the gradient of a layer's output is needed: the layer, or one before it, is trained."""
        return self._trained[index]

    def has_phase(self, index: int, phase: str) -> bool:
        """Return True if a layer computes in a phase.

        A layer that reads only the data, or only layers that need no gradient, has no activation gradient; a layer
        without parameters, or with frozen ones alone, has neither weight gradient nor update; one that computes with
        parameters that others train has no update.
        """
        if phase == "forward":
            return True
        if phase == "activation_gradient":
            return any(self.has_gradient(edge.producer) for edge in self.producers[index])
        layer = self.layers[index]
        return layer.trains if phase == "update" else any(not parameter.frozen for parameter in layer.parameters)

    def with_batch(self, batch: int) -> "ComputationGraph":
        """Return the same network with another number of samples in a mini-batch."""
        outputs: dict[str, Shape] = {}
        layers = []
        for layer in self.layers:
            shapes = tuple(
                Shape(shape.dims, (batch, *shape.sizes[1:])) if is_data(source) else outputs[source]
                for source, shape in zip(layer.inputs, layer.input_shapes, strict=True)
            )
            outputs[layer.name] = layer.operation.output(shapes)
            layers.append(replace(layer, input_shapes=shapes, output=outputs[layer.name]))
        return ComputationGraph(
            self.name,
            batch,
            layers,
            element_bytes=self.element_bytes,
            tokens_per_sample=self.given_tokens,
        )

    def with_element_bytes(self, element_bytes: int) -> "ComputationGraph":
        """Return the same network with elements of another size; itself where it is the same."""
        if element_bytes == self.element_bytes:
            return self
        return self._changed(self.layers, element_bytes)

    def with_layers(self, layers: Sequence[Layer]) -> "ComputationGraph":
        """Return a network whose layers have other operations, but the same shapes and parameters."""
        return self._changed(layers, self.element_bytes)

    def _changed(self, layers: Sequence[Layer], element_bytes: int) -> "ComputationGraph":
        """Return a network with other layers, or elements of another size."""
        return ComputationGraph(
            self.name,
            self.batch,
            layers,
            element_bytes=element_bytes,
            tokens_per_sample=self.given_tokens,
        )

    @property
    def parameter_count(self) -> int:
        """Number of elements of all parameters, each counted once."""
        return sum(layer.parameter_count for layer in self.layers)

    @property
    def family(self) -> str:
        """Name of the model without its parameters."""
        return self.name.partition(":")[0]

    @cached_property
    def digest(self) -> str:
        """Hash of everything that a plan depends on: layers, shapes, batch, element size."""
        rows = [(v.name, v.operation, v.inputs, v.output) for v in self.layers]
        text = repr((self.batch, self.element_bytes, rows))
        text += repr([v.frozen for v in self.layers]) if any(v.frozen for v in self.layers) else ""
        text += repr([v.splits for v in self.layers]) if any(v.splits for v in self.layers) else ""
        return hashlib.sha256(text.encode()).hexdigest()[:16]


def _shared_parameter(owner: Layer, layer: Layer, parameter: Parameter) -> SharedParameter:
    """Return a parameter that a layer borrows from its owner; a layer that owns it itself is refused."""
    keys = dict(layer.keys), dict(owner.keys)  # in the ``state_dict``, of those that have one
    trained = [
        each
        for each in owner.parameters
        if keys[1].get(each.name, "") == keys[0].get(parameter.name, "")
        and each.shape == parameter.shape
        and not each.shared
    ]
    if owner is layer or not trained:
        raise ConfigError(
            f"parameter {parameter.name} of layer {layer.name} is shared: layer {parameter.shared} must come before it "
            f"and train a parameter of the same key and shape"
        )
    return SharedParameter(
        name=trained[0].name,
        borrowed=parameter.name,
        shape=Shape(tuple(map(str, range(max(len(parameter.shape), 1)))), parameter.shape or (1,)),
        held=parameter_maps(trained[0], owner.output),
        needed=parameter_maps(parameter, layer.output),
        frozen=parameter.frozen or trained[0].frozen,
    )
