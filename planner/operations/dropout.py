"""Dropout as a layer of its own: of the data, or behind a layer without dropout of its own."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from groundwork.errors import ConfigError
from hwprofiles.compute.kernels import Kernels
from planner.graph.operation import SavedTensors
from planner.graph.shapes import Shape
from planner.operations.base import OperationBase, Part
from planner.operations.checks import single

_ACCESSES, _BACKWARD_ACCESSES = 2, 3
"""Accesses of each element: forward reads and writes; backward reads mask and gradient and writes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Dropout(OperationBase):
    """Dropout: training sets a share of the elements to zero and scales the others so that the mean stays.

    Traffic: forward inputs and outputs once; backward gradients, mask and result once.  Nothing where none is dropped.

    Source:
        Srivastava et al., "Dropout", JMLR 15, 2014, Section 10: scaled while training.
    """

    kind: ClassVar[str] = "dropout"
    dropout: float
    """Share of the elements that training drops."""

    def __post_init__(self) -> None:
        if not 0 <= self.dropout < 1:
            raise ConfigError(f"dropout.dropout must be >= 0 and < 1, got {self.dropout!r}")

    def output(self, inputs: Sequence[Shape]) -> Shape:
        """Return the shape of the input."""
        return single(self.kind, inputs)

    def saved_tensors(self, part: Part) -> SavedTensors:
        """Return which elements are dropped, a byte each; the gradient is multiplied by them."""
        drops = self.dropout > 0
        return SavedTensors(index_bytes=part.outputs * drops, before_output=drops, transforms=drops, passes_on=True)

    def _forward(self, part: Part) -> Kernels:
        return self._pass(part, _ACCESSES)

    def _activation_gradient(self, part: Part) -> Kernels:
        return self._pass(part, _BACKWARD_ACCESSES)

    def _pass(self, part: Part, accesses: int) -> Kernels:
        """Return a pass with so many accesses of each element."""
        dropped = part.outputs * (self.dropout > 0)
        return part.streaming(flop=dropped, elements=accesses * dropped)
