"""What all kinds of layers share: phases, parts of an output, and the work that a part is."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from hwprofiles import ConfigError, Floats
from hwprofiles.compute import Kernels
from planner.graph import LAYER_PHASES, Kept, Need, Parameter, Shape

__all__ = ["BATCH_STATISTICS", "ELEMENT_BYTES", "INDEX_BYTES", "OperationBase", "Part", "identity_needs"]


ELEMENT_BYTES = 4
"""Of the numbers whose traffic kernels count."""
BATCH_STATISTICS = 2
"""Numbers a channel that batch normalisation sums: x and x^2 forward, dy and dy x backward."""
ACTIVATION_ACCESSES, ACTIVATION_BACKWARD_ACCESSES = 2, 3
"""Forward reads and writes; backward reads outputs and gradients and writes."""
INDEX_BYTES = 8
"""Of the place of a maximum."""
UPDATE_ACCESSES = 5
"""Momentum SGD reads weight, gradient and velocity, and writes weight and velocity."""
UPDATE_FLOP = 4
"""v = m v + g and w = w - r v: two multiply-adds."""


@dataclass(frozen=True, slots=True)
class Part:
    """Parts of a layer's output, all sizes as arrays of one shape (C,)."""

    inputs: tuple[Shape, ...]
    output: Shape
    sizes: dict[str, Floats]

    @property
    def samples(self) -> Floats:
        """Samples of each part."""
        return self.sizes["sample"]

    @property
    def channels(self) -> Floats:
        """Output channels of each part."""
        return self.sizes["channel"]

    @property
    def columns(self) -> Floats:
        """Samples x positions of each part."""
        columns = self.samples
        for dim in self.output.dims[2:]:
            columns = columns * self.sizes[dim]
        return columns

    @property
    def outputs(self) -> Floats:
        """Output elements of each part."""
        return self.columns * self.channels

    def matrix(
        self,
        *,
        rows: Floats | float,
        columns: Floats | float,
        depth: Floats | float,
        elements: Floats,
        streamed: Floats | float = 0.0,
    ) -> Kernels:
        """Kernels of a matrix product; ``elements`` are the numbers read and written, each operand once, and
        ``streamed`` those of the passes after it."""
        zero = np.zeros_like(self.samples)
        return Kernels(
            flop=2.0 * rows * columns * depth + zero,
            memory_bytes=elements * ELEMENT_BYTES,
            rows=rows + zero,
            columns=columns + zero,
            depth=depth + zero,
            samples=self.samples,
            streamed_bytes=streamed * ELEMENT_BYTES + zero,
        )

    def streaming(self, *, flop: Floats | float, elements: Floats | float) -> Kernels:
        """Kernels that no matrix product describes; ``elements`` are the numbers read and written."""
        zero = np.zeros_like(self.samples)
        return Kernels(
            flop=flop + zero,
            memory_bytes=elements * ELEMENT_BYTES + zero,
            rows=zero,
            columns=zero,
            depth=zero,
            samples=self.samples,
            streamed_bytes=zero,
        )


class OperationBase(ABC):
    """The parts of ``planner.graph.computation_graph.Operation`` that most kinds have in common.

    A kind says its forward and gradient work in ``_forward``, ``_activation_gradient`` and
    ``_weight_gradient``.  Memory traffic counts 4-byte elements, each operand once: what a kernel reads,
    and what it writes.  The activation of a convolution or a sum is a pass of its own, as in the frameworks
    whose published rates the profiles are checked with; the few flops of an epilogue are left out.
    """

    __slots__ = ()

    @property
    def winograd(self) -> bool:
        """Not a 3 x 3 convolution, unless the kind says otherwise."""
        return False

    @property
    def statistics(self) -> int:
        """It does not normalise over the batch, unless the kind says otherwise."""
        return 0

    def parallel_dims(self, output: Shape) -> tuple[str, ...]:
        """All dimensions of the output (Table 1 of the layer-wise paper)."""
        return output.dims

    def needs(self, slot: int, inputs: Sequence[Shape]) -> tuple[Need, ...]:
        """Each part needs the same part of its inputs."""
        return identity_needs(inputs[slot])

    def parameters(self, inputs: Sequence[Shape]) -> tuple[Parameter, ...]:
        """None, unless the kind says otherwise."""
        return ()

    def kept(self, part: Part) -> Kept:
        """Nothing, unless the kind says otherwise."""
        return Kept()

    def kernels(self, phase: str, inputs: Sequence[Shape], output: Shape, part: dict[str, Floats]) -> Kernels:
        """Work of parts of the given sizes, shape (C,), in one of ``LAYER_PHASES``.

        Raises:
            ConfigError: ``phase`` is none of ``LAYER_PHASES``.
        """
        work = Part(tuple(inputs), output, part)
        if phase == "forward":
            return self._forward(work)
        if phase == "activation_gradient":
            return self._activation_gradient(work)
        if phase == "weight_gradient":
            return self._weight_gradient(work)
        if phase == "update":
            return self._update(work)
        raise ConfigError(f"phase must be one of {', '.join(LAYER_PHASES)}, got {phase!r}")

    @abstractmethod
    def _forward(self, part: Part) -> Kernels:
        """Work of the forward pass."""

    @abstractmethod
    def _activation_gradient(self, part: Part) -> Kernels:
        """Work of the gradient of the inputs."""

    def _weight_gradient(self, part: Part) -> Kernels:
        return part.streaming(flop=0.0, elements=0.0)

    def _update(self, part: Part) -> Kernels:
        """SGD with momentum on the parameters that the part holds."""
        share = part.channels / part.output.size("channel")
        held: Floats | float = 0.0
        for parameter in self.parameters(part.inputs):
            held = held + parameter.elements * (share if parameter.split else 1.0)
        return part.streaming(flop=UPDATE_FLOP * held, elements=UPDATE_ACCESSES * held)

    def _read(self, part: Part, slot: int = 0) -> Floats:
        """Elements of input ``slot`` that a part needs; at the borders padding counts too."""
        elements = np.ones_like(part.samples)
        shape = part.inputs[slot]
        for need, size in zip(self.needs(slot, part.inputs), shape.sizes, strict=True):
            elements = elements * (size if need.dim is None else _extent(need, part.sizes[need.dim], size))
        return elements


def identity_needs(shape: Shape) -> tuple[Need, ...]:
    """Each part needs the same part of the input."""
    return tuple(Need(dim=dim) for dim in shape.dims)


def _extent(need: Need, size: Floats, input_size: int) -> Floats:
    """Indices from the first to the last that ``size`` output indices need, away from the borders."""
    if need.kernel == need.stride == need.group_out == need.group_in == 1:
        return size
    steps = size if need.group_out == need.group_in == 1 else np.ceil(size / need.group_out) * need.group_in
    return np.minimum(input_size, (steps - 1) * need.stride + need.dilation * (need.kernel - 1) + 1)
