"""What each kind of layer says of itself: its shapes, dependencies, parameters, saved tensors and work."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from hwprofiles.compute.fused_kernels import FusedKernels
from hwprofiles.compute.kernels import Kernels
from planner.graph.parameters import Parameter
from planner.graph.shapes import IntervalMap, Shape


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedTensors:
    """Tensors that parts of a layer keep from the forward pass until the end of their backward tasks."""

    inputs: bool = False
    """True if the backward tasks read the inputs."""
    output: bool = False
    """True if the backward tasks read the output."""
    elements: NDArray[np.float64] | float = 0.0
    """Elements of further tensors of the network's type, such as the normalised input of a normalisation."""
    index_bytes: NDArray[np.float64] | float = 0.0
    """Bytes of tensors of other types, such as the indices of maxima."""
    before_output: bool = False
    """True if the further tensors are made before the output, and the output from them."""
    transforms: bool = False
    """True if the backward tasks first make another gradient from the output's, such as that before an activation."""
    passes_on: bool = False
    """True if the inputs' gradients are views of the output's gradient, or of the one made from it."""


class Operation(Protocol):
    """Interface of a kind of layer: its shapes, dependencies, parameters and work; one frozen class a kind."""

    @property
    def kind(self) -> str:
        """Name of the kind, as files and pages print it."""
        ...

    @property
    def winograd(self) -> bool:
        """True if libraries compute the layer with Winograd's algorithm, which multiplies less."""
        ...

    @property
    def reads_rows(self) -> bool:
        """True if the layer reads an input with its channels innermost, and copies one that lies otherwise."""
        ...

    @property
    def zigzag(self) -> int:
        """Parts in whose zigzag order positions lie; 1: as they are."""
        ...

    @property
    def has_experts(self) -> bool:
        """True if each channel has a trained matrix of its own."""
        ...

    @property
    def statistics(self) -> int:
        """Elements a channel that are summed over the batch, forward and again backward; 0 without normalisation."""
        ...

    @property
    def row_statistics(self) -> int:
        """Elements that parts of the channels each make of a sample's position and gather from all; 0: none."""
        ...

    def output(self, inputs: Sequence[Shape]) -> Shape:
        """Return the shape of the output.

        Raises:
            ConfigError: The inputs do not fit.
        """
        ...

    def parallel_dims(self, output: Shape) -> tuple[str, ...]:
        """Return the output dimensions that a configuration may split.

        Source:
            Jia et al., "Exploring Hidden Dimensions in Parallelizing Convolutional Neural Networks", ICML 2018,
            Table 1.
        """
        ...

    @property
    def completes_sums(self) -> bool:
        """True if parts that have slices of one sum complete it themselves, each for a share of its channels."""
        ...

    def summed_size(self, inputs: Sequence[Shape]) -> int:
        """Return the size of the index over which the layer sums, if parts may have slices of it; else 0."""
        ...

    def interval_maps(self, slot: int, inputs: Sequence[Shape]) -> tuple[IntervalMap, ...]:
        """Return, for each dimension of input ``slot``, the map from a part of the output to the interval it reads."""
        ...

    def parameters(self, inputs: Sequence[Shape]) -> tuple[Parameter, ...]:
        """Return the trained tensors."""
        ...

    def saved_tensors(self, part: Any) -> SavedTensors:
        """Return the tensors that parts (``planner.operations.base.Part``) keep for their backward tasks."""
        ...

    def kernels(
        self, phase: str, inputs: Sequence[Shape], output: Shape, part: dict[str, NDArray[np.float64]]
    ) -> Kernels:
        """Return the work of parts of the output in one phase.

        Args:
            phase: One of ``LAYER_PHASES``.
            inputs: Whole shapes of the inputs.
            output: Whole shape of the output.
            part: For every dimension of the output, the sizes of the parts, shape (C,) each.

        Returns:
            Kernels of shape (C,).
        """
        ...

    def fused_kernels(
        self,
        phase: str,
        inputs: Sequence[Shape],
        output: Shape,
        part: dict[str, NDArray[np.float64]],
        element_bytes: int,
    ) -> FusedKernels | None:
        """Return the work of parts as kernels whose times some profiles have measured; None for kinds without any.

        Args:
            phase: One of ``LAYER_PHASES``.
            inputs: Whole shapes of the inputs.
            output: Whole shape of the output.
            part: Sizes of the parts by dimension, shape (C,) each.
            element_bytes: Bytes of one element.
        """
        ...
