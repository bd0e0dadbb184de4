"""Times of the parts that one rank holds of a plan, sampled between the plan's turns."""

from dataclasses import replace

from executor.probe.layer_probe import LayerProbe
from executor.probe.measured_rows import ProbeRow
from executor.probe.parts_to_measure import ProbePart, parts_of, tensor_bytes
from executor.runtime.devices import ComputeDevice
from executor.runtime.optimizer_spec import OptimizerSpec
from executor.supervision.status_board import RankState, RankStatus
from planner.graph.computation_graph import ComputationGraph
from planner.lowering.program import Program


class PartSamples:
    """Samples of the parts that one rank holds of one plan; a rank that the plan leaves idle has none."""

    def __init__(
        self, program: Program, rank: int, device: ComputeDevice, status: RankStatus, optimizer: OptimizerSpec
    ) -> None:
        """List the parts; their tensors are made by ``prepare``."""
        self._device, self._status = device, status
        self._optimizer = replace(optimizer, learning_rate=1e-12)
        self._parts = [(graph, parts) for graph, parts in _parts(program, rank) if parts]
        self._probes: list[LayerProbe] = []
        self._rows: list[ProbeRow] = []

    @property
    def tensor_bytes(self) -> float:
        """Memory of the tensors of all parts, roughly."""
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
        """Free the tensors, and keep the times."""
        for probe in self._probes:
            self._rows += probe.rows()
        self._probes = []

    def rows(self) -> list[ProbeRow]:
        """Return all times so far."""
        return [*self._rows, *(row for probe in self._probes for row in probe.rows())]

    def _computing(self, _part: int) -> None:
        self._status.at(-1, RankState.COMPUTING)


def _parts(program: Program, rank: int) -> list[tuple[ComputationGraph, list[ProbePart]]]:
    """Return the parts that a rank holds: of layers that compute the whole batch, and of those with micro-batches.

    The second kind is listed with a graph whose batch is one micro-batch, which is what its parts compute at a time.
    """
    rows, micro_batching = [], program.micro_batching
    for count, spaces in {micro_batching.parts: program.micro_batch_spaces, 1: program.spaces}.items():
        graph = program.graph if count == 1 else program.graph.with_batch(program.graph.batch // count)
        mine = {
            layer.name
            for i, layer in enumerate(graph.layers)
            if micro_batching.of(i) == count and rank in spaces[i].devices.ravel()
        }
        rows.append((graph, [part for part in parts_of(graph, [spaces]) if mine.intersection(part.layers)]))
    return rows
