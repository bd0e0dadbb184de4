"""What has arrived at a rank in an iteration: its regions by transfer, until they have been read."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from torch import Tensor

from executor.communication.transport import Transport
from executor.processes import RankState, RankStatus
from executor.program import Message, RankProgram
from executor.runtime import Box

if TYPE_CHECKING:
    from executor.communication.compressed_messages import CompressedMessages

__all__ = ["ReceivedRegions"]


class ReceivedRegions:
    """Lays messages out, and frees their buffers once all of their regions have been read.

    Args:
        view: What the rank takes.
        transport: Brings it.
        status: Told what the rank waits for.
        codes: Decodes messages that travel as codes, if any do.
    """

    def __init__(
        self, view: RankProgram, transport: Transport, status: RankStatus, codes: "CompressedMessages | None"
    ) -> None:
        self._transport, self._status, self._codes = transport, status, codes
        self._regions: dict[int, tuple[Message, Tensor]] = {}
        self._left: dict[Message, int] = {}
        self._brought_by: dict[int, tuple[Message, Box]] = {
            task: (message, box)
            for messages in view.incoming.values()
            for message in messages
            for task, box in zip(message.tasks, message.boxes, strict=True)
        }

    def clear(self) -> None:
        """Begin an iteration."""
        self._regions, self._left = {}, {}

    def wait(self, message: Message) -> None:
        """Wait for a message, and lay its regions, or their codes, out by task."""
        if message in self._left:
            return
        self._status.at(message.tasks[0], RankState.WAITING, peer=message.source)
        content, coded = self._transport.take(message), message.kind is not None
        pieces = content.split(list(message.sizes) if coded else [box.elements for box in message.boxes])
        for task, box, piece in zip(message.tasks, message.boxes, pieces, strict=True):
            self._regions[task] = (message, piece if coded else piece.view(box.shape))
        self._left[message] = len(message.tasks)

    def wait_for(self, transfers: Sequence[int]) -> None:
        """Wait for the messages that bring some transfers."""
        for transfer in transfers:
            self.wait(self._brought_by[transfer][0])

    def decode(self, transfers: Sequence[int]) -> None:
        """Put numbers in place of codes that have arrived."""
        assert self._codes is not None
        for transfer in transfers:
            message, code = self._regions[transfer]
            self._regions[transfer] = (message, self._codes.decoded(message, code, self._brought_by[transfer][1]))

    def region(self, task: int) -> Tensor:
        """What a transfer brought; to be read before ``consumed``."""
        return self._regions[task][1]

    def consumed(self, task: int) -> None:
        """A region has been read; with the last one its message's buffer is free."""
        message, _ = self._regions.pop(task)
        self._left[message] -= 1
        if self._left[message] == 0:
            self._transport.release(message)
