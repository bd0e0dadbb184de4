"""Gradients of activations in memory: those of the tensors that a rank reads, until they are summed up or sent."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from executor.communication.received_regions import ReceivedRegions
from executor.communication.redistributor import Redistributor
from executor.layers.kernels.layout import memory_order
from executor.program.input_consumers import Consumers
from executor.program.messages import Message
from executor.program.rank_parts import InputKey, LayerUnit
from executor.program.rank_program import InputTensor, RankProgram
from executor.program.redistributions import RankRedistribution
from executor.runtime.boxes import Box
from planner.graph.computation_graph import Edge
from planner.lowering.program import KINDS

_TRANSFER = KINDS.index("transfer")


class _LocalTerm(NamedTuple):
    """The gradient that consumers on the rank contribute to the gradient of its part of an output."""

    key: InputKey
    """Key of the gradient, as of ``RankProgram.returned_by``."""
    redistributed: bool
    """True if collectives bring the gradient of the whole part."""
    place: int
    """Place of the rank's part among those of the consumers that do not compute the same."""
    slices: tuple[slice, ...] | None
    """The part's region in the tensor that they read; None: the region is the whole tensor."""
    target: tuple[slice, ...]
    """The region of the part that they read."""
    covers: bool
    """True if that is the whole part."""


