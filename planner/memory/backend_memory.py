"""Memory of back ends: the interface through which the account of memory knows where a plan runs, and that of GPUs."""

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from groundwork.array_types import Bools, Floats, Ints
from planner.lowering.send_phases import SendPhases
from planner.operations.base import Part
from planner.operations.convolution import Convolution

SCRATCH_PHASES = ("forward", "activation_gradient", "weight_gradient")
"""Phases of a layer that may need scratch memory."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ConvolutionParts:
    """P parts of a convolution over D - 2 positions, as a library computes them."""

    operation: Convolution
    part: Part
    windows: Ints
    """Shape (P, D): sizes of the region that is convolved, with the padding that the library cannot add by itself."""
    pad: Ints
    """Shape (P, D - 2): padding on both sides that the library adds by itself."""
    outputs: Ints
    """Shape (P, D - 2): positions of the output."""
    channels_last: bool
    """True if the region has its channels last in memory."""
    element_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TransposedParts:
    """P parts of a transposed convolution; sizes are bytes, of shape (P,)."""

    kernel: tuple[int, ...]
    samples: Floats
    inputs: Floats
    outputs: Floats
    weights: Floats
    columns: Floats
    """What each position of the input adds to the output."""
    channels_last: bool
    """True if the input has its channels last in memory."""
    element_bytes: int


class BackendMemory(Protocol):
    """Interface of a back end: memory that it takes beside the tensors of a network."""

    @property
    def has_message_buffers(self) -> bool:
        """True if every message is received in a buffer of its own, which is allocated for the whole run."""
        ...

    @property
    def normalisation_copies(self) -> int:
        """Tensors of its size beside which the gradient of a batch normalisation by its own statistics is computed."""
        ...

    def channels_last(self, region: Ints, *, channels: int, element_bytes: int) -> bool:
        """Return whether a convolution reads its input with the channels last in memory.

        Args:
            region: Shape (P, D): sizes of the regions that the parts read.
            channels: Channels of the whole input.
            element_bytes: Bytes of one element.
        """
        ...

    def convolution_scratch(self, parts: ConvolutionParts) -> tuple[dict[str, Floats], Bools]:
        """Return the scratch memory of the parts of a convolution.

        Returns:
            Bytes in each of ``SCRATCH_PHASES`` beside operands and result, shape (P,) each; and, shape (P,), which
            parts write the gradient of their weights into the buffer of its synchronisation.
        """
        ...

    def transposed_scratch(self, parts: TransposedParts) -> dict[str, Floats]:
        """Return the scratch memory of transposed convolutions in each of ``SCRATCH_PHASES``, shape (P,) each."""
        ...

    def pair_buffer_bytes(self, buffer_bytes: float) -> float:
        """Return the bytes in which a device receives what the other one of two replicas adds.

        Args:
            buffer_bytes: Bytes of the buffers that the two sum, all together.
        """
        ...

    def released_s(self, send_phases: SendPhases, transfers: Ints, end_s: Floats) -> Floats:
        """Return when senders release the tensors that transfers have sent.

        Args:
            send_phases: Phases of the program.
            transfers: Shape (K,): tasks.
            end_s: Shape (T,): end of all tasks.

        Returns:
            Shape (K,).
        """
        ...


class GpuMemory:
    """Memory of GPUs: tensors alone; the workspace of their libraries is left out."""

    has_message_buffers = False
    normalisation_copies = 0

    def channels_last(self, region: Ints, *, channels: int, element_bytes: int) -> bool:
        """Return False: tensors keep their channels first."""
        return False

    def convolution_scratch(self, parts: ConvolutionParts) -> tuple[dict[str, Floats], Bools]:
        """Return no scratch memory, and no part that writes its gradient where it is synchronised."""
        count = len(parts.windows)
        return dict.fromkeys(SCRATCH_PHASES, np.zeros(count)), np.zeros(count, dtype=bool)

    def transposed_scratch(self, parts: TransposedParts) -> dict[str, Floats]:
        """Return no scratch memory."""
        return dict.fromkeys(SCRATCH_PHASES, np.zeros(len(parts.inputs)))

    def pair_buffer_bytes(self, buffer_bytes: float) -> float:
        """Return 0: the library's buffers are left out."""
        return 0.0

    def released_s(self, send_phases: SendPhases, transfers: Ints, end_s: Floats) -> Floats:
        """Return the ends of the transfers."""
        return end_s[transfers]
