"""Input layouts: the regions of tensors that consumers read, device by device, into which a program brings them."""

from collections import defaultdict
from dataclasses import dataclass, field

import numpy as np

from groundwork.array_types import Bools, Ints
from planner.graph.computation_graph import Edge
from planner.layouts.regions import held_regions, needed_regions
from planner.lowering.program import Program
from planner.lowering.unit_times import unit_of


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class InputLayout:
    """One tensor in one layout: a row for every part that reads it and every micro-batch, arrays of shape (R,)."""

    edge: Edge
    """Edge whose transfers bring the tensor."""
    readers: tuple[Edge, ...]
    """Edges of all consumers that read this layout."""
    part: Ints
    """Part of the consumers."""
    device: Ints
    micro_batch: Ints
    elements: Ints
    """Elements of the region that is read."""
    own: Ints
    """Elements of it that the device's own part of the producer holds."""
    covers: Bools
    """True if these are all elements of the device's own part."""
    source: Ints
    """Cell of the device's own part of the producer (``unit_of``); -1 where the device holds none."""
    collective: bool
    """True if collectives bring the tensor, each into a buffer of its own."""
    summed: bool
    """True if parts of the producer hold partial sums, which are added up where they are read."""
    _cells: dict[Edge, Ints] = field(default_factory=dict)
    """Cells of the consumers that were asked for."""

    @property
    def is_view(self) -> Bools:
        """True if the region is a view of the device's own part of the producer."""
        return np.asarray((self.own == self.elements) & (not self.collective) & (not self.summed))

    def reader(self, program: Program, edge: Edge) -> Ints:
        """Return the cells of one of the consumers, shape (R,)."""
        if edge not in self._cells:  # every iteration of a replay asks for the same
            consumer = np.full(len(self.part), edge.consumer)
            self._cells[edge] = unit_of(program, consumer, self.device, self.micro_batch)
        return self._cells[edge]


def input_layouts_of(program: Program) -> list[InputLayout]:
    """Return all input layouts of a program, in the order of their first readers."""
    readers: dict[Edge, list[Edge]] = defaultdict(list)
    for edge, first in program.transferred_by.items():
        readers[first].append(edge)
    brings = np.flatnonzero(program.moves_activations & ~program.backward)
    columns = (program.layer[brings].tolist(), program.consumer[brings].tolist(), program.slot[brings].tolist())
    collective = set(map(Edge, *columns))
    return [
        _layout(program, edge, tuple(sorted(rows, key=lambda e: e.consumer)), collective=edge in collective)
        for edge, rows in readers.items()
    ]


def _layout(program: Program, edge: Edge, readers: tuple[Edge, ...], *, collective: bool) -> InputLayout:
    """Return the layout that an edge and other readers share, and that collectives may bring."""
    micro_batching, u, v = program.micro_batching, edge.producer, edge.consumer
    spaces = program.spaces_at(v)
    layer, space, producer = program.graph.layers[v], spaces[v], spaces[u]
    source, operation, shapes = producer.output, layer.operation, list(layer.input_shapes)
    shapes[edge.slot] = source
    read, held = needed_regions(space, operation.interval_maps(edge.slot, shapes), source), held_regions(producer)
    own_part = producer.part_on(len(program.cluster.devices))[space.devices]
    # What the device's own part holds of the region; where it holds none, part -1 is looked up and masked below.
    low, high = np.maximum(read.low, held.low[own_part]), np.minimum(read.high, held.high[own_part])
    own = np.where(own_part >= 0, np.maximum(high - low, 0).prod(axis=1), 0)
    # A micro-batch of the consumer is a share of the producer's part unless both take the same micro-batches.
    covers = (own == held.volume[own_part]) & (own_part >= 0) & (micro_batching.of(u) == micro_batching.of(v))
    parts, micro_batches = np.arange(len(own_part)), np.arange(micro_batching.of(v))
    # Rows: part by part, and micro-batch by micro-batch within a part.
    part, micro_batch = np.repeat(parts, len(micro_batches)), np.tile(micro_batches, len(parts))
    device = space.devices[part]
    cells = unit_of(program, np.full(len(part), u), device, micro_batch)
    return InputLayout(
        edge=edge,
        readers=readers,
        part=part,
        device=device,
        micro_batch=micro_batch,
        elements=read.volume[part],
        own=own[part],
        covers=covers[part],
        source=np.where(own_part[part] >= 0, cells, -1),
        collective=collective,
        summed=bool((producer.sums > 1).any()),
    )
