"""Messages between ranks as codes: regions encoded before they are sent and decoded once they are there."""

from collections.abc import Callable, Sequence
from functools import cache, partial

import torch
from torch import Tensor
from typing_extensions import override

from executor.compression import DataType, data_type
from executor.program import Message, RankProgram
from executor.runtime import Box
from planner.compression import Compression

__all__ = ["CompressedMessages", "coder_of"]


class _StandIn(DataType):
    """Makes messages of the right size, all zero."""

    @override
    def _encode(self, values: Tensor, message: Tensor) -> None:
        message.zero_()

    @override
    def _decode(self, message: Tensor, values: Tensor) -> None:
        values.zero_()


@cache
def coder_of(kind: Compression, *, stand_in: bool) -> DataType:
    """What encodes and decodes a type, or, where arithmetic is stood in for, only makes as many bytes."""
    return _StandIn(kind) if stand_in else data_type(kind)


class CompressedMessages:
    """Codes of the regions of one rank's tensors.

    Args:
        view: What the rank sends and takes.
        dtype: Of the tensors.
        stand_in: Encode nothing.
    """

    def __init__(self, view: RankProgram, *, dtype: torch.dtype, stand_in: bool) -> None:
        self._view, self._dtype, self._stand_in = view, dtype, stand_in
        self._codes: dict[tuple[int, Box], Tensor] = {}
        """By compress task and region: each is encoded once, however many receive it."""

    def encodings(
        self, messages: Sequence[Message], region: Callable[[int, Box], Tensor]
    ) -> list[tuple[int, Callable[[], None]]]:
        """Compress tasks of the messages that one phase sends, in program order, and what each has to do.

        Args:
            messages: Those that travel as codes, and others.
            region: Region of the tensor, or of the gradient, that a transfer task sends.
        """
        self._codes.clear()
        rows: dict[int, list[tuple[int, Box, Compression]]] = {}
        for message in messages:
            if message.kind is not None:
                for task, box in zip(message.tasks, message.boxes, strict=True):
                    rows.setdefault(self._view.encoding_of(task), []).append((task, box, message.kind))

        def encode(coding: int) -> None:
            for task, box, kind in rows[coding]:
                if (coding, box) not in self._codes:
                    coder = coder_of(kind, stand_in=self._stand_in)
                    self._codes[coding, box] = coder.encode(region(task, box)).message

        return [(coding, partial(encode, coding)) for coding in sorted(rows)]

    def content(self, message: Message) -> Tensor:
        """The codes of a message's regions, one after another."""
        tasks = zip(message.tasks, message.boxes, strict=True)
        return torch.cat([self._codes[self._view.encoding_of(task), box] for task, box in tasks])

    def decoded(self, message: Message, code: Tensor, box: Box) -> Tensor:
        """One region of a message that has arrived."""
        assert message.kind is not None
        return coder_of(message.kind, stand_in=self._stand_in).decode(code, box.shape, self._dtype)
