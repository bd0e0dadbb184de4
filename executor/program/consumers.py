"""Who reads what on a rank: its tensors by those that read them, and by what makes them."""

from collections import defaultdict

from executor.program.rank_program import Input, LayerUnit, RankProgram

__all__ = ["Consumers"]


class Consumers:
    """Looked up once, so that nothing is kept longer than somebody reads it.

    Args:
        view: The rank's tasks and messages.
    """

    def __init__(self, view: RankProgram) -> None:
        self._segments = view.program.segments
        self.taken_by: dict[LayerUnit, list[Input]] = defaultdict(list)
        """By what makes them, the tensors that need some of its part."""
        read = dict[tuple[LayerUnit, int], Input]()
        for row in view.inputs.values():
            for edge in row.readers:
                read[(edge.consumer, row.sub_batch), edge.slot] = row
            self.taken_by[row.source].append(row)
        self.inputs: dict[LayerUnit, list[Input | None]] = {
            unit: [read.get((unit, slot)) for slot in range(len(layer.inputs))]
            for i, layer in enumerate(view.program.graph.layers)
            for unit in view.units(i)
        }
        """By unit and slot, what it reads; None for data."""
        self._brought = {
            (unit, again): [row for row in rows if row is not None and (not again or self.inside(unit[0], row))]
            for unit, rows in self.inputs.items()
            for again in (False, True)
        }

        self._counts = {
            (row.key, again): sum(not again or self.inside(edge.consumer, row) for edge in row.readers)
            for row in view.inputs.values()
            for again in (False, True)
        }

    def inside(self, layer: int, row: Input) -> bool:
        """Whether a layer is recomputed together with what it reads."""
        return self._segments[layer] >= 0 and self._segments[layer] == self._segments[row.edge.producer]

    def brought(self, unit: LayerUnit, again: bool) -> list[Input]:
        """The tensors that are brought to a unit the first time, or when its segment is computed again."""
        return self._brought[unit, again]

    def count(self, row: Input, again: bool) -> int:
        """How many read a tensor the first time, or when its segment is computed again."""
        return self._counts[row.key, again]
