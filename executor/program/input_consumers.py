"""Consumers of a rank's input tensors, and the tensors by the units that compute and that read them."""

from collections import defaultdict

from executor.program.rank_parts import LayerUnit
from executor.program.rank_program import InputTensor, RankProgram
from planner.graph.computation_graph import Edge


class Consumers:
    """Lookup tables of input tensors by unit, so that a tensor is released as soon as its last consumer has read it.

    Args:
        view: The rank's tasks and messages.
    """

    def __init__(self, view: RankProgram) -> None:
        self._segments = view.program.segments
        self.inputs_from: dict[LayerUnit, list[InputTensor]] = defaultdict(list)
        """Input tensors that contain a region of the rank's part, by the unit that computes it."""
        read = dict[tuple[LayerUnit, int], InputTensor]()
        for row in view.inputs.values():
            for edge in row.readers:
                read[(edge.consumer, row.micro_batch), edge.slot] = row
            self.inputs_from[row.source].append(row)
        self.inputs_of: dict[LayerUnit, list[InputTensor | None]] = {
            unit: [read.get((unit, slot)) for slot in range(len(layer.inputs))]
            for i, layer in enumerate(view.program.graph.layers)
            for unit in view.parts.units(i)
        }
        """Input tensors that a unit reads, by slot; None for training data."""
        # a recomputed unit reads only tensors of its own segment again: the others were held
        self._delivered = {
            (unit, again): [row for row in rows if row is not None and (not again or self.same_segment(unit[0], row))]
            for unit, rows in self.inputs_of.items()
            for again in (False, True)
        }

        gathered = view.program.gathered_again
        self.gathered_again: dict[LayerUnit, dict[int, InputTensor]] = {
            unit: {
                slot: row for slot, row in enumerate(rows) if row and Edge(row.edge.producer, unit[0], slot) in gathered
            }
            for unit, rows in self.inputs_of.items()
        }
        """Input tensors that a unit does not keep but gathers again for the backward pass, by slot."""
        self._counts = {
            (row.key, again): sum(not again or self.same_segment(edge.consumer, row) for edge in row.readers)
            for row in view.inputs.values()
            for again in (False, True)
        }

    def same_segment(self, layer: int, row: InputTensor) -> bool:
        """Return whether a layer is recomputed together with the layer whose output it reads."""
        return self._segments[layer] >= 0 and self._segments[layer] == self._segments[row.edge.producer]

    def delivered(self, unit: LayerUnit, again: bool) -> list[InputTensor]:
        """Return the tensors delivered to a unit in the forward pass, or when its segment is recomputed."""
        return self._delivered[unit, again]

    def count(self, row: InputTensor, again: bool) -> int:
        """Return the number of consumers of a tensor in the forward pass, or when its segment is recomputed."""
        return self._counts[row.key, again]
