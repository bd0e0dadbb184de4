"""Interface of all parts of layers."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

import torch
from torch import Tensor

from executor.runtime.boxes import Box
from executor.runtime.samples import BatchSamples
from planner.graph.computation_graph import Layer
from planner.strategies.zigzag import PositionOrder

NO_BUFFERS: Mapping[str, Tensor] = MappingProxyType({})
"""Empty table of gradient buffers: all gradients are new tensors."""


@dataclass(frozen=True, slots=True, eq=False)
class TrainingStep:
    """Values of a training step that layers read beside tensors of the network."""

    number: int
    """Number of the step; with the seed and the layer it determines dropout's masks."""
    seed: int
    targets: Tensor | None = None
    """Targets of a loss layer's samples: labels, int64, shape (samples,), or values of the input's shape."""
    again: bool = False
    """True if the forward pass is recomputed: the result is the same, and running statistics do not change."""


@dataclass(frozen=True, slots=True)
class PartContext:
    """The part of a layer that a rank holds: its regions and samples."""

    layer: Layer
    index: int
    """Index of the layer in the network."""
    held: Box
    """Region of the layer's output that the part makes."""
    product: Box
    """Region of which it computes the product: ``held``, or partial sums that parts complete together."""
    inputs: tuple[Box, ...]
    """Region of each input that the part reads, by slot; empty where it needs none."""
    parameters: Mapping[str, Box]
    """Slice of each parameter that the part computes with, by name."""
    samples: BatchSamples
    """Samples that the layer's tensors hold."""
    largest: tuple[int, ...] = ()
    """Sizes of the largest region of the first input that a part of the layer reads: all choose their memory layout by
    it, so that they all take as much memory as is predicted."""
    order: PositionOrder | None = None
    """Order of the output's positions; None: as they are."""


