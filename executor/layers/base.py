"""What every part of a layer can do, whatever its kind."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from torch import Tensor

from executor.runtime import BatchSamples, Box
from planner.graph import Layer

__all__ = ["NO_BUFFERS", "PartContext", "PartLayer", "TrainingStep"]

NO_BUFFERS: Mapping[str, Tensor] = MappingProxyType({})
"""No places for gradients: all are new tensors."""


@dataclass(frozen=True, slots=True, eq=False)
class TrainingStep:
    """What a training step gives to the layers beside tensors of the network."""

    number: int
    """Training step; with the seed and the layer it keys dropout's masks."""
    seed: int
    targets: Tensor | None = None
    """For loss layers, of the part's samples: labels, int64, shape (samples,), or values of the input's shape."""
    again: bool = False
    """Whether the step's forward pass is repeated: with the same result, and running statistics stay."""


@dataclass(frozen=True, slots=True)
class PartContext:
    """Which part of which layer."""

    layer: Layer
    index: int
    """Index in the model of the layer, or of that of which it is a piece."""
    held: Box
    inputs: tuple[Box, ...]
    samples: BatchSamples
    """Of the layer's tensors."""


class PartLayer(ABC):
    """One part of one layer on one rank.

    A step calls ``forward``, then ``begin_backward``, then each of the two gradients at most once, in either order,
    then ``release``; a layer that ``reduces`` has its statistics summed over the parts of the same channels before
    ``finish_forward`` and before ``finish_backward``.  All run without autograd's recording.  No tensor handed in is
    written, and the gradients returned may be views of one another or of what was handed in.
    """

    reduces: bool = False
    """Whether the runtime must sum ``statistics`` and call ``finish_forward`` and ``finish_backward``."""
    reads_last: bool = False
    """Whether it would copy an input whose channels are not last in memory."""

    def __init__(self, context: PartContext) -> None:
        self.layer = context.layer
        self.index = context.index
        self.held = context.held
        """The box of the layer's output that the part makes."""
        self.samples = context.samples
        self.inputs = context.inputs
        """By slot, the box of the input that ``forward`` gets; empty where the part needs none of it."""
        self.loss: Tensor | None = None
        """Of a loss layer after ``forward``: the part's share of the mean loss over the whole batch, 0-d."""
        self.statistics: Tensor | None = None
        """Of a layer that reduces: float64, shape (2, channels), for the runtime to sum in context."""
        self.buffers: dict[str, Tensor] = {}
        """Tensors that steps change but training does not: running statistics, shape (channels,)."""
        self._saved: dict[str, Tensor] = {}

    @abstractmethod
    def forward(self, inputs: Sequence[Tensor], parameters: Mapping[str, Tensor], step: TrainingStep) -> Tensor:
        """Compute the output and save what the backward passes need.

        Args:
            inputs: By slot, shapes of ``self.inputs``.
            parameters: By name, the held slices; kept until ``release``, so not to be updated before.
            step: The training step.

        Returns:
            The part of the output, shape of ``held``; of a layer that reduces not yet the output, which
            ``finish_forward`` returns.
        """

    @abstractmethod
    def begin_backward(self, gradient: Tensor | None) -> None:
        """Go back from the output's gradient, shape of ``held``, to what both gradients start from.

        A loss layer takes None.
        """

    @abstractmethod
    def activation_gradient(self) -> list[Tensor]:
        """Gradients of the inputs, by slot, shapes of ``inputs``; zero where no output depends on an input."""

    def weight_gradient(self, out: Mapping[str, Tensor] = NO_BUFFERS) -> dict[str, Tensor]:
        """Gradients of the parameters by name, of the part's samples and positions, shapes of the held slices.

        Args:
            places: By name, where a gradient may be written; it is returned if it was.
        """
        return {}

    def finish_forward(self) -> Tensor:
        """Return the output, shape of ``held``, from the summed statistics."""
        raise TypeError(f"{self.layer.operation.kind} {self.layer.name!r} reduces no statistics")

    def finish_backward(self) -> None:
        """Complete ``begin_backward`` from the summed statistics."""
        raise TypeError(f"{self.layer.operation.kind} {self.layer.name!r} reduces no statistics")

    def drop(self) -> None:
        """Drop what ``forward`` saved; it will be called again, with ``Step.again``."""
        self.release()

    def release(self) -> None:
        """Drop everything saved for the backward passes."""
        self._saved.clear()
        self.statistics = None
