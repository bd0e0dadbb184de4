"""Base of all kinds of layers: parts of an output, and the work that a part takes in each phase."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from groundwork.array_types import Floats
from groundwork.errors import ConfigError
from hwprofiles.compute.fused_kernels import FusedKernels
from hwprofiles.compute.kernels import ConvolutionWindow, Kernels
from planner.graph.computation_graph import LAYER_PHASES
from planner.graph.operation import SavedTensors
from planner.graph.parameters import Parameter
from planner.graph.shapes import SUMMED, IntervalMap, Shape, interval_map

ELEMENT_BYTES = 4
"""Size of the elements whose traffic kernels count."""
BATCH_STATISTICS = 2
"""Elements a channel that batch normalisation sums over the batch: x and x^2 forward, dy and dy x backward."""
ACTIVATION_ACCESSES, ACTIVATION_BACKWARD_ACCESSES = 2, 3
"""Accesses of each element by an activation: forward reads and writes; backward reads outputs and gradients and writes.
"""
INDEX_BYTES = 8
"""Size of the index of a maximum."""
UPDATE_ACCESSES = 5
"""Accesses of each parameter by SGD with momentum: reads weight, gradient and velocity, writes weight and velocity."""
UPDATE_FLOP = 4
"""Operations of SGD with momentum on each parameter: v = m v + g and w = w - r v, two multiply-adds."""


@dataclass(frozen=True, slots=True)
class Part:
    """C parts of a layer's output, such as the largest part of each of C configurations."""

    inputs: tuple[Shape, ...]
    """Whole shapes of the inputs."""
    output: Shape
    """Whole shape of the output."""
    sizes: dict[str, Floats]
    """Size of each part in each dimension of the output, shape (C,) each; ``SUMMED``: slices of the summed index.  Of a
    layer that completes its sums these are sizes of the product, of which each part makes a share into the output."""

    @property
    def samples(self) -> Floats:
        """Samples of each part."""
        return self.sizes["sample"]

    @property
    def channels(self) -> Floats:
        """Output channels of each part."""
        return self.sizes["channel"]

    @property
    def slices(self) -> Floats | float:
        """Slices of the summed index, of which each part has one."""
        return self.sizes.get(SUMMED, 1.0)

    @property
    def columns(self) -> Floats:
        """Samples times positions of each part: columns of the matrix product of a convolution."""
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
        window: ConvolutionWindow | None = None,
    ) -> Kernels:
        """Return the kernels of a matrix product.

        Args:
            rows: Rows of the result.
            columns: Columns of the result.
            depth: Length of the sums.
            elements: Elements that the product reads and writes, each operand once.
            streamed: Elements that the passes after the product read and write.
            window: Geometry of a convolution.

        Returns:
            Kernels of shape (C,).
        """
        zero = np.zeros_like(self.samples)
        return Kernels(
            flop=2.0 * rows * columns * depth + zero,
            memory_bytes=elements * ELEMENT_BYTES,
            rows=rows + zero,
            columns=columns + zero,
            depth=depth + zero,
            samples=self.samples,
            streamed_bytes=streamed * ELEMENT_BYTES + zero,
            window=window,
        )

    def streaming(self, *, flop: Floats | float, elements: Floats | float) -> Kernels:
        """Return kernels without a matrix product.

        Args:
            flop: Floating-point operations.
            elements: Elements read and written.

        Returns:
            Kernels of shape (C,).
        """
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
    """Behaviour of ``planner.graph.computation_graph.Operation`` that most kinds have in common.

    A kind defines its work in ``_forward``, ``_activation_gradient`` and ``_weight_gradient``.  Memory traffic counts
    elements of 4 bytes, each operand once: those that a kernel reads and those that it writes.  The activation of a
    convolution or a sum is a pass of its own, as in the frameworks with whose published rates the profiles are checked;
    the few operations of an epilogue are left out.
    """

    __slots__ = ()

    @property
    def winograd(self) -> bool:
        """True if libraries compute the layer with Winograd's algorithm; False unless a kind overrides it."""
        return False

    @property
    def reads_rows(self) -> bool:
        """True if it reads an input with its channels innermost; False unless a kind overrides it."""
        return False

    @property
    def zigzag(self) -> int:
        """Parts in whose zigzag order positions lie; 1 unless a kind overrides it."""
        return 1

    @property
    def has_experts(self) -> bool:
        """True if each channel has a trained matrix of its own; False unless a kind overrides it."""
        return False

    @property
    def statistics(self) -> int:
        """Elements a channel that are summed over the batch; 0 unless a kind overrides it."""
        return 0

    @property
    def row_statistics(self) -> int:
        """Elements that parts of the channels gather for each position of a sample; 0 unless a kind overrides it."""
        return 0

    def parallel_dims(self, output: Shape) -> tuple[str, ...]:
        """Return all dimensions of the output.

        Source:
            Jia et al., "Exploring Hidden Dimensions in Parallelizing Convolutional Neural Networks", ICML 2018,
            Table 1.
        """
        return output.dims

    @property
    def completes_sums(self) -> bool:
        """False, unless a kind overrides it: readers of partial sums add them."""
        return False

    def summed_size(self, inputs: Sequence[Shape]) -> int:
        """Return 0, unless a kind overrides it: no index that is summed over can be split."""
        return 0

    def interval_maps(self, slot: int, inputs: Sequence[Shape]) -> tuple[IntervalMap, ...]:
        """Return the same interval of the input as of the output, in every dimension."""
        return identity_maps(inputs[slot])

    def parameters(self, inputs: Sequence[Shape]) -> tuple[Parameter, ...]:
        """Return no parameters, unless a kind overrides it."""
        return ()

    def fused_kernels(
        self, phase: str, inputs: Sequence[Shape], output: Shape, part: dict[str, Floats], element_bytes: int
    ) -> FusedKernels | None:
        """Return None: profiles have measured no fused kernels of the kind."""
        return None

    def saved_tensors(self, part: Part) -> SavedTensors:
        """Return no tensors, unless a kind overrides it."""
        return SavedTensors()

    def kernels(self, phase: str, inputs: Sequence[Shape], output: Shape, part: dict[str, Floats]) -> Kernels:
        """Return the work of parts of the output in one phase.

        Args:
            phase: One of ``LAYER_PHASES``.
            inputs: Whole shapes of the inputs.
            output: Whole shape of the output.
            part: For every dimension of the output, the sizes of the parts, shape (C,) each.

        Returns:
            Kernels of shape (C,).

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
        """Return the work of the forward pass."""

    @abstractmethod
    def _activation_gradient(self, part: Part) -> Kernels:
        """Return the work of the gradient of the inputs."""

    def _weight_gradient(self, part: Part) -> Kernels:
        """Return the work of the gradients of the parameters: none, unless a kind overrides it."""
        return part.streaming(flop=0.0, elements=0.0)

    def _update(self, part: Part) -> Kernels:
        """Return the work of SGD with momentum on the parameters that each part holds."""
        held = trained_elements(self.parameters(part.inputs), part, completes_sums=self.completes_sums)
        return part.streaming(flop=UPDATE_FLOP * held, elements=UPDATE_ACCESSES * held)

    def all_inputs(self, part: Part) -> Floats:
        """Return the elements of all inputs that each part reads."""
        return sum((self.read_elements(part, slot) for slot in range(len(part.inputs))), 0.0 * part.samples)

    def held_elements(self, part: Part) -> Floats:
        """Return the elements of the parameters that each part holds, shared ones included."""
        held = 0.0 * part.samples
        for parameter in self.parameters(part.inputs):
            share, slices = parameter_share(parameter, part)
            held = held + parameter.stored * share / slices
        return held

    def read_elements(self, part: Part, slot: int = 0) -> Floats:
        """Return the elements of input ``slot`` that each part needs; padding at the borders counts too."""
        elements = np.ones_like(part.samples)
        shape = part.inputs[slot]
        for read, size in zip(self.interval_maps(slot, part.inputs), shape.sizes, strict=True):
            if read.dim is None or read.dim == SUMMED:
                whole = size if read.index is None else 1
                elements = elements * (whole if read.dim is None else np.ceil(size / part.slices))
            else:
                elements = elements * _extent(read, part.sizes[read.dim], size)
        return elements


def trained_elements(parameters: Sequence[Parameter], part: Part, *, completes_sums: bool) -> Floats:
    """Return the elements that each part trains of some parameters of a layer, shape (C,).

    Args:
        parameters: The parameters.
        part: Parts of the layer's output.
        completes_sums: As of the layer's operation: every parameter is divided by slices of a sum.
    """
    held = np.zeros_like(part.samples)
    for parameter in parameters:
        share, slices = parameter_share(parameter, part)
        held = held + parameter.elements * share / (part.slices if completes_sums else slices)
    return held


def parameter_share(parameter: Parameter, part: Part) -> tuple[Floats | float, Floats | float]:
    """Return each part's share of a parameter by dimensions of the output, and slices of it by the summed index."""
    share: Floats | float = 1.0
    for dim in parameter.split:
        share = share * (part.sizes[dim] / part.output.size(dim))
    return share, part.slices if SUMMED in parameter.indices else 1.0


def identity_maps(shape: Shape) -> tuple[IntervalMap, ...]:
    """Return the maps of parts that read the same interval of the input as they compute of the output."""
    return tuple(interval_map(dim=dim) for dim in shape.dims)


def _extent(read: IntervalMap, size: Floats, input_size: int) -> Floats:
    """Return the length of the input interval that ``size`` output indices need, away from the borders."""
    if read.kernel == read.stride == read.group_out == read.group_in == read.spread == 1:
        return np.asarray(size if not read.rotation else np.minimum(size, input_size))
    reach = read.dilation * (read.kernel - 1)
    if read.spread > 1:
        return np.asarray(np.minimum(input_size, np.ceil((size + reach) / read.spread)))
    if read.proportional:
        steps = np.ceil(size * (read.group_in / read.group_out))
    else:
        steps = size if read.group_out == read.group_in == 1 else np.ceil(size / read.group_out) * read.group_in
    return np.asarray(np.minimum(input_size, (steps - 1) * read.stride + reach + 1))
