"""Times of the parts that one rank holds of a plan, taken some at a time between the plan's turns."""

from dataclasses import replace

from executor.probe import LayerProbe, ProbePart, ProbeRow, parts_of, tensor_bytes
from executor.processes import RankState, RankStatus
from executor.runtime import ComputeDevice, OptimizerSpec
from planner.graph import ComputationGraph
from planner.lowering import Program

__all__ = ["PartSamples"]


class PartSamples:
    """Samples of one rank's parts of one plan.

    A rank that a plan leaves idle has none: it is so for the others' samples, too.

    Args:
        program: The plan's.
        rank: Whose parts.
        device: Where it computes.
        status: Where it says that it does.
        optimizer: Whose update is measured.
    """

    def __init__(
        self, program: Program, rank: int, device: ComputeDevice, status: RankStatus, optimizer: OptimizerSpec
    ) -> None:
        self._device, self._status = device, status
        self._optimizer = replace(optimizer, learning_rate=1e-12)
        self._parts = [(graph, parts) for graph, parts in _parts(program, rank) if parts]
        self._probes: list[LayerProbe] = []
        self._rows: list[ProbeRow] = []

    @property
    def tensor_bytes(self) -> float:
        """Roughly what the tensors of all parts take."""
        return sum(tensor_bytes(graph, part) for graph, parts in self._parts for part in parts)

    def prepare(self) -> None:
        """Make the tensors and run every part once, unmeasured, unless that is done."""
        if not self._probes:
            for graph, parts in self._parts:
                probe = LayerProbe(graph, parts, self._device, optimizer=self._optimizer, watch=self._computing)
                probe.warm_up(self._computing)
                self._probes.append(probe)

    def sample(self) -> None:
        """Time every part once more; after ``prepare``."""
        for probe in self._probes:
            probe.sample(self._computing)

    def drop(self) -> None:
        """Let go of the tensors, and keep the times."""
        for probe in self._probes:
            self._rows += probe.rows()
        self._probes = []

    def rows(self) -> list[ProbeRow]:
        """All times so far; the tensors are dropped."""
        self.drop()
        return self._rows

    def _computing(self, _part: int) -> None:
        self._status.at(-1, RankState.COMPUTING)


def _parts(program: Program, rank: int) -> list[tuple[ComputationGraph, list[ProbePart]]]:
    """Of the layers before the cut and of those behind it, which compute a sub-batch at once: what a rank holds."""
    found, micro_batching = [], program.micro_batching
    for count, spaces in {micro_batching.parts: program.sub_spaces, 1: program.spaces}.items():
        graph = program.graph if count == 1 else program.graph.with_batch(program.graph.batch // count)
        mine = {
            layer.name
            for i, layer in enumerate(graph.layers)
            if micro_batching.of(i) == count and rank in spaces[i].devices.ravel()
        }
        found.append((graph, [part for part in parts_of(graph, [spaces]) if mine.intersection(part.layers)]))
    return found