class GradientStore:
    """Gradients of tensors in the layouts in which the rank reads them, and their sums for the rank's own parts."""

    def __init__(
        self,
        view: RankProgram,
        consumers: Consumers,
        received: ReceivedRegions,
        redistributor: Redistributor,
        *,
        dtype: torch.dtype,
        device: torch.device,
    ) -> None:
        self._view, self._received, self._inputs_of = view, received, consumers.inputs_of
        self._redistributor = redistributor
        self._dtype, self._device = dtype, device
        graph = view.program.graph
        self._trained = [graph.has_gradient(i) for i in range(len(graph.layers))]
        self._terms: dict[LayerUnit, list[_LocalTerm]] = defaultdict(list)
        """Terms of the gradient of each unit's output; those that cover the whole part come first."""
        for unit, rows in consumers.inputs_from.items():
            terms = [term for row in rows for term in self._terms_of(row)]
            self._terms[unit] = sorted(terms, key=lambda term: not term.covers)
        program = view.program
        sent_back = np.flatnonzero((program.kind == _TRANSFER) & program.backward)
        self._copied = {i for i in program.layer[sent_back].tolist() if program.spaces[i].has_copies}
        """Layers of which several ranks need the same gradient, to which regions of it travel one by one."""
        self._incoming: dict[LayerUnit, list[Message]] = defaultdict(list)
        parameters = view.program.moves_parameters
        for message in view.messages.received:
            if view.program.backward[message.tasks[0]] and not parameters[message.tasks[0]]:
                self._incoming[view.parts.unit_of(message.tasks[0])].append(message)
        self.clear()

    def _terms_of(self, row: InputTensor) -> Iterator[_LocalTerm]:
        """Yield the terms of the consumers of one tensor on the rank, those that are summed first as one."""
        view = self._view
        redistributed = {each.key for each in view.redistributions}
        for edge in dict.fromkeys(view.returned_by[reader] for reader in row.readers):
            collective = (edge, row.micro_batch, True, False) in redistributed
            own = view.parts.held_for(edge) if collective else row.own
            if own.elements:
                yield _LocalTerm(
                    key=(edge, row.micro_batch),
                    redistributed=collective,
                    place=-1 if collective else self._place(edge, view.rank),
                    slices=None if collective or own == row.box else own.within(row.box),
                    target=own.within(row.frame),
                    covers=own == row.frame,
                )

    def _place(self, edge: Edge, device: int) -> int:
        """Return the place of a device's part of a consumer among those that do not compute the same."""
        space = self._view.program.spaces[edge.consumer]
        return int(np.flatnonzero(space.devices == device)[0]) // int(space.repeats[0])

    def clear(self) -> None:
        """Begin an iteration."""
        self._gradients: dict[InputKey, Tensor] = {}

    def wait(self, unit: LayerUnit) -> None:
        """Wait for what other ranks send of the gradient of a unit's output."""
        for message in self._incoming[unit]:
            self._received.wait(message)
        for term in self._terms[unit]:
            if term.redistributed:
                self._redistributor.wait((*term.key, True, False))

    def add(self, unit: LayerUnit, slot: int, gradient: Tensor) -> None:
        """Add the gradient of one of a unit's inputs to those of the tensor's other consumers."""
        row = self._inputs_of[unit][slot]
        if row is not None and self._trained[row.edge.producer]:
            key = self._view.returned_by[Edge(row.edge.producer, unit[0], slot)], row.micro_batch
            before = self._gradients.get(key)
            self._gradients[key] = gradient if before is None else before + gradient

    def redistribute(self, row: RankRedistribution, *, overlap: bool) -> None:
        """Begin to bring a gradient, summed over its consumers on the rank, back; wait for that without ``overlap``."""
        self._redistributor.begin(row, self._gradients.pop((row.edge, row.micro_batch)), overlap=overlap)

    def take(self, unit: LayerUnit, output_order: Sequence[int]) -> Tensor:
        """Return the gradient of the rank's part of an output, summed over its consumers on all ranks, and release it.

        No gradient of a consumer is written: other tensors may be views of it.

        Args:
            unit: The unit that computes the output.
            output_order: Dimensions of the output by their place in memory, as the derivatives of the unit read its
                gradient; empty where they read any.
        """
        terms, messages = self._terms[unit], self._incoming[unit]
        gradients = [
            self._redistributor.take((*term.key, True, False)) if term.redistributed else self._gradients.pop(term.key)
            for term in terms
        ]
        regions = [
            gradient if term.slices is None else gradient[term.slices]
            for term, gradient in zip(terms, gradients, strict=True)
        ]
        # start from a term that covers the part, or from the sum of two, which saves a pass over zeros or a copy
        copies = unit[0] in self._copied
        covering = 0 if copies else sum(term.covers for term in terms)
        if covering == 1 and len(terms) == 1 and not messages:
            return regions[0]
        if covering > 1:
            whole, added = regions[0] + regions[1], 2
        elif covering:
            whole, added = regions[0].clone(), 1
        else:
            shape = self._view.parts.held(unit[0]).shape
            first = memory_order(regions[0]) if regions and not copies else [*range(len(shape))]
            order = [*output_order] or first
            whole, added = torch.empty_permuted(shape, order, dtype=self._dtype, device=self._device).zero_(), 0
        adds = [
            (*term.key, term.place, term.target, region)
            for term, region in zip(terms[added:], regions[added:], strict=True)
        ]
        parts, keys, tasks = self._view.parts, self._view.messages.input_key, list[int]()
        for message in messages:
            for task, box in zip(message.tasks, message.boxes, strict=True):
                edge, place = self._view.edge_of(task), self._place(self._view.edge_of(task), message.source)
                target = box.within(parts.frame(keys[task]))
                adds.append((edge, keys[task][1], place, target, self._received.region(task)))
                tasks.append(task)
        if copies:  # in one order, so that ranks which need the same have the same to the last bit
            adds.sort(key=lambda add: add[:3])
        for *_, target, region in adds:
            whole[target] += region
        for task in tasks:
            self._received.release(task)
        return whole

    def _key(self, transfer: int) -> InputKey:
        return self._view.edge_of(transfer), int(self._view.program.micro_batch[transfer])

    def region(self, transfer: int, box: Box) -> Tensor:
        """Return the region that a transfer of the backward pass sends."""
        read = self._view.inputs[self._view.messages.input_key[transfer]].box
        return self._gradients[self._key(transfer)][box.within(read)]

    def was_sent(self, message: Message) -> None:
        """Release gradients that a message has sent and that no part of the rank itself takes."""
        for task in message.tasks:
            if not self._view.inputs[self._view.messages.input_key[task]].own.elements:
                self._gradients.pop(self._key(task), None)
