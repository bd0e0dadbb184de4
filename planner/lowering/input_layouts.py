"""Tensors as the parts of their consumers read them: the layouts that a program brings them into, device by device."""

from collections import defaultdict
from dataclasses import dataclass

import numpy as np

from hwprofiles import Bools, Ints
from planner.graph import Edge
from planner.lowering.program import Program
from planner.lowering.unit_times import unit_of
from planner.parallel import held_regions, needed_regions

__all__ = ["InputLayout", "input_layouts_of"]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class InputLayout:
    """One tensor in one layout; arrays of shape (R,), a row for every part that reads it and every sub-batch."""

    edge: Edge
    """The one whose transfers bring it."""
    readers: tuple[Edge, ...]
    part: Ints
    """Part of the readers."""
    device: Ints
    micro_batch: Ints
    elements: Ints
    """Of the region read."""
    own: Ints
    """Elements of it that the device's own part of the producer holds."""
    covers: Bools
    """Whether that is all that this part holds."""
    source: Ints
    """Cell of that part; -1 where the device holds none."""

    @property
    def is_view(self) -> Bools:
        """Whether the region is a view of the producer's part."""
        return np.asarray(self.own == self.elements)

    def reader(self, program: Program, edge: Edge) -> Ints:
        """Cells of one of the readers."""
        return unit_of(program, np.full(len(self.part), edge.consumer), self.device, self.micro_batch)


def input_layouts_of(program: Program) -> list[InputLayout]:
    """All of a program, in order of their first readers."""
    readers: dict[Edge, list[Edge]] = defaultdict(list)
    for edge, by in program.transferred_by.items():
        readers[by].append(edge)
    return [_delivery(program, edge, tuple(sorted(rows, key=lambda e: e.consumer))) for edge, rows in readers.items()]


def _delivery(program: Program, edge: Edge, readers: tuple[Edge, ...]) -> InputLayout:
    micro_batching, u, v = program.micro_batching, edge.producer, edge.consumer
    behind = micro_batching.of(v) > 1
    spaces = program.micro_batch_spaces if behind else program.spaces
    layer, space, producer = program.graph.layers[v], spaces[v], spaces[u]
    source = producer.output
    operation = layer.operation
    shapes = list(layer.input_shapes)
    shapes[edge.slot] = source
    boxes, given = needed_regions(space, operation.needs(edge.slot, shapes), source), held_regions(producer)
    part_of = np.full(len(program.cluster.devices), -1, dtype=np.int64)
    part_of[producer.devices] = np.arange(len(producer.devices))
    mine = part_of[space.devices]
    low, high = np.maximum(boxes.low, given.low[mine]), np.minimum(boxes.high, given.high[mine])
    own = np.where(mine >= 0, np.maximum(high - low, 0).prod(axis=1), 0)
    covers = (own == given.volume[mine]) & (mine >= 0) & (micro_batching.of(u) == micro_batching.of(v))
    parts, subs = np.arange(len(mine)), np.arange(micro_batching.of(v))
    part, micro_batch = np.repeat(parts, len(subs)), np.tile(subs, len(parts))
    device = space.devices[part]
    cells = unit_of(program, np.full(len(part), u), device, micro_batch)
    return InputLayout(
        edge=edge, readers=readers, part=part, device=device, micro_batch=micro_batch, elements=boxes.volume[part],
        own=own[part], covers=covers[part], source=np.where(mine[part] >= 0, cells, -1),
    )  # fmt: skip
