"""Last layer of a network: the loss of each sample."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from groundwork.array_types import Bools
from groundwork.errors import ConfigError
from hwprofiles.compute.kernels import Kernels
from planner.graph.operation import SavedTensors
from planner.graph.shapes import IntervalMap, Shape
from planner.operations.base import OperationBase, Part
from planner.operations.checks import single

FLOP_PER_ELEMENT = {"softmax": 5, "softmax_per_position": 5, "mean_squared_error": 3}
"""Operations on each element: maximum, difference, exponential, sum, quotient; difference, square, sum."""
LOSS_CALLS = ("", "cross_entropy", "vocabulary_parallel")
"""How software computes the cross-entropy of positions: by one kernel, or in float32 by calls of PyTorch, those of its
own function or those of one for a vocabulary that may be divided over devices."""
SOFTMAX_STATISTICS = 2
"""Statistics of a part of a softmax: its largest value, and the sum of exponentials of what values are less than it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Loss(OperationBase):
    """Softmax with cross-entropy, or the mean squared error; it is split by samples only.

    The softmax of a sample runs over all its channels and positions.  That of each position, whose labels are one a
    position, as those of language models are, may be split by positions too and, on a mesh, by channels: each part
    then gathers the largest value and the sum of exponentials that every other part has of each position.

    Its output represents the probabilities or errors that the gradient starts from.
    Traffic: inputs and outputs once, forward and backward; the labels are small.

    Source:
        Jia et al., "Exploring Hidden Dimensions in Parallelizing Convolutional Neural Networks", ICML 2018, Table 1.
        Shoeybi et al., "Megatron-LM", 2019, Sec. 3: the loss of a vocabulary that is split over devices.
    """

    function: str = "softmax"
    """``softmax``, ``softmax_per_position`` or ``mean_squared_error``."""
    calls: str = field(default="", repr=False)
    """One of ``LOSS_CALLS``, of a loss whose positions have labels."""

    def __post_init__(self) -> None:
        if self.function not in FLOP_PER_ELEMENT:
            raise ConfigError(f"loss.function must be one of {', '.join(FLOP_PER_ELEMENT)}, got {self.function!r}")

    @property
    def kind(self) -> str:
        """Name of the kind: that of the function."""
        return self.function

    @property
    def reads_rows(self) -> bool:
        """True if each position has a label: a softmax runs over its channels."""
        return self.function == "softmax_per_position"

    @property
    def row_statistics(self) -> int:
        """Elements that parts of the channels gather for each position that has a label."""
        return SOFTMAX_STATISTICS if self.reads_rows else 0

    def by_own_calls(self, part: Part) -> Bools:
        """Return whether PyTorch's own function computes each part, shape (C,): not where the vocabulary is divided."""
        whole = part.channels >= part.output.size("channel")
        return np.asarray(whole & (self.calls == LOSS_CALLS[1]))

    def output(self, inputs: Sequence[Shape]) -> Shape:
        """Return the shape of the input."""
        return single(self.function, inputs)

    def parallel_dims(self, output: Shape) -> tuple[str, ...]:
        """Return the samples, and positions where each has a label: sums run over all other dimensions."""
        return tuple(dim for dim in output.dims if dim == "sample" or (dim != "channel" and self.reads_rows))

    def interval_maps(self, slot: int, inputs: Sequence[Shape]) -> tuple[IntervalMap, ...]:
        """Return the part's own elements; all of a sample where its positions have no labels of their own."""
        return tuple(IntervalMap(dim=dim if dim == "sample" or self.reads_rows else None) for dim in inputs[0].dims)

    def saved_tensors(self, part: Part) -> SavedTensors:
        """Return the output, from which the gradient starts, and targets of its size; labels are small.

        Parts of the channels also keep the logarithm of each row's sum.
        """
        if self.function == "mean_squared_error":
            return SavedTensors(output=True, elements=part.outputs)
        divided = part.channels < part.output.size("channel")
        return SavedTensors(output=True, elements=np.where(divided, part.columns, 0.0) if self.reads_rows else 0.0)

    def _forward(self, part: Part) -> Kernels:
        return part.streaming(flop=FLOP_PER_ELEMENT[self.function] * part.outputs, elements=2 * part.outputs)

    def _activation_gradient(self, part: Part) -> Kernels:
        return part.streaming(flop=part.outputs, elements=2 * part.outputs)
