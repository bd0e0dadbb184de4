"""The computation graph: layers and the tensors between them."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from hwprofiles import ConfigError
from hwprofiles.compute import Kernels
from planner.graph.shapes import Need, Shape

__all__ = ["LAYER_PHASES", "ComputationGraph", "Edge", "Kept", "Layer", "Operation", "Parameter"]

LAYER_PHASES = ("forward", "activation_gradient", "weight_gradient", "update")
"""The compute phases of a layer in one iteration, in order."""


@dataclass(frozen=True, slots=True)
class Parameter:
    """One trained tensor of a layer."""

    name: str
    shape: tuple[int, ...]
    split: bool = True
    """Whether a split of the layer's channel dimension splits it (else it is replicated)."""

    @property
    def elements(self) -> int:
        """Number of trained numbers."""
        return int(np.prod(self.shape, dtype=np.int64))


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """What parts of a layer hold from their forward to the end of their backward tasks."""

    inputs: bool = False
    """Whether they read their inputs again."""
    output: bool = False
    """Whether they read their output again."""
    elements: NDArray[np.float64] | float = 0.0
    """Numbers of the network's type that they hold beside these, such as what a normalisation has read."""
    index_bytes: NDArray[np.float64] | float = 0.0
    """Bytes of other types, such as the places of maxima."""
    before_output: bool = False
    """Whether the output is made from these, after them."""
    transforms: bool = False
    """Whether they turn the gradient of the output into another one before they compute theirs."""
    passes_on: bool = False
    """Whether the gradients of their inputs are views of the gradient of the output, or of what it was turned into."""


class Operation(Protocol):
    """What a kind of layer must say of itself; one class a kind, frozen and comparable."""

    @property
    def kind(self) -> str:
        """Name of the kind, as files and pages print it."""
        ...

    @property
    def winograd(self) -> bool:
        """Whether libraries compute it with Winograd's algorithm, in fewer multiplications."""
        ...

    @property
    def statistics(self) -> int:
        """Numbers a channel that are summed over the batch, forward and again backward; 0 where it normalises none."""
        ...

    def output(self, inputs: Sequence[Shape]) -> Shape:
        """Shape of the output; raises ``ConfigError`` where the inputs do not fit."""
        ...

    def parallel_dims(self, output: Shape) -> tuple[str, ...]:
        """Output dimensions that a configuration may split (Table 1 of the layer-wise paper)."""
        ...

    def needs(self, slot: int, inputs: Sequence[Shape]) -> tuple[Need, ...]:
        """For each dimension of input ``slot``, what a part of the output needs of it."""
        ...

    def parameters(self, inputs: Sequence[Shape]) -> tuple[Parameter, ...]:
        """Trained tensors."""
        ...

    def kept(self, part: Any) -> Kept:
        """What parts (``planner.operations.base.Part``) hold for their backward tasks."""
        ...

    def kernels(
        self, phase: str, inputs: Sequence[Shape], output: Shape, part: dict[str, NDArray[np.float64]]
    ) -> Kernels:
        """Work of one part in one of ``LAYER_PHASES``.

        Args:
            phase: One of ``LAYER_PHASES``.
            inputs, output: Whole shapes.
            part: For every dimension of the output, the sizes of the parts, shape (C,) each.

        Returns:
            Kernels of shape (C,).
        """
        ...


@dataclass(frozen=True, slots=True)
class Layer:
    """A node of the computation graph, with everything derived from its operation."""

    name: str
    operation: Operation
    inputs: tuple[str, ...]
    """Names of the layers whose outputs it reads, in order; ``input`` is the data itself."""
    input_shapes: tuple[Shape, ...]
    output: Shape
    profile_name: str = ""
    """By which compute profiles know it, where that is not its name: a layer whose parts read slices of its input
    channels is not the layer of that name whose parts read them all."""

    @property
    def measured_name(self) -> str:
        """By which compute profiles know it."""
        return self.profile_name or self.name

    @property
    def parallel_dims(self) -> tuple[str, ...]:
        """Dimensions that a configuration may split."""
        return self.operation.parallel_dims(self.output)

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        """Trained tensors."""
        return self.operation.parameters(self.input_shapes)

    @property
    def parameter_count(self) -> int:
        """Number of trained numbers."""
        return sum(parameter.elements for parameter in self.parameters)

    def kernels(self, phase: str, part: dict[str, NDArray[np.float64]]) -> Kernels:
        """Work of parts of the given sizes; see ``Operation.kernels``."""
        return self.operation.kernels(phase, self.input_shapes, self.output, part)

    def forward_flop(self) -> float:
        """Floating-point operations of the whole layer, forward."""
        whole = {dim: np.array([float(size)]) for dim, size in zip(self.output.dims, self.output.sizes, strict=True)}
        return float(self.kernels("forward", whole).flop[0])


