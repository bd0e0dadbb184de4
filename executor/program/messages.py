"""Messages between ranks: regions of tensors and of their gradients, in the order in which all ranks send them."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from executor.program.rank_parts import InputKey
from executor.runtime.boxes import Box
from planner.compression.data_types import Compression
from planner.graph.computation_graph import Edge
from planner.lowering.program import KINDS, Program
from planner.lowering.send_phases import phases
from planner.memory.cpu_backend import MESSAGE_JOIN_BYTES

_TRANSFER = KINDS.index("transfer")


@dataclass(frozen=True, slots=True)
class Message:
    """Regions that travel together from one rank to another; each is the content of one transfer task."""

    tasks: tuple[int, ...]
    source: int
    target: int
    phase: int
    """Group of tasks after which the message is sent; all ranks send and receive in the order of the phases."""
    boxes: tuple[Box, ...]
    """Region of the tensor that each task transfers."""
    sizes: tuple[int, ...]
    """Bytes that each region takes in the message."""
    kind: Compression | None = None
    """Compression of each region; None where the elements are sent as they are."""

    @property
    def elements(self) -> int:
        """Number of elements in all regions."""
        return sum(box.elements for box in self.boxes)


@dataclass(frozen=True)
class RankMessages:
    """The messages that one rank sends and receives in an iteration."""

    program: Program
    rank: int
    all_messages: Sequence[Message]
    """Messages of all ranks, from ``region_messages_of``."""

    @cached_property
    def outgoing(self) -> dict[int, list[Message]]:
        """Messages that the rank sends, by phase."""
        return _by_phase(message for message in self.all_messages if message.source == self.rank)

    @cached_property
    def incoming(self) -> dict[int, list[Message]]:
        """Messages that the rank receives, by phase."""
        return _by_phase(message for message in self.all_messages if message.target == self.rank)

    @cached_property
    def received(self) -> list[Message]:
        """Messages that the rank receives, in the order of their phases."""
        return [message for phase in sorted(self.incoming) for message in self.incoming[phase]]

    @cached_property
    def input_key(self) -> dict[int, InputKey]:
        """Key of the input tensor that each transfer of the rank delivers, or whose gradient it takes back.

        Transfers of shared parameters and of their gradients have none.  Gradients of one tensor whose layouts differ
        travel apart, those of each layout by the edge of its first reader.
        """
        program = self.program
        mine = np.flatnonzero(
            (program.kind == _TRANSFER)
            & ~program.moves_parameters
            & ((program.device == self.rank) | (program.peer == self.rank))
        )
        keys = zip(
            program.layer[mine].tolist(), program.consumer[mine].tolist(), program.slot[mine].tolist(), strict=True
        )
        rows = zip(mine.tolist(), keys, program.micro_batch[mine].tolist(), strict=True)
        return {task: (program.transferred_by[Edge(*key)], s) for task, key, s in rows}


def region_messages_of(program: Program, *, join_bytes: int = MESSAGE_JOIN_BYTES) -> list[Message]:
    """Return all messages of an iteration, in the order in which ranks send them.

    Regions of different micro-batches are never joined: the message of one does not wait for another's.

    Args:
        program: Lowered with its collectives as activities.
        join_bytes: Regions of one tensor and phase between the same two ranks are joined up to this size.
    """
    phase = phases(program).tolist()
    rows: dict[tuple[int, ...], list[list[int]]] = {}
    parameters = program.moves_parameters
    size = program.size_bytes
    for task in np.flatnonzero(program.kind == _TRANSFER).tolist():
        micro_batch, layer = int(program.micro_batch[task]), int(program.layer[task])
        way = (int(program.consumer[task]), int(program.slot[task])) if parameters[task] else (-1, -1)
        key = (phase[task], int(program.device[task]), int(program.peer[task]), micro_batch, layer, *way)
        # a region joins the last message of its key, or begins the next one
        joined = rows.setdefault(key, [])
        if joined and size[joined[-1]].sum() + size[task] <= join_bytes:
            joined[-1].append(task)
        else:
            joined.append([task])
    messages = [
        _message(program, tasks, source=source, target=target, phase=sent_after)
        for (sent_after, source, target, *_), joined in rows.items()
        for tasks in joined
    ]
    return sorted(messages, key=lambda message: (message.phase, message.tasks))


def _message(program: Program, tasks: Sequence[int], *, source: int, target: int, phase: int) -> Message:
    """Return the message that carries the regions of some transfers of one layer's output or its gradient."""
    layer = int(program.layer[tasks[0]])
    dims = program.tensor_dims(tasks[0])
    return Message(
        tuple(tasks),
        source,
        target,
        phase,
        boxes=tuple(
            Box(tuple(program.region_low[t, :dims].tolist()), tuple(program.region_high[t, :dims].tolist()))
            for t in tasks
        ),
        sizes=tuple(int(program.size_bytes[t]) for t in tasks),
        kind=None if program.moves_parameters[tasks[0]] else program.compressed.activation(program.graph, layer),
    )


def _by_phase(messages: Iterable[Message]) -> dict[int, list[Message]]:
    rows: dict[int, list[Message]] = defaultdict(list)
    for message in messages:
        rows[message.phase].append(message)
    return dict(rows)
