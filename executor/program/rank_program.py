"""One rank's view of a program: its tasks in order, what it sends and receives, and what it assembles.

A rank is a device of the program.  Everything here is read off the program's tasks, their boxes and their
dependencies; nothing is derived a second time.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from executor.runtime import BatchSamples, Box
from planner.compression import Compression
from planner.graph import ComputationGraph, Edge
from planner.lowering import KINDS, MESSAGE_JOIN_BYTES, Program, phases
from planner.parallel import Boxes, ConfigSpace, held, interleaved, needed

__all__ = ["Delivered", "Input", "LayerUnit", "Message", "RankProgram", "region_messages_of"]

LayerUnit = tuple[int, int]
"""A layer and a sub-batch of it; 0 where the layer takes the whole batch."""
Delivered = tuple[Edge, int]
"""The edge whose transfers bring a tensor, and the sub-batch that its consumer reads; 0 for the whole batch."""

_TRANSFER, _COMPRESS = KINDS.index("transfer"), KINDS.index("compress")


@dataclass(frozen=True, slots=True)
class Message:
    """Regions that travel together from one rank to another, one a transfer task."""

    tasks: tuple[int, ...]
    source: int
    target: int
    phase: int
    """Group of tasks after which it is sent; all ranks send and receive in the order of the phases."""
    boxes: tuple[Box, ...]
    """Region of the tensor that each task moves."""
    sizes: tuple[int, ...]
    """Bytes that each takes on the way."""
    kind: Compression | None = None
    """What each region is encoded with; None where numbers travel as they are."""

    @property
    def elements(self) -> int:
        """Numbers in all regions."""
        return sum(box.elements for box in self.boxes)


@dataclass(frozen=True, slots=True)
class Input:
    """A tensor in the layout in which parts of some of its consumers read it, on one rank."""

    edge: Edge
    """The edge whose transfers bring it."""
    sub_batch: int
    source: LayerUnit
    """What makes it."""
    box: Box
    own: Box
    """The region that the rank's own part of the producer holds; empty where it holds none."""
    frame: Box
    """Where all that this part holds lies, in the coordinates of what is read: of this sub-batch, rows before and
    behind ``own`` belong to others."""
    readers: tuple[Edge, ...]
    """Edges whose consumers read it, in order."""

    @property
    def key(self) -> Delivered:
        """In ``RankProgram.inputs``."""
        return self.edge, self.sub_batch


def part_box(space: ConfigSpace, part: int) -> Box:
    """Region of the layer's output that a part holds."""
    return _box_of(held(space), part)


def _box_of(boxes: Boxes, part: int) -> Box:
    return Box(tuple(boxes.low[part].tolist()), tuple(boxes.high[part].tolist()))


def region_messages_of(program: Program, *, join_bytes: int = MESSAGE_JOIN_BYTES) -> list[Message]:
    """All messages of an iteration, in the order in which ranks send them.

    Those of different sub-batches stay apart: none waits for another's.

    Args:
        program: Lowered with its collectives as activities.
        join_bytes: Regions of one tensor and phase between the same two ranks are joined up to this size.
    """
    phase = phases(program).tolist()
    rows: dict[tuple[int, int, int, int, int], list[list[int]]] = {}
    size = program.size_bytes
    for task in np.flatnonzero(program.kind == _TRANSFER).tolist():
        sub_batch, layer = int(program.sub_batch[task]), int(program.layer[task])
        key = (phase[task], sub_batch, layer, int(program.device[task]), int(program.peer[task]))
        joined = rows.setdefault(key, [])
        if joined and size[joined[-1]].sum() + size[task] <= join_bytes:
            joined[-1].append(task)
        else:
            joined.append([task])
    found = []
    for (sent_after, _, layer, source, target), messages in rows.items():
        dims = len(program.graph.layers[layer].output.sizes)
        kind = program.compressed.activation(program.graph, layer)
        for tasks in messages:
            boxes = tuple(
                Box(tuple(program.box_low[t, :dims].tolist()), tuple(program.box_high[t, :dims].tolist()))
                for t in tasks
            )
            sizes = tuple(int(size[task]) for task in tasks)
            found.append(Message(tuple(tasks), source, target, sent_after, boxes, sizes, kind))
    return sorted(found, key=lambda message: (message.phase, message.tasks))


