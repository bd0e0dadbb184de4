"""Operations that move elements and compute nothing, or little: slices, shifts, joins, padding, resampling."""

from collections.abc import Sequence
from dataclasses import dataclass

from groundwork.errors import ConfigError
from hwprofiles.compute.kernels import Kernels
from planner.graph.operation import SavedTensors
from planner.graph.shapes import SUMMED, IntervalMap, Shape
from planner.operations.base import INDEX_BYTES, Part
from planner.operations.mapped import Mapped

VIEWS = ("view", "slice")
"""Kinds that only read another's memory: nothing is copied."""
ROUTING = ("dispatch", "combine")
"""Kinds that take rows, or add them up, at the places of the largest values of their second input, one for each
channel: of scores, one for each expert."""
REARRANGEMENTS = (*VIEWS, *ROUTING, "join", "pad", "rotation", "interpolation", "gather", "window_pooling")


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

    def summed_size(self, inputs: Sequence[Shape]) -> int:
        """Return the experts whose rows are added up, where they are channels of rows and scores."""
        where = {each.name: each.axes[1:2] for step in self.computes for each in step.operands}
        apart = self.kind == "combine" and where == dict.fromkeys(("src", "scores"), ("channel",))
        return inputs[0].size("channel") if apart else 0

    def interval_maps(self, slot: int, inputs: Sequence[Shape]) -> tuple[IntervalMap, ...]:
        """Return the listed maps, and that of experts that are summed over."""
        sample, channel, *positions = self.reads[slot]
        return (sample, IntervalMap(dim=SUMMED) if self.summed_size(inputs) else channel, *positions)

    def saved_tensors(self, part: Part) -> SavedTensors:
        """Return the places of rows; the gradients of the inputs of views and joins are views of the output's."""
        places = 0.0 * part.outputs
        if self.kind == "dispatch":
            places = part.outputs / part.sizes[self.dims[-1]]
        elif self.kind == "combine":
            places = self.read_elements(part) / part.channels
        return SavedTensors(index_bytes=INDEX_BYTES * places, passes_on=self.kind in (*VIEWS, "join"))

    def _forward(self, part: Part) -> Kernels:
        if self.kind in VIEWS:
            return part.streaming(flop=0.0, elements=0.0)
        if self.kind in ROUTING:  # rows that come and go; where they are added up, also what they are added to
            rows = part.outputs if self.kind == "dispatch" else self.read_elements(part)
            added = part.outputs if self.kind == "combine" else 0.0
            return self._streams(part, 0.0, self.read_elements(part, 1) + 2.0 * rows + added)
        read = part.outputs if self.kind == "join" else self.all_inputs(part)
        return self._streams(part, self.terms, read + self.held_elements(part) + part.outputs)

    def _activation_gradient(self, part: Part) -> Kernels:
        return self._forward(part)

    def _weight_gradient(self, part: Part) -> Kernels:
        return part.streaming(flop=0.0, elements=self.held_elements(part) * (2.0 if self.weights else 0.0))