class PartLayer(ABC):
    """One part of one layer on one rank.

    A step calls ``forward``, then ``begin_backward``, then each of the two gradients at most once, in either order,
    then ``release``.  For a layer that ``reduces`` the caller sums its statistics over the parts of the same channels,
    or gathers those of all channels, and calls ``finish_forward`` after ``forward``, and ``finish_backward`` after
    ``begin_backward``.  For a layer that ``completes`` sums the caller calls ``complete_forward`` right after
    ``forward``, with the part's share of the sum of what all parts returned that complete it together, and
    ``complete_backward`` before both gradients, with the ``share_gradient`` of all these parts.  All methods run
    without autograd's recording.  They write no argument but ``out``, and the gradients that they return may be views
    of one another or of arguments.

    Args:
        context: The part and its layer.
    """

    reduces: bool = False
    """True if the caller must share ``statistics`` and call ``finish_forward`` and ``finish_backward``."""
    completes: bool = False
    """True if the caller must call ``complete_forward`` and ``complete_backward``."""
    reads_last: bool = False
    """True if the part would copy an input whose channels are not last in memory, of float32 on a processor."""

    def __init__(self, context: PartContext) -> None:
        self.layer = context.layer
        self.reads_rows = context.layer.operation.reads_rows
        """True if the part would copy an input whose channels are not last in memory, on any device."""
        self.index = context.index
        self.held = context.held
        """Region of the layer's output that the part computes."""
        self.product = context.product
        """Region of which ``forward`` computes the product."""
        self.samples, self.order = context.samples, context.order
        self.inputs = context.inputs
        """Region of each input that ``forward`` gets, by slot; empty where the part needs none of it."""
        self.parameters = context.parameters
        """Slice of each parameter that ``forward`` gets, by name."""
        self.loss: Tensor | None = None
        """Share of the part in the mean loss over the whole batch, 0-d; of a loss layer after ``forward``."""
        self.statistics: Tensor | None = None
        """Statistics of a layer that reduces: float64 of shape (2, channels), for the caller to sum in place, or of the
        type of the inputs and shape (1, 2, rows), for the caller to replace by those of all parts of the rows."""
        self.output_order: Sequence[int] = ()
        """Dimensions of the output by their place in memory, after ``forward``, where the derivatives would copy a
        gradient in another order; else empty."""
        self.buffers: dict[str, Tensor] = {}
        """Tensors that steps change but training does not: running statistics, shape (channels,)."""
        self.constants: Mapping[str, Tensor] = {}
        """Buffers of an imported module that the part computes with, by key in the ``state_dict``."""
        self.forgets = False
        """True if ``forget`` is called after ``forward``."""
        self._saved: dict[str, Tensor] = {}
        self._forgotten: dict[str, tuple[int, torch.Size, tuple[int, ...], int]] = {}
        """Slots of the inputs that saved tensors are views of, with sizes, strides and offset."""

    @abstractmethod
    def forward(self, inputs: Sequence[Tensor], parameters: Mapping[str, Tensor], step: TrainingStep) -> Tensor:
        """Compute the output and save what the backward passes need.

        Args:
            inputs: Inputs by slot, of the shapes of ``self.inputs``.
            parameters: The held slices by name; they are kept until ``release`` and must not be updated before.
            step: The training step.

        Returns:
            The part of the output, of the shape of ``held``.  A layer that reduces returns another tensor, and its
            output from ``finish_forward``; one that completes sums returns partial sums of the shape of ``product``.
        """

    @abstractmethod
    def begin_backward(self, gradient: Tensor | None) -> None:
        """Compute from the output's gradient what both gradients of the part start from.

        Args:
            gradient: Gradient of the output, of the shape of ``held``; None for a loss layer.
        """

    @abstractmethod
    def activation_gradient(self) -> list[Tensor]:
        """Return the gradients of the inputs by slot, of the shapes of ``self.inputs``.

        They are zero where no output of the part depends on an input.
        """

    def weight_gradient(self, out: Mapping[str, Tensor] = NO_BUFFERS) -> dict[str, Tensor]:
        """Return the gradients of the parameters by name, summed over the part's samples and positions.

        Args:
            out: Buffers by name into which gradients may be written; a buffer that was written is returned.

        Returns:
            Tensors of the shapes of the held slices.
        """
        return {}

    def complete_forward(self, sums: Tensor, parameters: Mapping[str, Tensor], step: TrainingStep) -> Tensor:
        """Return from the part's share of whole sums what ``forward`` returns where there are no partial sums."""
        raise TypeError(f"{self.layer.operation.kind} {self.layer.name!r} completes no sums")

    @property
    def share_gradient(self) -> Tensor:
        """Gradient of the part's share of whole sums, once the backward pass has begun."""
        raise TypeError(f"{self.layer.operation.kind} {self.layer.name!r} completes no sums")

    def complete_backward(self, gradient: Tensor) -> None:
        """Take the gradient of the partial sums, which is that of all whole sums."""
        raise TypeError(f"{self.layer.operation.kind} {self.layer.name!r} completes no sums")

    def finish_forward(self) -> Tensor:
        """Return the output, of the shape of ``held``, from the summed statistics."""
        raise TypeError(f"{self.layer.operation.kind} {self.layer.name!r} reduces no statistics")

    def finish_backward(self) -> None:
        """Complete ``begin_backward`` from the summed statistics."""
        raise TypeError(f"{self.layer.operation.kind} {self.layer.name!r} reduces no statistics")

    def forget(self, inputs: Mapping[int, Tensor]) -> None:
        """Release what ``forward`` saved of some of its inputs, by slot."""
        slots = {values.untyped_storage().data_ptr(): slot for slot, values in inputs.items()}
        for name, saved in [*self._saved.items()]:
            if (slot := slots.get(saved.untyped_storage().data_ptr())) is not None:
                self._forgotten[name] = slot, saved.shape, saved.stride(), int(saved.storage_offset())
                del self._saved[name]

    def remember(self, inputs: Mapping[int, Tensor]) -> None:
        """Take the inputs that ``forget`` released, of equal layout, before a gradient that reads them."""
        for name, (slot, sizes, strides, offset) in self._forgotten.items():
            self._saved[name] = inputs[slot].as_strided(sizes, strides, offset)

    def drop(self) -> None:
        """Release what ``forward`` saved; it will be called again, with ``TrainingStep.again``."""
        self.release()

    def release(self) -> None:
        """Release everything that was saved for the backward pass."""
        self._saved.clear()
        self._forgotten.clear()
        self.statistics = None
