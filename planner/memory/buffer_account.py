"""What the buffers of a program are, before any moment is known: parts, parameters and tensors as parts read them."""

from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from hwprofiles import Bools, Floats, Ints
from planner.lowering import KINDS, InputLayout, Program, SendPhases, input_layouts_of, unit_of
from planner.memory.buffers import Buffers
from planner.memory.memory_policy import MemoryPolicy, PartMemory, part_memories
from planner.memory.message_copies import are_copies

__all__ = ["Account", "BufferRows", "parameter_bytes", "residuals"]

_COLLECTIVE, _TRANSFER = KINDS.index("collective"), KINDS.index("transfer")


def parameter_bytes(program: Program, layer: int) -> float:
    """Bytes of a layer's parameters on each device that holds some."""
    channel = int(program.spaces[layer].shards[0, 1])
    parameters = program.graph.layers[layer].parameters
    return float(sum(p.elements / (channel if p.split else 1) for p in parameters) * program.graph.element_bytes)


def residuals(program: Program) -> list[tuple[int, int]]:
    """Pairs (layer, device) that keep what codes of the layer's gradients leave out: a number for every gradient."""
    coded = np.flatnonzero(program.is_codec & (program.consumer < 0))
    pairs = sorted(set(zip(program.layer[coded].tolist(), program.device[coded].tolist(), strict=True)))
    kinds = {i: program.compressed.gradient(program.graph, i) for i, _ in pairs}
    return [(i, device) for i, device in pairs if (kind := kinds[i]) is not None and kind.feedback]


@dataclass(frozen=True, slots=True, eq=False)
class BufferRows:
    """All deliveries, one after another, as columns of shape (R,)."""

    layer: Ints
    """Producer."""
    device: Ints
    source: Ints
    """Cell of the device's own part of the producer; -1 where it holds none."""
    size: Floats
    own: Bools
    """Whether that part holds some of the region."""
    covers: Bools

    @classmethod
    def of(cls, input_layouts: list[InputLayout], element_bytes: int) -> "BufferRows":
        """Of the deliveries of a program."""
        columns = [
            (
                np.full(len(d.part), d.edge.producer), d.device, d.source, d.elements * float(element_bytes),
                d.own > 0, d.covers,
            )
            for d in input_layouts
        ]  # fmt: skip
        empty = np.empty(0, dtype=np.int64)
        joined = [np.concatenate(column) for column in zip(*columns, strict=True)] if columns else [empty] * 6
        return cls(*joined[:4], *(column.astype(bool) for column in joined[4:]))

    def __len__(self) -> int:
        return len(self.layer)


class Account:
    """What a program's devices hold, whenever it is that they hold it.

    Args:
        program: What runs.
        keeping: What is kept beside the tensors of the network.
    """

    def __init__(self, program: Program, memory_policy: MemoryPolicy) -> None:
        self.program, self.memory_policy, graph = program, memory_policy, program.graph
        layers = len(graph.layers)
        self.devices = len(program.cluster.devices)
        self.parts: list[PartMemory] = part_memories(program, memory_policy)
        self.held_bytes = np.array([parameter_bytes(program, i) for i in range(layers)])
        """By layer, of its parameters on each device that holds some."""
        self.segments = np.array(program.segments)
        self.holds = (self.segments >= 0).astype(int)
        """By layer, which of its forward tasks makes what the backward pass reads: the first or the second."""
        summed = (program.kind == _COLLECTIVE) & ~program.statistics
        self.exchanged = np.bincount(program.layer[summed], minlength=layers) > 0
        """By layer, whether its gradients are exchanged."""
        self.places = {i: program.spaces[i].devices for i in range(layers) if graph.has_phase(i, "update")}
        """By layer with parameters, the devices that hold them."""
        self.cells_of = [self._cells(i) for i in range(layers)]
        """By layer, its cells, part by part."""
        self.input_layouts: list[InputLayout] = input_layouts_of(program)
        self.rows = BufferRows.of(self.input_layouts, graph.element_bytes)
        bounds = np.concatenate([[0], np.cumsum([len(d.part) for d in self.input_layouts])]).astype(int).tolist()
        self.rows_of = [slice(*pair) for pair in pairwise(bounds)]
        """By delivery, its place in the rows."""
        self.waiting = program.waiting
        """The task that waits, for each entry of ``program.after``."""
        self.departures = SendPhases(program)
        moves = np.flatnonzero(program.kind == _TRANSFER)
        self.copied = np.zeros(program.size, dtype=bool)
        """By task, whether it is a transfer that sends a copy of its numbers where it sends no codes."""
        self.copied[moves] = are_copies(program, self.parts, moves)

    def _cells(self, i: int) -> Ints:
        devices, subs = self.program.spaces[i].devices, np.arange(self.program.micro_batching.of(i))
        device, micro_batch = np.repeat(devices, len(subs)), np.tile(subs, len(devices))
        return unit_of(self.program, np.full(len(device), i), device, micro_batch)

    def by_cell(self, kind: str, i: int, size: Floats, birth: Floats, death: Floats) -> Buffers:
        """Buffers of a layer: sizes by part, moments by cell of all layers."""
        cells, devices = self.cells_of[i], self.program.spaces[i].devices
        times = len(cells) // len(devices)
        return Buffers.made(kind, i, np.repeat(devices, times), np.repeat(size, times), birth[cells], death[cells])

    def inside(self, u: int, v: int) -> bool:
        """Whether two layers are recomputed together."""
        return bool(self.segments[u] >= 0 and self.segments[u] == self.segments[v])

    def channels(self, i: int) -> float:
        """Channels of each part of a layer."""
        space = self.program.spaces[i]
        return float(space.output.size("channel") / space.degrees[0, 1])
