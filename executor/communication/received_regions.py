"""Received regions of an iteration, by the transfer tasks that bring them, until they have been read."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from torch import Tensor

from executor.communication.transport import Transport
from executor.program.messages import Message
from executor.program.rank_program import RankProgram
from executor.runtime.boxes import Box
from executor.supervision.status_board import RankState, RankStatus

if TYPE_CHECKING:
    from executor.communication.compressed_messages import CompressedMessages


class ReceivedRegions:
    """Splits messages into regions, and frees their buffers once all of their regions have been read."""

    def __init__(
        self, view: RankProgram, transport: Transport, status: RankStatus, compressed: "CompressedMessages | None"
    ) -> None:
        self._transport, self._status, self._compressed = transport, status, compressed
        self._regions: dict[int, tuple[Message, Tensor]] = {}
        self._unread: dict[Message, int] = {}
        """Number of regions of each received message that are still to be read."""
        self._delivered_by: dict[int, tuple[Message, Box]] = {
            task: (message, box)
            for message in view.messages.received
            for task, box in zip(message.tasks, message.boxes, strict=True)
        }

    def clear(self) -> None:
        """Begin an iteration."""
        self._regions, self._unread = {}, {}

    def wait(self, message: Message) -> None:
        """Wait for a message, and split it into its regions, compressed or not, by task."""
        if message in self._unread:
            return
        self._status.at(message.tasks[0], RankState.WAITING, peer=message.source)
        content, compressed = self._transport.receive(message), message.kind is not None
        regions = content.split(list(message.sizes) if compressed else [box.elements for box in message.boxes])
        for task, box, region in zip(message.tasks, message.boxes, regions, strict=True):
            self._regions[task] = (message, region if compressed else region.view(box.shape))
        self._unread[message] = len(message.tasks)

    def wait_for(self, transfers: Sequence[int]) -> None:
        """Wait for the messages that bring some transfers."""
        for transfer in transfers:
            self.wait(self._delivered_by[transfer][0])

    def decompress(self, transfers: Sequence[int]) -> None:
        """Replace compressed regions that have arrived by their elements."""
        assert self._compressed is not None
        for transfer in transfers:
            message, compressed = self._regions[transfer]
            box = self._delivered_by[transfer][1]
            self._regions[transfer] = (message, self._compressed.decompress(message, compressed, box))

    def region(self, task: int) -> Tensor:
        """Return the region that a transfer brought; to be read before ``release``."""
        return self._regions[task][1]

    def release(self, task: int) -> None:
        """Release a region that has been read; with the last region of a message its buffer is free."""
        message, _ = self._regions.pop(task)
        self._unread[message] -= 1
        if self._unread[message] == 0:
            self._transport.release(message)
