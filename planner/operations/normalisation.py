"""Normalisation layers: over the batch, and over neighbouring channels."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from groundwork.errors import ConfigError
from hwprofiles.compute.kernels import Kernels
from planner.graph.operation import SavedTensors
from planner.graph.parameters import Parameter
from planner.graph.shapes import IntervalMap, Shape
from planner.operations.base import BATCH_STATISTICS, OperationBase, Part, identity_maps
from planner.operations.checks import check_activation, check_int, check_norm, single

BATCH_NORM_FLOP = 5
"""Operations on each element: two for the sums, one each for the difference, the scale and the shift."""
POWER_FLOP = 4
"""Operations on each element of local response normalisation: scale, shift, power, product."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchNorm(OperationBase):
    """Batch normalisation with an optional activation, as a layer of its own.

    Traffic: forward, one pass reads the inputs for the statistics and one normalises them (3 accesses);
    backward, the weight gradient's pass reads inputs and gradients for the sums (2) and the activation
    gradient's reads both and writes (3).
    """

    kind: ClassVar[str] = "batch_norm"
    activation: str | None = None
    """Name of the activation, or None."""
    eps: float = field(default=1e-5, repr=False)
    """Constant that is added to the variance."""
    momentum: float = field(default=0.1, repr=False)
    """Weight of a batch's statistics in the running statistics."""
    affine: bool = field(default=True, repr=False)
    """True if the result is scaled and shifted by trained parameters."""

    def __post_init__(self) -> None:
        check_activation("batch_norm.activation", self.activation)
        check_norm("batch_norm.", self.eps, self.momentum)

    @property
    def statistics(self) -> int:
        """Elements a channel that are summed over the batch."""
        return BATCH_STATISTICS

    def output(self, inputs: Sequence[Shape]) -> Shape:
        """Return the shape of the input."""
        return single(self.kind, inputs)

    def parameters(self, inputs: Sequence[Shape]) -> tuple[Parameter, ...]:
        """Return scale and shift, if there are any; the running statistics are not trained."""
        if not self.affine:
            return ()
        channels = inputs[0].size("channel")
        return Parameter("weight", (channels,)), Parameter("bias", (channels,))

    def saved_tensors(self, part: Part) -> SavedTensors:
        """Return the input, and the output if there is an activation, whose mask follows from it."""
        return SavedTensors(inputs=True, output=self.activation is not None, transforms=True)

    def _forward(self, part: Part) -> Kernels:
        return part.streaming(flop=BATCH_NORM_FLOP * part.outputs, elements=3 * part.outputs)

    def _activation_gradient(self, part: Part) -> Kernels:
        return part.streaming(flop=BATCH_NORM_FLOP * part.outputs, elements=3 * part.outputs)

    def _weight_gradient(self, part: Part) -> Kernels:
        return part.streaming(flop=BATCH_NORM_FLOP * part.outputs, elements=2 * part.outputs)


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalResponseNorm(OperationBase):
    """Local response normalisation: each element is divided by a power of the squares of its neighbours in channels.

    A part of the channels needs a halo of (size - 1) / 2 channels on both sides.
    Traffic: forward inputs and outputs once; backward inputs, outputs and both gradients once.

    Source:
        Krizhevsky et al., NIPS 2012, Sec. 3.3.
    """

    kind: ClassVar[str] = "local_response_norm"
    size: int = 5
    """Channels of a neighbourhood, odd."""
    alpha: float = 1e-4
    beta: float = 0.75
    k: float = 1.0

    def __post_init__(self) -> None:
        check_int("local_response_norm.size", self.size, 1)
        if self.size % 2 == 0:
            raise ConfigError(f"local_response_norm.size must be odd, got {self.size}")

    def output(self, inputs: Sequence[Shape]) -> Shape:
        """Return the shape of the input."""
        return single(self.kind, inputs)

    def interval_maps(self, slot: int, inputs: Sequence[Shape]) -> tuple[IntervalMap, ...]:
        """Return the same interval, with a halo in the channels."""
        sample, _, *positions = identity_maps(inputs[0])
        return (sample, IntervalMap(dim="channel", kernel=self.size, pad=self.size // 2), *positions)

    def saved_tensors(self, part: Part) -> SavedTensors:
        """Return the input, its divisors, and the output."""
        return SavedTensors(inputs=True, output=True, elements=part.outputs, before_output=True)

    def _forward(self, part: Part) -> Kernels:
        flop = (2 * self.size + POWER_FLOP) * part.outputs
        return part.streaming(flop=flop, elements=self.read_elements(part) + part.outputs)

    def _activation_gradient(self, part: Part) -> Kernels:
        flop = 2 * (2 * self.size + POWER_FLOP) * part.outputs
        return part.streaming(flop=flop, elements=2 * (self.read_elements(part) + part.outputs))
