"""What a rank keeps of the backward pass: gradients of the tensors it reads, until they are summed or sent."""

from collections import defaultdict
from typing import NamedTuple

import torch
from torch import Tensor

from executor.communication import ReceivedRegions
from executor.program import Consumers, Delivered, LayerUnit, Message, RankProgram
from executor.runtime import Box

__all__ = ["ActivationGradients"]


class _Said(NamedTuple):
    """What readers on the rank say of its part of a tensor."""

    key: Delivered
    piece: tuple[slice, ...] | None
    """The part in what they read; None: it is all that they read."""
    place: tuple[slice, ...]
    """What they read in the part."""
    covers: bool
    """Whether that is all of it."""


class ActivationGradients:
    """Gradients of tensors in the layouts in which the rank's parts read them, and their sums for its own parts.

    Args:
        view: What the rank makes and sends.
        readers: Who reads a tensor here.
        arrivals: What others send.
        dtype, device: Of the gradients.
    """

    def __init__(
        self,
        view: RankProgram,
        readers: Consumers,
        arrivals: ReceivedRegions,
        *,
        dtype: torch.dtype,
        device: torch.device,
    ) -> None:
        self._view, self._arrivals, self._inputs = view, arrivals, readers.inputs
        self._dtype, self._device = dtype, device
        graph = view.program.graph
        self._trained = [graph.has_gradient(i) for i in range(len(graph.layers))]
        self._said: dict[LayerUnit, list[_Said]] = defaultdict(list)
        """Those that cover the part first."""
        for unit, rows in readers.taken_by.items():
            said = [
                _Said(
                    key=row.key,
                    piece=None if row.own == row.box else row.own.within(row.box),
                    place=row.own.within(row.frame),
                    covers=row.own == row.frame,
                )
                for row in rows
                if row.own.elements
            ]
            self._said[unit] = sorted(said, key=lambda row: not row.covers)
        self._arriving: dict[LayerUnit, list[Message]] = defaultdict(list)
        for phase in sorted(view.incoming):
            for message in view.incoming[phase]:
                if view.program.backward[message.tasks[0]]:
                    self._arriving[view.unit_of(message.tasks[0])].append(message)
        self.clear()

    def clear(self) -> None:
        """Begin an iteration."""
        self._gradients: dict[Delivered, Tensor] = {}

    def wait(self, unit: LayerUnit) -> None:
        """Wait for what others say of a unit's output."""
        for message in self._arriving[unit]:
            self._arrivals.wait(message)

    def add(self, unit: LayerUnit, slot: int, gradient: Tensor) -> None:
        """What a unit says of one of its inputs, beside what other readers have said."""
        row = self._inputs[unit][slot]
        if row is not None and self._trained[row.edge.producer]:
            before = self._gradients.get(row.key)
            self._gradients[row.key] = gradient if before is None else before + gradient

    def take(self, unit: LayerUnit) -> Tensor:
        """Gradient of the rank's part of an output: what all its readers here and elsewhere say of it, summed."""
        said, messages = self._said[unit], self._arriving[unit]
        gradients = [self._gradients.pop(row.key) for row in said]
        pieces = [
            gradient if row.piece is None else gradient[row.piece]
            for row, gradient in zip(said, gradients, strict=True)
        ]
        covering = sum(row.covers for row in said)
        if covering == 1 and len(said) == 1 and not messages:
            return pieces[0]
        if covering > 1:
            whole, added = pieces[0] + pieces[1], 2
        elif covering:
            whole, added = pieces[0].clone(), 1
        else:
            shape = self._view.held(unit[0]).shape
            whole, added = torch.zeros(shape, dtype=self._dtype, device=self._device), 0
        for row, piece in zip(said[added:], pieces[added:], strict=True):
            whole[row.place] += piece
        for message in messages:
            for task, box in zip(message.tasks, message.boxes, strict=True):
                whole[box.within(self._view.frame(self._view.edge_of[task]))] += self._arrivals.region(task)
                self._arrivals.consumed(task)
        return whole

    def region(self, transfer: int, box: Box) -> Tensor:
        """What a transfer of the backward pass sends."""
        key = self._view.edge_of[transfer]
        return self._gradients[key][box.within(self._view.inputs[key].box)]

    def was_sent(self, message: Message) -> None:
        """A message of the backward pass is on its way: what none of the rank's own parts takes is forgotten."""
        for key in (self._view.edge_of[task] for task in message.tasks):
            if not self._view.inputs[key].own.elements:
                self._gradients.pop(key, None)
