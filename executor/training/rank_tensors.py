"""Tensors of one iteration on a rank: activations and gradients, and the messages that bring and send them."""

from collections import defaultdict
from collections.abc import Callable
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from executor.communication.received_regions import ReceivedRegions
from executor.program.input_consumers import Consumers
from executor.program.messages import Message
from executor.program.redistributions import RankRedistribution
from executor.runtime.boxes import Box
from executor.training.activation_store import ActivationStore
from executor.training.borrowed_parameters import BorrowedParameters
from executor.training.gradient_store import GradientStore
from executor.training.rank_resources import RankLayers, RankResources, TaskTimer

if TYPE_CHECKING:
    from executor.communication.compressed_messages import CompressedMessages


class PhaseSender:
    """Sends the messages of each phase, begins to receive those that other ranks send in it, and begins collectives.

    Args:
        resources: Messages and collectives of the rank, and what carries them.
        activations, gradients, borrowed: Stores of the tensors whose regions are sent.
        received: Waits for messages, where none travels while the rank computes.
        compressed: Compresses messages, if any are compressed.
        compress: Runs and records a compress task.
        overlap: Whether messages travel while the rank computes; may be changed between iterations.
    """

    def __init__(
        self,
        resources: RankResources,
        *,
        activations: ActivationStore,
        gradients: GradientStore,
        borrowed: BorrowedParameters,
        received: ReceivedRegions,
        compressed: "CompressedMessages | None",
        compress: Callable[[int, Callable[[], None]], None],
        overlap: bool,
    ) -> None:
        view, self._transport, self._received = resources.view, resources.transport, received
        self._messages = view.messages
        self._activations, self._gradients, self._borrowed = activations, gradients, borrowed
        self._moves_parameters = view.program.moves_parameters
        self._units, self._gathers = resources.units, defaultdict[int, list[int]](list)
        for index, gather in enumerate(view.storage.gathers):
            self._gathers[gather.phase].append(index)
        self._compressed, self._compress, self.overlap = compressed, compress, overlap
        self._backward = view.program.backward
        self._redistributions: dict[int, list[RankRedistribution]] = defaultdict(list)
        for row in view.redistributions:
            self._redistributions[row.phase].append(row)
        self._phases = sorted(
            {*view.messages.outgoing, *view.messages.incoming, *self._redistributions, *self._gathers}
        )
        self.clear()

    def clear(self) -> None:
        """Begin an iteration."""
        self._next = 0

    def flush(self, group: int | None) -> None:
        """Start all phases that come before a group of tasks; all that are left where ``group`` is None."""
        while self._next < len(self._phases):
            phase = self._phases[self._next]
            if group is not None and phase >= group:
                return
            self._next += 1
            self._start(self._messages.outgoing.get(phase, []), self._messages.incoming.get(phase, []))
            for row in self._redistributions.get(phase, []):
                (self._gradients if row.of_gradient else self._activations).redistribute(row, overlap=self.overlap)
            for gather in self._gathers.get(phase, []):
                self._units.begin(gather, overlap=self.overlap)

    def _start(self, outgoing: list[Message], incoming: list[Message]) -> None:
        """Start the messages of a phase: compress them, send them, and release what only they needed."""
        if self._compressed is not None:
            for task, work in self._compressed.compress_tasks(outgoing, self._region):
                self._compress(task, work)
        self._transport.start_phase([(message, self._content(message)) for message in outgoing], incoming)
        for message in outgoing:
            self._store_of(message.tasks[0]).was_sent(message)
        if not self.overlap:
            for message in incoming:
                self._received.wait(message)

    def _store_of(self, transfer: int) -> ActivationStore | GradientStore | BorrowedParameters:
        if self._moves_parameters[transfer]:
            self._units.wait(transfer)
            return self._borrowed
        return self._gradients if self._backward[transfer] else self._activations

    def _region(self, transfer: int, box: Box) -> Tensor:
        return self._store_of(transfer).region(transfer, box)

    def _content(self, message: Message) -> Tensor:
        """Return the regions of a message, compressed or not, one after another in a contiguous tensor."""
        if message.kind is not None:
            assert self._compressed is not None
            return self._compressed.content(message)
        regions = [self._region(task, box).reshape(-1) for task, box in zip(message.tasks, message.boxes, strict=True)]
        return torch.cat(regions) if len(regions) > 1 else regions[0].contiguous()


class RankTensors:
    """The stores of activations and gradients, received regions, and the sender of a rank's messages."""

    def __init__(self, resources: RankResources, layers: RankLayers, timer: TaskTimer) -> None:
        view, dtype, device = resources.view, resources.dtype, resources.device.torch_device
        self._view, self._timer, self._redistributor = view, timer, resources.redistributor
        compressed = None
        if view.program.compressed.activations:
            from executor.communication.compressed_messages import CompressedMessages

            compressed = CompressedMessages(view, dtype=dtype, stand_in=timer.options.stand_in_compression)
        self.consumers = consumers = Consumers(view)
        self.received = ReceivedRegions(view, resources.transport, resources.status, compressed)
        self.activations = ActivationStore(
            view, consumers, self.received, self._redistributor, layers.parts, dtype=dtype, device=device
        )
        self.gradients = GradientStore(view, consumers, self.received, self._redistributor, dtype=dtype, device=device)
        self.borrowed = BorrowedParameters(view, layers.parameters, self.received, dtype=dtype, device=device)
        self.sender = PhaseSender(
            resources,
            activations=self.activations,
            gradients=self.gradients,
            borrowed=self.borrowed,
            received=self.received,
            compressed=compressed,
            compress=timer.compression,
            overlap=timer.options.overlap,
        )

    def clear(self) -> None:
        """Begin an iteration."""
        for store in (self.received, self._redistributor, self.activations, self.gradients, self.borrowed, self.sender):
            store.clear()

    def decompress(self, task: int) -> None:
        """Run a task that decompresses received regions."""
        transfers = self._view.before(task)
        self.received.wait_for(transfers)
        self._timer.compression(task, lambda: self.received.decompress(transfers))
