"""One rank's view of a program: its tasks in order, what it sends and receives, and what it assembles.

A rank is a device of the program.  Everything here is read off the program's tasks, their boxes and their
dependencies; nothing is derived a second time.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from executor.boxes import Box
from planner.configurations import ConfigSpace
from planner.graph import Edge
from planner.program import KINDS, Program
from planner.regions import held, needed

__all__ = ["JOIN_BYTES", "Input", "Message", "RankProgram", "messages_of"]

Ints = NDArray[np.int64]

JOIN_BYTES = 64 * 1024
"""Regions of one tensor for one rank, ready at once, travel as one message up to this size: a message costs gloo
about 0.4 ms, which is 64 KB at the 150 MB/s that it moves in messages of that size."""

_TRANSFER, _COLLECTIVE = KINDS.index("transfer"), KINDS.index("collective")


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

    @property
    def elements(self) -> int:
        """Numbers in all regions."""
        return sum(box.elements for box in self.boxes)


@dataclass(frozen=True, slots=True)
class Input:
    """A tensor in the layout in which parts of some of its consumers read it, on one rank."""

    edge: Edge
    """The edge whose transfers bring it."""
    box: Box
    own: Box
    """The region that the rank's own part of the producer holds; empty where it holds none."""
    readers: tuple[Edge, ...]
    """Edges whose consumers read it, in order."""


def part_box(space: ConfigSpace, part: int) -> Box:
    """Region of the layer's output that a part holds."""
    boxes = held(space)
    return Box(tuple(boxes.low[part].tolist()), tuple(boxes.high[part].tolist()))


def needed_box(program: Program, edge: Edge, part: int) -> Box:
    """Region of a tensor that a part of its consumer needs."""
    layer, source = program.graph.layers[edge.consumer], program.graph.layers[edge.producer].output
    boxes = needed(program.spaces[edge.consumer], layer.operation.needs(edge.slot, layer.input_shapes), source)
    return Box(tuple(boxes.low[part].tolist()), tuple(boxes.high[part].tolist()))


def messages_of(program: Program, *, join_bytes: int = JOIN_BYTES) -> list[Message]:
    """All messages of an iteration, in the order in which ranks send them.

    Args:
        program: Lowered with its collectives as activities.
        join_bytes: Regions of one tensor and phase between the same two ranks are joined up to this size.
    """
    phases = _phases(program)
    rows: dict[tuple[int, int, int, int], list[list[int]]] = {}
    size = program.size_bytes
    for task in np.flatnonzero(program.kind == _TRANSFER).tolist():
        key = (phases[task], int(program.layer[task]), int(program.device[task]), int(program.peer[task]))
        joined = rows.setdefault(key, [])
        if joined and size[joined[-1]].sum() + size[task] <= join_bytes:
            joined[-1].append(task)
        else:
            joined.append([task])
    found = []
    for (phase, layer, source, target), messages in rows.items():
        dims = len(program.graph.layers[layer].output.sizes)
        for tasks in messages:
            boxes = tuple(
                Box(tuple(program.box_low[t, :dims].tolist()), tuple(program.box_high[t, :dims].tolist()))
                for t in tasks
            )
            found.append(Message(tuple(tasks), source, target, phase, boxes))
    return sorted(found, key=lambda message: (message.phase, message.tasks))


def _phases(program: Program) -> dict[int, int]:
    """For every transfer the last group that a transfer of its own group waits for."""
    last: dict[int, int] = {}
    transfers = np.flatnonzero(program.kind == _TRANSFER)
    for task in transfers.tolist():
        waits = program.after[program.after_start[task] : program.after_start[task + 1]]
        group = int(program.group[task])
        last[group] = max(last.get(group, -1), int(program.group[waits].max()))
    return {task: last[int(program.group[task])] for task in transfers.tolist()}


@dataclass(frozen=True)
class RankProgram:
    """What one rank does in an iteration."""

    program: Program
    rank: int
    messages: Sequence[Message]
    """Of all ranks, from ``messages_of``."""

    @cached_property
    def tasks(self) -> list[int]:
        """Arithmetic and collectives of this rank, in program order."""
        program = self.program
        mine = program.is_compute & (program.device == self.rank)
        for task, collective in program.collectives.items():
            mine[task] = self.rank in collective.devices
        return list(map(int, np.flatnonzero(mine)))

    @cached_property
    def part(self) -> list[int]:
        """By layer, the part that the rank holds; -1 where it holds none."""
        rows = [np.flatnonzero(space.devices == self.rank) for space in self.program.spaces]
        return [int(row[0]) if len(row) else -1 for row in rows]

    def held(self, layer: int) -> Box:
        """Region of a layer's output that the rank holds; empty where it holds no part."""
        return self._held[layer]

    @cached_property
    def _held(self) -> list[Box]:
        program = self.program
        nothing = [Box(zeros, zeros) for zeros in ((0,) * len(row.output.sizes) for row in program.graph.layers)]
        return [
            part_box(space, part) if part >= 0 else empty
            for space, part, empty in zip(program.spaces, self.part, nothing, strict=True)
        ]

    @cached_property
    def inputs(self) -> dict[Edge, Input]:
        """By the edge that brings it, every tensor that the rank's parts read."""
        readers: dict[Edge, list[Edge]] = defaultdict(list)
        for edge, by in self.program.delivered_by.items():
            readers[by].append(edge)
        found = {}
        for edge, edges in readers.items():
            part = self.part[edge.consumer]
            if part >= 0:
                box = needed_box(self.program, edge, part)
                found[edge] = Input(edge, box, box & self.held(edge.producer), tuple(edges))
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
    def edge_of(self) -> dict[int, Edge]:
        """The edge whose tensor each transfer of this rank brings or takes back."""
        edges = {(by.producer, by.consumer, by.slot): by for by in self.program.delivered_by.values()}
        program = self.program
        mine = np.flatnonzero(
            (program.kind == _TRANSFER) & ((program.device == self.rank) | (program.peer == self.rank))
        )
        keys = zip(
            program.layer[mine].tolist(), program.consumer[mine].tolist(), program.slot[mine].tolist(), strict=True
        )
        return {task: edges[key] for task, key in zip(mine.tolist(), keys, strict=True)}


def _by_phase(messages: Iterable[Message]) -> dict[int, list[Message]]:
    rows: dict[int, list[Message]] = defaultdict(list)
    for message in messages:
        rows[message.phase].append(message)
    return dict(rows)
