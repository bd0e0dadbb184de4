"""The computation graph: layers and the tensors between them."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from hwprofiles.errors import ConfigError
from hwprofiles.kernels import Kernels
from planner.shapes import Need, Shape

__all__ = ["PHASES", "ComputationGraph", "Edge", "Layer", "Operation", "Parameter"]

PHASES = ("forward", "activation_gradient", "weight_gradient", "update")
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


class Operation(Protocol):
    """What a kind of layer must say of itself; one class a kind, frozen and comparable."""

    @property
    def kind(self) -> str:
        """Name of the kind, as files and pages print it."""
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

    def kernels(
        self, phase: str, inputs: Sequence[Shape], output: Shape, part: dict[str, NDArray[np.float64]]
    ) -> Kernels:
        """Work of one part in one of ``PHASES``.

        Args:
            phase: One of ``PHASES``.
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


@dataclass(frozen=True, slots=True)
class Edge:
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
    """

    def __init__(self, name: str, batch: int, layers: Sequence[Layer], *, element_bytes: int = 4) -> None:
        self.name = name
        self.batch = batch
        self.layers = tuple(layers)
        self.element_bytes = element_bytes
        self.index = {layer.name: i for i, layer in enumerate(self.layers)}
        if len(self.index) != len(self.layers):
            raise ConfigError(f"layers of {name} must have different names, {len(self.layers) - len(self.index)} repeat")
        self.edges = tuple(
            Edge(self.index[source], i, slot)
            for i, layer in enumerate(self.layers)
            for slot, source in enumerate(layer.inputs)
            if source != "input"
        )
        for edge in self.edges:
            if edge.producer >= edge.consumer:
                raise ConfigError(f"layer {self.layers[edge.consumer].name!r} reads a layer that comes after it")

    @cached_property
    def consumers(self) -> tuple[tuple[Edge, ...], ...]:
        """For every layer the edges that leave it."""
        return tuple(tuple(edge for edge in self.edges if edge.producer == i) for i in range(len(self.layers)))

    @cached_property
    def producers(self) -> tuple[tuple[Edge, ...], ...]:
        """For every layer the edges that enter it."""
        return tuple(tuple(edge for edge in self.edges if edge.consumer == i) for i in range(len(self.layers)))

    @property
    def parameter_count(self) -> int:
        """Number of trained numbers."""
        return sum(layer.parameter_count for layer in self.layers)

    @cached_property
    def digest(self) -> str:
        """Hash of everything that a plan depends on: layers, shapes, batch, element size."""
        text = repr((self.batch, self.element_bytes, [(v.name, v.operation, v.inputs, v.output) for v in self.layers]))
        return hashlib.sha256(text.encode()).hexdigest()[:16]
