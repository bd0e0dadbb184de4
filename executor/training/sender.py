"""What a rank sends in an iteration, and when: phase by phase, as soon as all that a phase waits for is done."""

from collections.abc import Callable
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from executor.communication import ReceivedRegions, Transport
from executor.program import Message, RankProgram
from executor.runtime import Box
from executor.training.activation_store import Activations
from executor.training.gradient_store import ActivationGradients

if TYPE_CHECKING:
    from executor.communication import CompressedMessages

__all__ = ["Sender"]


class Sender:
    """Sends the messages of each phase, and begins to take those that others send in it.

    Args:
        view: What the rank sends and takes.
        transport: Carries it.
        activations, gradients: What is sent.
        arrivals: Waits for messages, where nothing is sent beside arithmetic.
        codes: Encodes messages that travel as codes, if any do.
        encode: Runs and records a compress task.
        overlap: Send beside arithmetic; may be changed between iterations.
    """

    def __init__(
        self,
        view: RankProgram,
        transport: Transport,
        *,
        activations: Activations,
        gradients: ActivationGradients,
        arrivals: ReceivedRegions,
        codes: "CompressedMessages | None",
        encode: Callable[[int, Callable[[], None]], None],
        overlap: bool,
    ) -> None:
        self._view, self._transport, self._arrivals = view, transport, arrivals
        self._activations, self._gradients = activations, gradients
        self._codes, self._encode, self.overlap = codes, encode, overlap
        self._backward = view.program.backward
        self._phases = sorted(set(view.outgoing) | set(view.incoming))
        self.clear()

    def clear(self) -> None:
        """Begin an iteration."""
        self._next = 0

    def flush(self, group: int | None) -> None:
        """Send and expect what belongs to phases before a group of tasks; None for all that are left."""
        while self._next < len(self._phases):
            phase = self._phases[self._next]
            if group is not None and phase >= group:
                return
            self._next += 1
            self._exchange(self._view.outgoing.get(phase, []), self._view.incoming.get(phase, []))

    def _exchange(self, outgoing: list[Message], incoming: list[Message]) -> None:
        if self._codes is not None:
            for task, work in self._codes.encodings(outgoing, self._region):
                self._encode(task, work)
        self._transport.exchange([(message, self._content(message)) for message in outgoing], incoming)
        for message in outgoing:
            self._source(message.tasks[0]).was_sent(message)
        if not self.overlap:
            for message in incoming:
                self._arrivals.wait(message)

    def _source(self, transfer: int) -> Activations | ActivationGradients:
        return self._gradients if self._backward[transfer] else self._activations

    def _region(self, transfer: int, box: Box) -> Tensor:
        return self._source(transfer).region(transfer, box)

    def _content(self, message: Message) -> Tensor:
        """The regions of a message, or their codes, one after another, contiguous."""
        if message.kind is not None:
            assert self._codes is not None
            return self._codes.content(message)
        pieces = [self._region(task, box).reshape(-1) for task, box in zip(message.tasks, message.boxes, strict=True)]
        return torch.cat(pieces) if len(pieces) > 1 else pieces[0].contiguous()
