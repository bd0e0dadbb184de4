"""Operations that move elements and compute nothing, or little: slices, shifts, joins, padding, resampling."""

from dataclasses import dataclass

from groundwork.errors import ConfigError
from hwprofiles.compute.kernels import Kernels
from planner.graph.computation_graph import SavedTensors
from planner.operations.base import Part
from planner.operations.mapped import Mapped

VIEWS = ("view", "slice")
"""Kinds that only read another's memory: nothing is copied."""
REARRANGEMENTS = (*VIEWS, "join", "pad", "rotation", "interpolation", "gather", "window_pooling")


@dataclass(frozen=True, slots=True, kw_only=True)
class Rearrangement(Mapped):
    """Elements of the inputs in another place, or means of a few of them.

    Traffic: inputs and outputs once, forward and backward; nothing for views.
    """

    kind: str
    """One of ``REARRANGEMENTS``."""
    terms: int = 0
    """Elements that each output element is computed from; 0 if it is one that is copied."""

    def __post_init__(self) -> None:
        Mapped.__post_init__(self)
        if self.kind not in REARRANGEMENTS:
            raise ConfigError(f"kind of a rearrangement must be one of {', '.join(REARRANGEMENTS)}, got {self.kind!r}")

    def saved_tensors(self, part: Part) -> SavedTensors:
        """Return no tensors; the gradients of the inputs of views and joins are views of the output's."""
        return SavedTensors(passes_on=self.kind in (*VIEWS, "join"))

    def _forward(self, part: Part) -> Kernels:
        if self.kind in VIEWS:
            return part.streaming(flop=0.0, elements=0.0)
        read = part.outputs if self.kind == "join" else self._inputs(part)
        return self._streams(part, self.terms, read + self.held_elements(part) + part.outputs)

    def _activation_gradient(self, part: Part) -> Kernels:
        return self._forward(part)

    def _weight_gradient(self, part: Part) -> Kernels:
        return part.streaming(flop=0.0, elements=self.held_elements(part) * (2.0 if self.weights else 0.0))
