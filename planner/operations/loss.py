"""Last layer of a network: the loss of each sample."""

from collections.abc import Sequence
from dataclasses import dataclass

from hwprofiles import ConfigError
from hwprofiles.compute import Kernels
from planner.graph import IntervalMap, SavedTensors, Shape
from planner.operations.base import OperationBase, Part
from planner.operations.checks import single

__all__ = ["Loss"]

FLOP_PER_ELEMENT = {"softmax": 5, "mean_squared_error": 3}
"""Operations on each element: maximum, difference, exponential, sum, quotient; difference, square, sum."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Loss(OperationBase):
    """Softmax with cross-entropy, or the mean squared error; it is split by samples only.

    Its output represents the probabilities or errors that the gradient starts from.
    Traffic: inputs and outputs once, forward and backward; the labels are small.

    Source:
        Jia et al., "Exploring Hidden Dimensions in Parallelizing Convolutional Neural Networks", ICML 2018, Table 1.
    """

    function: str = "softmax"
    """``softmax`` or ``mean_squared_error``."""

    def __post_init__(self) -> None:
        if self.function not in FLOP_PER_ELEMENT:
            raise ConfigError(f"loss.function must be one of {', '.join(FLOP_PER_ELEMENT)}, got {self.function!r}")

    @property
    def kind(self) -> str:
        """Name of the kind: that of the function."""
        return self.function

    def output(self, inputs: Sequence[Shape]) -> Shape:
        """Return the shape of the input."""
        return single(self.function, inputs)

    def parallel_dims(self, output: Shape) -> tuple[str, ...]:
        """Return the samples only: the sum of a sample runs over all its other dimensions."""
        return ("sample",)

    def interval_maps(self, slot: int, inputs: Sequence[Shape]) -> tuple[IntervalMap, ...]:
        """Return all channels and positions of a part's samples."""
        return tuple(IntervalMap(dim="sample" if dim == "sample" else None) for dim in inputs[0].dims)

    def saved_tensors(self, part: Part) -> SavedTensors:
        """Return the output, from which the gradient starts."""
        return SavedTensors(output=True)

    def _forward(self, part: Part) -> Kernels:
        return part.streaming(flop=FLOP_PER_ELEMENT[self.function] * part.outputs, elements=2 * part.outputs)

    def _activation_gradient(self, part: Part) -> Kernels:
        return part.streaming(flop=part.outputs, elements=2 * part.outputs)
