"""One rank's view of a program: its tasks in order, its parts of layers, its messages, and its input tensors.

Everything here is read off the program's tasks, their boxes and their dependencies; nothing is derived a second time.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from executor.program.messages import Message, RankMessages
from executor.program.rank_parts import InputKey, LayerUnit, RankParts
from executor.program.rank_storage import RankStorage
from executor.program.redistributions import (
    RankRedistribution,
    RedistributionKey,
    completions_of,
    redistributions_of,
    returned_by,
)
from executor.runtime.boxes import Box
from planner.graph.computation_graph import Edge
from planner.lowering.program import KINDS, Program

_COMPRESS = KINDS.index("compress")


@dataclass(frozen=True, slots=True)
class InputTensor:
    """A tensor in the layout in which the rank's parts of some consumers read it."""

    edge: Edge
    """The edge whose transfers deliver it."""
    micro_batch: int
    source: LayerUnit
    """The unit that computes it."""
    box: Box
    """The region that the consumers read."""
    own: Box
    """The region of ``box`` that the rank's own part of the producer computes; empty where it computes none."""
    frame: Box
    """The whole part of the producer, from ``RankParts.frame``.  Where the producer computes the whole mini-batch and
    the consumers a micro-batch of it, rows before and after ``own`` belong to other micro-batches."""
    readers: tuple[Edge, ...]
    """Edges whose consumers read it, in order."""

    @property
    def key(self) -> InputKey:
        """Key in ``RankProgram.inputs``."""
        return self.edge, self.micro_batch


@dataclass(frozen=True)
class RankProgram:
    """The tasks, parts, messages and input tensors of one rank in an iteration.

    A rank is a device of the program.
    """

    program: Program
    rank: int
    all_messages: Sequence[Message]
    """Messages of all ranks, from ``region_messages_of``."""

    @cached_property
    def parts(self) -> RankParts:
        """Parts of layers that the rank computes."""
        return RankParts(self.program, self.rank)

    @cached_property
    def storage(self) -> RankStorage:
        """Units of parameters, gradients and optimizer state of which the rank keeps a shard."""
        return RankStorage(self.program, self.rank, self.parts)

    @cached_property
    def messages(self) -> RankMessages:
        """Messages that the rank sends and receives."""
        return RankMessages(self.program, self.rank, self.all_messages)

    @cached_property
    def tasks(self) -> list[int]:
        """Arithmetic, compression and collectives of the rank in program order, without the compression of messages.

        The compression of messages between parts runs when the messages are sent.
        """
        program = self.program
        mine = program.is_compute & (program.device == self.rank)
        mine &= (program.kind != _COMPRESS) | (program.consumer < 0)
        for task, collective in program.collectives.items():
            mine[task] = self.rank in collective.devices
        return list(map(int, np.flatnonzero(mine)))

    def before(self, task: int) -> list[int]:
        """Return the tasks of the same iteration that a task waits for."""
        program = self.program
        return list(map(int, program.after[program.after_start[task] : program.after_start[task + 1]]))

    def edge_of(self, task: int) -> Edge:
        """Return the edge, or the way of a shared parameter, that a transfer or a collective of activations belongs to.

        Of a gradient that is the edge of the first reader whose gradients it sums.
        """
        program = self.program
        return Edge(int(program.layer[task]), int(program.consumer[task]), int(program.slot[task]))

    def compress_task_of(self, transfer: int) -> int:
        """Return the compress task whose result a transfer sends."""
        return self.before(transfer)[0]

    @cached_property
    def returned_by(self) -> dict[Edge, Edge]:
        """Edge whose tasks bring the gradient of a tensor back to its producer, by edge."""
        return returned_by(self.program)

    @cached_property
    def redistributions(self) -> list[RankRedistribution]:
        """Tensors and gradients that collectives bring to the rank, in the order in which all ranks begin them."""
        return redistributions_of(self.program, self.rank)

    @cached_property
    def completions(self) -> dict[RedistributionKey, RankRedistribution]:
        """Sums that the rank completes with others within layers, and gathers of their gradients."""
        return completions_of(self.program, self.rank)

    @cached_property
    def inputs(self) -> dict[InputKey, InputTensor]:
        """Every tensor that the rank's parts read, by the edge that delivers it and the micro-batch."""
        readers: dict[Edge, list[Edge]] = defaultdict(list)
        for edge, by in self.program.transferred_by.items():
            readers[by].append(edge)
        inputs, parts, micro_batching = dict[InputKey, InputTensor](), self.parts, self.program.micro_batching
        for edge, edges in readers.items():
            if parts.index[edge.consumer] < 0:
                continue
            box = parts.needed(edge.consumer, edge.slot)
            for s in range(micro_batching.of(edge.consumer)):
                source = edge.producer, s if micro_batching.of(edge.producer) > 1 else 0
                own, frame = box & parts.held_for(edge), parts.frame((edge, s))
                inputs[edge, s] = InputTensor(edge, s, source, box, own, frame, tuple(edges))
        return inputs
