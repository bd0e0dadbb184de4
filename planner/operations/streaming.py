"""Operations that only stream memory: elementwise chains, reductions, normalisations within a sample, unknown ones."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from groundwork.array_types import Floats
from groundwork.errors import ConfigError
from hwprofiles.compute.fused_kernels import FusedKernels, elementwise_kernels, norm_kernels
from hwprofiles.compute.kernels import Kernels
from planner.graph.operation import SavedTensors
from planner.graph.parameters import Parameter
from planner.graph.shapes import SUMMED, Shape
from planner.operations.base import ELEMENT_BYTES, Part
from planner.operations.mapped import Mapped

FEATURE_NORM_FLOP = 8
"""Operations on each element: two for the sums, then difference, scale, factor and shift, and the roots."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Elementwise(Mapped):
    """A chain of elementwise operations in one kernel, as compilers fuse them.

    Traffic: forward all inputs and the output once; backward the output's gradient, what was saved, and the inputs'
    gradients.
    """

    kind: ClassVar[str] = "elementwise"
    steps: tuple[str, ...]
    """Operations in order."""
    saves: str = "inputs"
    """What the backward pass reads: ``inputs``, ``output`` or ``nothing``."""

    def __post_init__(self) -> None:
        Mapped.__post_init__(self)
        if self.saves not in ("inputs", "output", "nothing"):
            raise ConfigError(f"elementwise.saves must be inputs, output or nothing, got {self.saves!r}")

    def saved_tensors(self, part: Part) -> SavedTensors:
        """Return what the derivatives are computed from."""
        return SavedTensors(
            inputs=self.saves == "inputs", output=self.saves == "output", passes_on=self.saves == "nothing"
        )

    def fused_kernels(
        self, phase: str, inputs: Sequence[Shape], output: Shape, part: dict[str, Floats], element_bytes: int
    ) -> FusedKernels | None:
        """Return the kernel of a chain without parameters, which moves what the phase reads and writes."""
        if self.weights or phase not in ("forward", "activation_gradient"):
            return None
        held = Part(tuple(inputs), output, part)
        work = self._forward(held) if phase == "forward" else self._activation_gradient(held)
        return elementwise_kernels(
            elements=work.memory_bytes / ELEMENT_BYTES, accesses=1.0, element_bytes=element_bytes
        )

    def _forward(self, part: Part) -> Kernels:
        return self._streams(part, len(self.steps), self.all_inputs(part) + self.held_elements(part) + part.outputs)

    def _activation_gradient(self, part: Part) -> Kernels:
        inputs = self.all_inputs(part)
        saved = {"inputs": inputs, "output": part.outputs, "nothing": 0.0 * inputs}[self.saves]
        return self._streams(part, 2 * len(self.steps), part.outputs + saved + inputs)

    def _weight_gradient(self, part: Part) -> Kernels:
        if not self.weights:
            return part.streaming(flop=0.0, elements=0.0)
        read = self.all_inputs(part) if self.saves == "inputs" else 0.0
        return self._streams(part, 2, part.outputs + read + self.held_elements(part))


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorReduction(Mapped):
    """A sum, mean, maximum or softmax over dimensions, of which each part reads all.

    Traffic: forward inputs and outputs once; backward what was saved, the output's gradient, and the inputs'.
    """

    kind: ClassVar[str] = "reduction"
    function: str
    """``mean``, ``softmax``, ``amax`` ..."""
    saves: str = "nothing"
    """What the backward pass reads: ``inputs``, ``output`` or ``nothing``."""

    def saved_tensors(self, part: Part) -> SavedTensors:
        """Return what the derivatives are computed from."""
        return SavedTensors(inputs=self.saves == "inputs", output=self.saves == "output")

    def _forward(self, part: Part) -> Kernels:
        read = self.all_inputs(part)
        return part.streaming(flop=read, elements=read + part.outputs)

    def _activation_gradient(self, part: Part) -> Kernels:
        read = self.all_inputs(part)
        saved = {"inputs": read, "output": part.outputs}.get(self.saves, 0.0 * read)
        return part.streaming(flop=read, elements=read + saved + part.outputs)