class Edge(NamedTuple):
    """Layer ``consumer`` reads, in its input ``slot``, the output of ``producer`` (layer indices)."""

    producer: int
    consumer: int
    slot: int


class ComputationGraph:
    """Layers in topological order.  The data that enters is no layer: its loader delivers each part.

    Args:
        name: Name and parameters of the model, as on the command line.
        batch: Samples in a mini-batch.
        layers: In topological order, every input named before.
        element_bytes: Size of a number.
        undivided: The model's own graph, where layers of it are replaced by several
            (``planner.parallel.input_channel_split``).
        origin: For every layer the one of ``undivided`` that it is, or is a piece of.
    """

    def __init__(
        self, name: str, batch: int, layers: Sequence[Layer], *, element_bytes: int = 4,
        undivided: "ComputationGraph | None" = None, origin: Sequence[int] = (),
    ) -> None:  # fmt: skip
        self.name = name
        self.batch = batch
        self.layers = tuple(layers)
        self.element_bytes = element_bytes
        self._undivided = undivided
        self.origin = tuple(origin) if undivided else tuple(range(len(self.layers)))
        """For every layer the index in ``undivided`` of the layer that it is, or is a piece of."""
        self.index = {layer.name: i for i, layer in enumerate(self.layers)}
        if len(self.index) != len(self.layers):
            raise ConfigError(f"layers of {name} need different names, {len(self.layers) - len(self.index)} repeat")
        self.edges = tuple(
            Edge(self.index[source], i, slot)
            for i, layer in enumerate(self.layers)
            for slot, source in enumerate(layer.inputs)
            if source != "input"
        )
        for edge in self.edges:
            if edge.producer >= edge.consumer:
                raise ConfigError(f"layer {self.layers[edge.consumer].name!r} reads a layer that comes after it")

    @property
    def undivided(self) -> "ComputationGraph":
        """The model's own graph: this one, unless layers were replaced by several."""
        return self._undivided or self

    def model_layer(self, index: int) -> Layer:
        """The layer of the model that a layer is, or is a piece of."""
        return self.undivided.layers[self.origin[index]]

    @cached_property
    def consumers(self) -> tuple[tuple[Edge, ...], ...]:
        """For every layer the edges that leave it."""
        return self._edges_by([edge.producer for edge in self.edges])

    @cached_property
    def producers(self) -> tuple[tuple[Edge, ...], ...]:
        """For every layer the edges that enter it."""
        return self._edges_by([edge.consumer for edge in self.edges])

    def _edges_by(self, layers: Sequence[int]) -> tuple[tuple[Edge, ...], ...]:
        rows: list[list[Edge]] = [[] for _ in self.layers]
        for edge, layer in zip(self.edges, layers, strict=True):
            rows[layer].append(edge)
        return tuple(tuple(row) for row in rows)

    @cached_property
    def _trained(self) -> tuple[bool, ...]:
        trained: list[bool] = []
        for layer in self.layers:
            below = any(trained[self.index[source]] for source in layer.inputs if source != "input")
            trained.append(below or layer.parameter_count > 0)
        return tuple(trained)

    def has_gradient(self, index: int) -> bool:
        """Whether the gradient of a layer's output is needed: it, or a layer before it, is trained."""
        return self._trained[index]

    def has_phase(self, index: int, phase: str) -> bool:
        """Whether a layer computes in a phase: no activation gradient towards the data, no update untrained."""
        if phase == "forward":
            return True
        if phase == "activation_gradient":
            return any(self.has_gradient(edge.producer) for edge in self.producers[index])
        return self.layers[index].parameter_count > 0

    def with_batch(self, batch: int) -> "ComputationGraph":
        """The same network with another number of samples in a mini-batch."""
        outputs: dict[str, Shape] = {}
        layers = []
        for layer in self.layers:
            shapes = tuple(
                outputs[source] if source != "input" else Shape(shape.dims, (batch, *shape.sizes[1:]))
                for source, shape in zip(layer.inputs, layer.input_shapes, strict=True)
            )
            outputs[layer.name] = layer.operation.output(shapes)
            layers.append(replace(layer, input_shapes=shapes, output=outputs[layer.name]))
        return ComputationGraph(
            self.name, batch, layers, element_bytes=self.element_bytes, origin=self.origin,
            undivided=self._undivided and self._undivided.with_batch(batch),
        )  # fmt: skip

    @property
    def parameter_count(self) -> int:
        """Number of trained numbers."""
        return sum(layer.parameter_count for layer in self.layers)

    @property
    def family(self) -> str:
        """Name of the model without its parameters."""
        return self.name.partition(":")[0]

    @cached_property
    def digest(self) -> str:
        """Hash of everything that a plan depends on: layers, shapes, batch, element size."""
        text = repr((self.batch, self.element_bytes, [(v.name, v.operation, v.inputs, v.output) for v in self.layers]))
        return hashlib.sha256(text.encode()).hexdigest()[:16]
