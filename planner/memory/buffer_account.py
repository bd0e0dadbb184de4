"""Buffers of a program before any time is known: parts, parameters, and tensors in the layouts that consumers read."""

from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from groundwork.array_types import Bools, Floats, Ints
from planner.graph.parameters import parameter_maps
from planner.graph.shapes import Shape
from planner.layouts.parameter_shards import storage_shards
from planner.layouts.regions import needed_regions
from planner.lowering.input_layouts import InputLayout, input_layouts_of
from planner.lowering.program import KINDS, Program
from planner.lowering.send_phases import SendPhases
from planner.lowering.unit_times import unit_of
from planner.memory.buffers import NOTHING_HELD, BufferRows
from planner.memory.memory_policy import MemoryPolicy
from planner.memory.message_copies import are_copies
from planner.memory.part_memory import PartMemory, part_memories

_COLLECTIVE, _TRANSFER = KINDS.index("collective"), KINDS.index("transfer")


def parameter_bytes(program: Program, layer: int, *, frozen: bool = False) -> Floats:
    """Return the bytes of the parameters that each part of a layer trains, or holds frozen, shape (parts,)."""
    space, row = program.spaces[layer], program.graph.layers[layer]
    elements = np.zeros(len(space.devices))
    for each in row.parameters:
        if each.frozen == frozen and not each.shared:
            sizes = each.shape or (1,)
            shape = Shape(tuple(map(str, range(len(sizes)))), sizes)
            elements += needed_regions(space, parameter_maps(each, row.output), shape).volume
    return elements * float(program.graph.element_bytes)


def residuals(program: Program) -> list[tuple[int, int]]:
    """Return the pairs (layer, device) that keep a residual: what compression left out of each gradient element."""
    compressed = np.flatnonzero(program.is_codec & (program.consumer < 0))
    pairs = sorted(set(zip(program.layer[compressed].tolist(), program.device[compressed].tolist(), strict=True)))
    kinds = {i: program.compressed.gradient(program.graph, i) for i, _ in pairs}
    return [(i, device) for i, device in pairs if (kind := kinds[i]) is not None and kind.feedback]


@dataclass(frozen=True, slots=True, eq=False)
class LayoutRows:
    """Rows of all input layouts, one layout after another, as columns of shape (R,)."""

    layer: Ints
    """Producer of the tensor."""
    device: Ints
    source: Ints
    """Cell of the device's own part of the producer; -1 where it holds none."""
    size: Floats
    """Bytes of the region read."""
    own: Bools
    """True if the device's own part holds some of the region."""
    covers: Bools
    """True if the region covers all that this part holds."""

    @classmethod
    def of(cls, input_layouts: list[InputLayout], element_bytes: int) -> "LayoutRows":
        """Concatenate the rows of the input layouts of a program."""
        columns = [
            (
                np.full(len(row.part), row.edge.producer),
                row.device,
                row.source,
                row.elements * float(element_bytes),
                row.own > 0,
                row.covers,
            )
            for row in input_layouts
        ]
        empty = np.empty(0, dtype=np.int64)
        joined = [np.concatenate(column) for column in zip(*columns, strict=True)] if columns else [empty] * 6
        return cls(*joined[:4], *(column.astype(bool) for column in joined[4:]))

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self.layer)


class MemoryAccount:
    """Contents and sizes of all that a program's devices hold, at whatever times they hold it.

    Args:
        program: The program.
        memory_policy: What the run keeps beside the tensors of the network.
    """

    def __init__(self, program: Program, memory_policy: MemoryPolicy) -> None:
        self.program, self.memory_policy, graph = program, memory_policy, program.graph
        layers = len(graph.layers)
        self.devices = len(program.cluster.devices)
        self.parts: list[PartMemory] = part_memories(program, memory_policy)
        """Memory of a layer's parts, by layer."""
        self.parameter_bytes = [parameter_bytes(program, i) for i in range(layers)]
        """Bytes of the parameters that each part of a layer trains, by layer."""
        self.storage_shards = [
            storage_shards(program.conditions.storage, *row) for row in zip(graph.layers, program.spaces, strict=True)
        ]
        """Shards of a layer's optimizer state, by layer; 1 where replicas do not divide it."""
        self.segments = np.array(program.segments)
        self.saving_pass = (self.segments >= 0).astype(int)
        """Forward task that makes what the backward pass reads, by layer: 0 the first, 1 the recomputation."""
        # Messages of an expanded collective are of this kind too.
        reduces = (program.kind == _COLLECTIVE) & program.syncs_gradients
        summed = [i for task in np.flatnonzero(reduces).tolist() for i in program.layers_of(task)]
        self.synchronised = np.isin(np.arange(layers), summed)
        """True where a layer's gradients are summed over replicas, by layer."""
        self.parameter_devices = {i: program.spaces[i].devices for i in range(layers) if graph.has_phase(i, "update")}
        """Devices that hold the parameters, by layer with parameters."""
        self.cells_of = [self._cells(i) for i in range(layers)]
        """Cells of a layer, part by part, by layer."""
        self.input_layouts: list[InputLayout] = input_layouts_of(program)
        self.layout_rows = LayoutRows.of(self.input_layouts, graph.element_bytes)
        # Layouts of 4, 2 and 4 rows have the slices 0:4, 4:6 and 6:10.
        bounds = np.concatenate([[0], np.cumsum([len(row.part) for row in self.input_layouts])]).astype(int).tolist()
        self.rows_of_layout = [slice(*pair) for pair in pairwise(bounds)]
        """Index into ``layout_rows``, by input layout."""
        self.waiting = program.waiting
        """Task that waits, for each entry of ``program.after``."""
        self.send_phases = SendPhases(program)
        transfers = np.flatnonzero(program.kind == _TRANSFER)
        self.sends_copy = np.zeros(program.size, dtype=bool)
        """True for transfers whose region, if it is not compressed, is copied before it is sent, by task."""
        self.sends_copy[transfers] = are_copies(program, self.parts, transfers)

    def _cells(self, i: int) -> Ints:
        devices, micro_batches = self.program.spaces[i].devices, np.arange(self.program.micro_batching.of(i))
        device, micro_batch = np.repeat(devices, len(micro_batches)), np.tile(micro_batches, len(devices))
        return unit_of(self.program, np.full(len(device), i), device, micro_batch)

    def by_cell(self, kind: str, i: int, size: Floats, allocated: Floats, released: Floats) -> BufferRows:
        """Return one buffer for each cell of a layer.

        Args:
            kind: One of ``BUFFERS``.
            i: The layer.
            size: Bytes by part of the layer.
            allocated: Time of allocation by cell of all layers.
            released: Time of release by cell of all layers.
        """
        if not size.any():
            return NOTHING_HELD
        cells, devices = self.cells_of[i], self.program.spaces[i].devices
        times = len(cells) // len(devices)
        if times > 1:
            devices, size = np.repeat(devices, times), np.repeat(size, times)
        return BufferRows(kind, i, devices, size, allocated[cells], released[cells])

    def recomputed_together(self, u: int, v: int) -> bool:
        """Return whether two layers lie in one segment that is recomputed."""
        return bool(self.segments[u] >= 0 and self.segments[u] == self.segments[v])

    def channels(self, i: int) -> float:
        """Return the channels of each part of a layer."""
        space = self.program.spaces[i]
        return float(space.output.size("channel") / space.degrees[0, 1])
