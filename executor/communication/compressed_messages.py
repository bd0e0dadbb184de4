"""Compressed messages between ranks: regions compressed before they are sent and decompressed once they arrive."""

from collections.abc import Callable, Sequence
from functools import cache, partial

import torch
from torch import Tensor
from typing_extensions import override

from executor.compression.base import DataType
from executor.compression.registry import data_type
from executor.program.messages import Message
from executor.program.rank_program import RankProgram
from executor.runtime.boxes import Box
from planner.compression.data_types import Compression


class _StandInType(DataType):
    """A codec whose messages have the right size, with zeros in them."""

    @override
    def _compress(self, values: Tensor, message: Tensor) -> None:
        message.zero_()

    @override
    def _decompress(self, message: Tensor, values: Tensor) -> None:
        values.zero_()


@cache
def codec_of(kind: Compression, *, stand_in: bool) -> DataType:
    """Return the codec of a compression; with ``stand_in`` one that computes nothing and makes as many bytes."""
    return _StandInType(kind) if stand_in else data_type(kind)


class CompressedMessages:
    """Compressed regions of one rank's tensors.

    Args:
        view: Messages of the rank.
        dtype: Type of the tensors' elements.
        stand_in: Make messages of the right size without compression.
    """

    def __init__(self, view: RankProgram, *, dtype: torch.dtype, stand_in: bool) -> None:
        self._view, self._dtype, self._stand_in = view, dtype, stand_in
        self._compressed: dict[tuple[int, Box], Tensor] = {}
        """Compressed regions by compress task and box: each is compressed once, however many ranks receive it."""

    def compress_tasks(
        self, messages: Sequence[Message], region: Callable[[int, Box], Tensor]
    ) -> list[tuple[int, Callable[[], None]]]:
        """Return the compress tasks of the messages of one phase in program order, each with its work.

        Args:
            messages: Messages of the phase, compressed or not.
            region: Returns the region of the tensor, or of the gradient, that a transfer task sends.
        """
        self._compressed.clear()
        rows: dict[int, list[tuple[int, Box, Compression]]] = {}
        for message in messages:
            if message.kind is not None:
                for transfer, box in zip(message.tasks, message.boxes, strict=True):
                    rows.setdefault(self._view.compress_task_of(transfer), []).append((transfer, box, message.kind))

        def compress(task: int) -> None:
            for transfer, box, kind in rows[task]:
                if (task, box) not in self._compressed:
                    codec = codec_of(kind, stand_in=self._stand_in)
                    self._compressed[task, box] = codec.compress(region(transfer, box)).message

        return [(task, partial(compress, task)) for task in sorted(rows)]

    def content(self, message: Message) -> Tensor:
        """Return the compressed regions of a message, one after another."""
        transfers = zip(message.tasks, message.boxes, strict=True)
        return torch.cat([self._compressed[self._view.compress_task_of(task), box] for task, box in transfers])

    def decompress(self, message: Message, compressed: Tensor, box: Box) -> Tensor:
        """Return the elements of one compressed region of a message that has arrived."""
        assert message.kind is not None
        return codec_of(message.kind, stand_in=self._stand_in).decompress(compressed, box.shape, self._dtype)
