"""When every part of every layer computes: moments of its tasks, by the cell of layer, device and sub-batch."""

from dataclasses import dataclass

import numpy as np

from hwprofiles import Floats, Ints
from planner.lowering.program import KINDS, Program

__all__ = ["Moments", "UnitTimes", "unit_of"]


@dataclass(frozen=True, slots=True, eq=False)
class Moments:
    """Begin, two moments within, and end of one task a cell, shape (cells,) each; infinite where there is none.

    A task first brings its operands together, then prepares them, then computes: what it frees on the way is gone
    before what it makes last is there.
    """

    begin: Floats
    first: Floats
    second: Floats
    end: Floats


def unit_of(program: Program, layer: Ints, device: Ints, micro_batch: Ints) -> Ints:
    """Cells of layers on devices; sub-batches count where the layer takes them one by one."""
    micro_batching = program.micro_batching
    whole = (layer < micro_batching.first) | (micro_batching.parts == 1)
    place = layer * len(program.cluster.devices) + device
    return np.asarray(place * micro_batching.parts + np.where(whole, 0, micro_batch))


class UnitTimes:
    """Moments of one iteration.

    Args:
        program: What runs.
        start_s, end_s: Shape (T,): of its tasks, in seconds or in any order of time.
    """

    def __init__(self, program: Program, start_s: Floats, end_s: Floats) -> None:
        self.program, self.start_s, self.end_s = program, start_s, end_s
        self.cells = len(program.graph.layers) * len(program.cluster.devices) * program.micro_batching.parts
        self.unit = np.where(
            program.device >= 0, unit_of(program, program.layer, program.device, program.micro_batch), -1
        )
        kinds = {name: program.kind == number for number, name in enumerate(KINDS)}
        self.forward = tuple(
            self._moments(np.flatnonzero(kinds["forward"] & (program.recomputed == again))) for again in (False, True)
        )
        """First time and, where it is recomputed, second time."""
        self.activation = self._moments(np.flatnonzero(kinds["activation_gradient"]))
        self.weight = self._moments(np.flatnonzero(kinds["weight_gradient"]))
        earlier = self.activation.begin <= self.weight.begin
        a, w = self.activation, self.weight
        self.backward = Moments(
            np.where(earlier, a.begin, w.begin),
            np.where(earlier, a.first, w.first),
            np.where(earlier, a.second, w.second),
            np.maximum(np.where(np.isfinite(a.end), a.end, -np.inf), np.where(np.isfinite(w.end), w.end, -np.inf)),
        )
        """Of the first backward task of a cell, and the end of its last; that is minus infinity where it has none."""

    def _moments(self, tasks: Ints) -> Moments:
        begin, end = np.full(self.cells, np.inf), np.full(self.cells, np.inf)
        begin[self.unit[tasks]], end[self.unit[tasks]] = self.start_s[tasks], self.end_s[tasks]
        with np.errstate(invalid="ignore"):
            third = (end - begin) / 3
            return Moments(begin, np.where(np.isfinite(begin), begin + third, np.inf),
                           np.where(np.isfinite(begin), end - third, np.inf), end)  # fmt: skip