@dataclass(frozen=True)
class RankProgram:
    """What one rank does in an iteration."""

    program: Program
    rank: int
    messages: Sequence[Message]
    """Of all ranks, from ``region_messages_of``."""

    @cached_property
    def tasks(self) -> list[int]:
        """Arithmetic, coding and collectives of this rank, in program order, but for what sending encodes."""
        program = self.program
        mine = program.is_compute & (program.device == self.rank)
        mine &= (program.kind != _COMPRESS) | (program.consumer < 0)
        for task, collective in program.collectives.items():
            mine[task] = self.rank in collective.devices
        return list(map(int, np.flatnonzero(mine)))

    @cached_property
    def part(self) -> list[int]:
        """By layer, the part that the rank holds; -1 where it holds none."""
        rows = [np.flatnonzero(space.devices == self.rank) for space in self.program.spaces]
        return [int(row[0]) if len(row) else -1 for row in rows]

    @cached_property
    def _cut_graph(self) -> ComputationGraph:
        graph, micro_batching = self.program.graph, self.program.micro_batching
        return graph.with_batch(graph.batch // micro_batching.parts) if micro_batching.parts > 1 else graph

    def graph_of(self, layer: int) -> ComputationGraph:
        """The network with as many samples as a layer takes at once."""
        return self._cut_graph if self.program.micro_batching.of(layer) > 1 else self.program.graph

    def space_of(self, layer: int) -> ConfigSpace:
        """A layer's configuration, of what it takes at once."""
        return (self.program.sub_spaces if self.program.micro_batching.of(layer) > 1 else self.program.spaces)[layer]

    def samples_of(self, unit: LayerUnit) -> BatchSamples:
        """Which samples the tensors of a unit hold."""
        program, (layer, sub_batch) = self.program, unit
        if program.micro_batching.of(layer) == 1:
            return BatchSamples(batch=program.graph.batch)
        pieces = interleaved(program.graph, program.spaces, program.micro_batching)
        return BatchSamples(
            batch=program.graph.batch, parts=program.micro_batching.parts, pieces=pieces, sub_batch=sub_batch
        )

    def units(self, layer: int) -> list[LayerUnit]:
        """All of a layer."""
        return [(layer, s) for s in range(self.program.micro_batching.of(layer))]

    def unit_of(self, task: int) -> LayerUnit:
        """What computes; of a transfer, what makes the tensor."""
        layer = int(self.program.layer[task])
        return layer, int(self.program.sub_batch[task]) if self.program.micro_batching.of(layer) > 1 else 0

    def before(self, task: int) -> list[int]:
        """Tasks of the same iteration that a task waits for."""
        program = self.program
        return list(map(int, program.after[program.after_start[task] : program.after_start[task + 1]]))

    def encoding_of(self, transfer: int) -> int:
        """The compress task that makes what a transfer of codes sends."""
        return self.before(transfer)[0]

    def held(self, layer: int) -> Box:
        """Region of a layer's output, of what it makes at once, that the rank holds; empty where it holds no part."""
        return self._held[layer]

    @cached_property
    def _held(self) -> list[Box]:
        return [self._part_box(i, self.space_of(i)) for i in range(len(self.part))]

    @cached_property
    def _held_of_sub_batch(self) -> list[Box]:
        return [self._part_box(i, space) for i, space in enumerate(self.program.sub_spaces)]

    def _part_box(self, layer: int, space: ConfigSpace) -> Box:
        nothing = (0,) * len(self.program.graph.layers[layer].output.sizes)
        return part_box(space, self.part[layer]) if self.part[layer] >= 0 else Box(nothing, nothing)

    def _given(self, edge: Edge) -> Box:
        """Region of what a consumer reads that the rank's part of the producer holds."""
        behind = self.program.micro_batching.of(edge.consumer) > 1
        return (self._held_of_sub_batch if behind else self._held)[edge.producer]

    def frame(self, delivered: Delivered) -> Box:
        """Where all of the rank's part of a producer lies, in the coordinates of what a consumer reads."""
        (edge, sub_batch), micro_batching = delivered, self.program.micro_batching
        given = self._given(edge)
        if micro_batching.of(edge.producer) == micro_batching.of(edge.consumer):
            return given
        rows = given.high[0] - given.low[0]  # the part's samples of one sub-batch after another
        low = given.low[0] - sub_batch * rows
        return Box((low, *given.low[1:]), (low + micro_batching.parts * rows, *given.high[1:]))

    def needed(self, layer: int, slot: int) -> Box:
        """Region of a layer's input, of what it takes at once, that the rank's part reads."""
        row = self.graph_of(layer).layers[layer]
        boxes = needed(self.space_of(layer), row.operation.needs(slot, row.input_shapes), row.input_shapes[slot])
        return _box_of(boxes, self.part[layer])

    @cached_property
    def inputs(self) -> dict[Delivered, Input]:
        """By the edge that brings it and the sub-batch, every tensor that the rank's parts read."""
        readers: dict[Edge, list[Edge]] = defaultdict(list)
        for edge, by in self.program.delivered_by.items():
            readers[by].append(edge)
        found, micro_batching = {}, self.program.micro_batching
        for edge, edges in readers.items():
            if self.part[edge.consumer] < 0:
                continue
            box = self.needed(edge.consumer, edge.slot)
            for s in range(micro_batching.of(edge.consumer)):
                source = edge.producer, s if micro_batching.of(edge.producer) > 1 else 0
                own, frame = box & self._given(edge), self.frame((edge, s))
                found[edge, s] = Input(edge, s, source, box, own, frame, tuple(edges))
        return found

    @cached_property
    def outgoing(self) -> dict[int, list[Message]]:
        """By phase, what the rank sends after it."""
        return _by_phase(message for message in self.messages if message.source == self.rank)

    @cached_property
    def incoming(self) -> dict[int, list[Message]]:
        """By phase, what the others send to the rank after it."""
        return _by_phase(message for message in self.messages if message.target == self.rank)

    @cached_property
    def edge_of(self) -> dict[int, Delivered]:
        """The edge and the sub-batch whose tensor each transfer of this rank brings or takes back."""
        edges = {(by.producer, by.consumer, by.slot): by for by in self.program.delivered_by.values()}
        program = self.program
        mine = np.flatnonzero(
            (program.kind == _TRANSFER) & ((program.device == self.rank) | (program.peer == self.rank))
        )
        keys = zip(
            program.layer[mine].tolist(), program.consumer[mine].tolist(), program.slot[mine].tolist(), strict=True
        )
        parts = program.sub_batch[mine].tolist()
        return {task: (edges[key], s) for task, key, s in zip(mine.tolist(), keys, parts, strict=True)}


def _by_phase(messages: Iterable[Message]) -> dict[int, list[Message]]:
    rows: dict[int, list[Message]] = defaultdict(list)
    for message in messages:
        rows[message.phase].append(message)
    return dict(rows)
