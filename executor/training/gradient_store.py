"""Gradients of activations in memory: those of the tensors that a rank reads, until they are summed up or sent."""

from collections import defaultdict
from typing import NamedTuple

import torch
from torch import Tensor

from executor.communication.received_regions import ReceivedRegions
from executor.layers.kernels.layout import memory_order
from executor.program.input_consumers import Consumers
from executor.program.messages import Message
from executor.program.rank_parts import InputKey, LayerUnit
from executor.program.rank_program import RankProgram
from executor.runtime.boxes import Box


class _LocalTerm(NamedTuple):
    """The gradient that consumers on the rank contribute to the gradient of its part of an output."""

    key: InputKey
    slices: tuple[slice, ...] | None
    """The part's region in the tensor that they read; None: the region is the whole tensor."""
    target: tuple[slice, ...]
    """The region of the part that they read."""
    covers: bool
    """True if that is the whole part."""


class GradientStore:
    """Gradients of tensors in the layouts in which the rank's parts read them, and their sums for the rank's own parts.

    Args:
        view: Tasks and messages of the rank.
        consumers: Consumers of the tensors on the rank.
        received: Regions that other ranks send.
        dtype, device: Of the gradients.
    """

    def __init__(
        self,
        view: RankProgram,
        consumers: Consumers,
        received: ReceivedRegions,
        *,
        dtype: torch.dtype,
        device: torch.device,
    ) -> None:
        self._view, self._received, self._inputs_of = view, received, consumers.inputs_of
        self._dtype, self._device = dtype, device
        graph = view.program.graph
        self._trained = [graph.has_gradient(i) for i in range(len(graph.layers))]
        self._terms: dict[LayerUnit, list[_LocalTerm]] = defaultdict(list)
        """Terms of the gradient of each unit's output; those that cover the whole part come first."""
        for unit, rows in consumers.inputs_from.items():
            terms = [
                _LocalTerm(
                    key=row.key,
                    slices=None if row.own == row.box else row.own.within(row.box),
                    target=row.own.within(row.frame),
                    covers=row.own == row.frame,
                )
                for row in rows
                if row.own.elements
            ]
            self._terms[unit] = sorted(terms, key=lambda term: not term.covers)
        self._incoming: dict[LayerUnit, list[Message]] = defaultdict(list)
        parameters = view.program.moves_parameters
        for message in view.messages.received:
            if view.program.backward[message.tasks[0]] and not parameters[message.tasks[0]]:
                self._incoming[view.parts.unit_of(message.tasks[0])].append(message)
        self.clear()

    def clear(self) -> None:
        """Begin an iteration."""
        self._gradients: dict[InputKey, Tensor] = {}

    def wait(self, unit: LayerUnit) -> None:
        """Wait for the regions of the gradient of a unit's output that other ranks send."""
        for message in self._incoming[unit]:
            self._received.wait(message)

    def add(self, unit: LayerUnit, slot: int, gradient: Tensor) -> None:
        """Add the gradient of one of a unit's inputs to those of the tensor's other consumers."""
        row = self._inputs_of[unit][slot]
        if row is not None and self._trained[row.edge.producer]:
            before = self._gradients.get(row.key)
            self._gradients[row.key] = gradient if before is None else before + gradient

    def take(self, unit: LayerUnit) -> Tensor:
        """Return the gradient of the rank's part of an output, summed over its consumers on all ranks, and release it.

        No gradient of a consumer is written: other tensors may be views of it.
        """
        terms, messages = self._terms[unit], self._incoming[unit]
        gradients = [self._gradients.pop(term.key) for term in terms]
        regions = [
            gradient if term.slices is None else gradient[term.slices]
            for term, gradient in zip(terms, gradients, strict=True)
        ]
        # start from a term that covers the part, or from the sum of two, which saves a pass over zeros or a copy
        covering = sum(term.covers for term in terms)
        if covering == 1 and len(terms) == 1 and not messages:
            return regions[0]
        if covering > 1:
            whole, added = regions[0] + regions[1], 2
        elif covering:
            whole, added = regions[0].clone(), 1
        else:
            shape = self._view.parts.held(unit[0]).shape
            order = memory_order(regions[0]) if regions else [*range(len(shape))]
            whole, added = torch.empty_permuted(shape, order, dtype=self._dtype, device=self._device).zero_(), 0
        for term, region in zip(terms[added:], regions[added:], strict=True):
            whole[term.target] += region
        parts, keys = self._view.parts, self._view.messages.input_key
        for message in messages:
            for task, box in zip(message.tasks, message.boxes, strict=True):
                whole[box.within(parts.frame(keys[task]))] += self._received.region(task)
                self._received.release(task)
        return whole

    def region(self, transfer: int, box: Box) -> Tensor:
        """Return the region that a transfer of the backward pass sends."""
        key = self._view.messages.input_key[transfer]
        return self._gradients[key][box.within(self._view.inputs[key].box)]

    def was_sent(self, message: Message) -> None:
        """Release gradients that a message has sent and that no part of the rank itself takes."""
        for key in (self._view.messages.input_key[task] for task in message.tasks):
            if not self._view.inputs[key].own.elements:
                self._gradients.pop(key, None)