@dataclass(frozen=True, slots=True, kw_only=True)
class FeatureNorm(Mapped):
    """Normalisation within each sample: over its channels (layer, root mean square), groups of them, or positions.

    Traffic: forward reads the inputs twice and writes; backward, the weight gradient reads inputs and gradients for
    the sums, and the activation gradient reads both and writes.
    """

    kind: ClassVar[str] = "feature_norm"
    function: str
    """``layer_norm``, ``rms_norm``, ``group_norm`` or ``instance_norm``."""

    def saved_tensors(self, part: Part) -> SavedTensors:
        """Return the inputs, from which the normalised values are computed again."""
        return SavedTensors(inputs=True, transforms=True)

    def fused_kernels(
        self, phase: str, inputs: Sequence[Shape], output: Shape, part: dict[str, Floats], element_bytes: int
    ) -> FusedKernels | None:
        """Return the kernel of a norm over channels: one backward computes the gradients of input and weights."""
        if self.function not in ("layer_norm", "rms_norm") or phase == "update":
            return None
        held = Part(tuple(inputs), output, part)
        whole = held.channels >= output.size("channel")  # a part of the channels reads all of them for its sums
        if not whole.any():
            return None
        kernels = norm_kernels(
            rows=held.columns,
            columns=held.channels,
            element_bytes=element_bytes,
            phase="forward" if phase == "forward" else "backward",
        )
        moved = kernels.memory_bytes * (phase != "weight_gradient")
        return replace(kernels, memory_bytes=np.where(whole, moved, np.nan))

    def _forward(self, part: Part) -> Kernels:
        return self._streams(part, FEATURE_NORM_FLOP, 2 * self.all_inputs(part) + part.outputs)

    def _activation_gradient(self, part: Part) -> Kernels:
        return self._streams(part, FEATURE_NORM_FLOP, self.all_inputs(part) + 2 * part.outputs)

    def _weight_gradient(self, part: Part) -> Kernels:
        if not self.weights:
            return part.streaming(flop=0.0, elements=0.0)
        return self._streams(part, 3, 2 * part.outputs)


@dataclass(frozen=True, slots=True, kw_only=True)
class Embedding(Mapped):
    """Rows of a trained table, one for each index.

    Traffic: forward reads and writes a row for each index; backward adds a gradient row for each index to a gradient of
    the whole table, which is written first.
    """

    kind: ClassVar[str] = "embedding"

    def summed_size(self, inputs: Sequence[Shape]) -> int:
        """Return the words of the table, of which a part may hold a slice: the rows of all others are zero to it."""
        return (
            self.weights[0].shape[0] if len(self.weights) == 1 and self.weights[0].indices == (None, "channel") else 0
        )

    def parameters(self, inputs: Sequence[Shape]) -> tuple[Parameter, ...]:
        """Return the table."""
        sums = self.summed_size(inputs) > 0
        return tuple(replace(w, indices=(SUMMED, "channel")) for w in self.weights) if sums else self.weights

    def _forward(self, part: Part) -> Kernels:
        return self._streams(part, 0.0, self.all_inputs(part) + 2 * part.outputs)

    def _activation_gradient(self, part: Part) -> Kernels:
        return part.streaming(flop=0.0, elements=0.0)

    def _weight_gradient(self, part: Part) -> Kernels:
        return self._streams(part, 1.0, self.all_inputs(part) + 3 * part.outputs + self.held_elements(part))


@dataclass(frozen=True, slots=True, kw_only=True)
class Unknown(Mapped):
    """An operation of which only its sizes are known: split by samples alone, each part reading all of its samples.

    Traffic: forward inputs and outputs once, backward twice.  Its arithmetic is not counted.
    """

    kind: ClassVar[str] = "unknown"
    function: str
    """Name of the operation."""

    def parallel_dims(self, output: Shape) -> tuple[str, ...]:
        """Return the samples only."""
        return ("sample",)

    def saved_tensors(self, part: Part) -> SavedTensors:
        """Return inputs and output, one of which the backward pass may read."""
        return SavedTensors(inputs=True, output=True)

    def _forward(self, part: Part) -> Kernels:
        return part.streaming(flop=0.0, elements=self.all_inputs(part) + self.held_elements(part) + part.outputs)

    def _activation_gradient(self, part: Part) -> Kernels:
        return part.streaming(flop=0.0, elements=2 * (self.all_inputs(part) + self.held_elements(part) + part.outputs))

    def _weight_gradient(self, part: Part) -> Kernels:
        return self._forward(part) if self.weights else part.streaming(flop=0.0, elements=0.0)
