"""Rounds of a collective: messages that start together, and the chunks of the buffer that each of them carries."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from groundwork.array_types import Floats, Ints


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Traffic:
    """What links carry for a round and all its repeats, in M messages, and what the round takes beside that.

    A library's protocols add bytes to those of a round's messages, and sums in a switch take some away; its chains
    hand on chunks over all their links at once.
    """

    source: Ints
    """Sending ranks of a group, or devices, shape (M,)."""
    target: Ints
    """Receiving ranks of a group, or devices, shape (M,)."""
    sent: Floats
    """Bytes of each message for each byte of the buffer, shape (M,)."""
    taken: Floats
    """Bytes that the links of each message could have carried in the time that it takes them, likewise: those of
    ``sent``, and more where the library does not reach all of their bandwidth."""
    latency_s: float | None = None
    """Latency of all repeats together, where a library's is known; None: that of the routes, once a repeat."""
    copied_s_per_byte: float = 0.0
    """Time for each byte of the buffer in which ranks copy what they do not send, and links carry nothing."""

    def among(self, devices: Ints) -> "Traffic":
        """Return the traffic between devices instead of ranks; ``devices`` has shape (ranks,)."""
        return replace(self, source=devices[self.source], target=devices[self.target])


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Round:
    """A set of M messages that start together; the round repeats ``repeats`` times, one after the other.

    The buffer is divided into ``chunks`` equal chunks, of which a message carries ``width`` adjacent ones, a block.
    The target adds them to its own in the first ``adds`` repeats and overwrites its own in the others.  From one
    repeat to the next a message moves on to the block before, modulo ``span``, as rings do.  A ring of 4 ranks,
    one chunk a message, with the chunk that each rank sends in each repeat::

        rank        0  1  2  3
        repeat 0    3  0  1  2      turn = rank - 1, modulo span = 4
        repeat 1    2  3  0  1
        repeat 2    1  2  3  0
    """

    source: Ints
    """Sending ranks of a group, or devices, shape (M,)."""
    target: Ints
    """Receiving ranks of a group, or devices, shape (M,)."""
    chunks: int
    """Number of chunks that the buffer is divided into."""
    low: Ints
    """First chunk of block 0 of each message, shape (M,)."""
    turn: Ints
    """Block that each message carries in the first repeat, modulo ``span``, shape (M,)."""
    adds: Ints
    """Number of repeats in which the target adds, shape (M,)."""
    width: int = 1
    """Chunks in a block."""
    span: int = 1
    """Number of blocks among which each message rotates."""
    repeats: int = 1
    in_order: bool = False
    """Flag that a message also waits for the previous one between the same two ranks, as chunks of a pipeline do."""
    carried: Traffic | None = None
    """What links carry for a round of a library; None: its messages."""

    @property
    def traffic(self) -> Traffic:
        """Shares of the buffer that each message sends, and that it takes of its links."""
        if self.carried is not None:
            return self.carried
        sent = np.full(len(self.source), self.share * self.repeats)
        return Traffic(source=self.source, target=self.target, sent=sent, taken=sent)

    @property
    def sent_at_once(self) -> tuple[Floats, Floats]:
        """``sent`` and ``taken`` of each message in one repeat, shape (M,) each.

        Where links carry a share of other messages, too, as in the rounds of a chain, each message has all that the
        round sends, and takes its links as long as the round does.
        """
        traffic, count = self.traffic, len(self.source)
        if len(traffic.sent) == count:
            return traffic.sent / self.repeats, traffic.taken / self.repeats
        return np.full(count, traffic.sent.sum() / count), np.full(count, traffic.taken.max())

    @property
    def share(self) -> float:
        """Size of each message as a share of the buffer."""
        return self.width / self.chunks

    @property
    def is_ring(self) -> bool:
        """Flag that the round, with its repeats, is the ring all-reduce that gloo and NCCL run by themselves."""
        count = len(self.source)
        ring = self.repeats == 2 * (count - 1) and self.chunks == self.span == count and self.width == 1
        return bool(ring and len(np.unique(self.source)) == count and len(np.unique(self.target)) == count)

    def first_chunk(self, repeat: int) -> Ints:
        """Return the first chunk that each message carries in a repeat, shape (M,)."""
        return self.low + (self.turn - repeat) % self.span * self.width

    def among(self, devices: Ints) -> "Round":
        """Return the round between devices instead of ranks; ``devices`` has shape (ranks,)."""
        carried = None if self.carried is None else self.carried.among(devices)
        return replace(self, source=devices[self.source], target=devices[self.target], carried=carried)


class ChunkPattern(NamedTuple):
    """Chunks that the messages of a round carry: fields of ``Round``, with one value for all messages or one each."""

    chunks: int = 1
    low: int | Ints = 0
    turn: int | Ints = 0
    width: int = 1
    span: int = 1


WHOLE_BUFFER = ChunkPattern()
"""The pattern of messages that carry the whole buffer."""


def round_of(
    source: Sequence[int] | Ints,
    target: Sequence[int] | Ints,
    pattern: ChunkPattern = WHOLE_BUFFER,
    *,
    adds: int | Ints = 0,
    repeats: int = 1,
    in_order: bool = False,
) -> Round:
    """Return a round, with values that all messages share given once.

    Args:
        source: Sending ranks, length M.
        target: Receiving ranks, length M.
        pattern: Chunks that the messages carry.
        adds: Number of repeats in which the targets add.
        repeats: Number of times that the round is carried out.
        in_order: Make each message also wait for the previous one between the same two ranks.
    """

    def each(value: int | Sequence[int] | Ints) -> Ints:
        """Return one value for each message."""
        return np.broadcast_to(np.asarray(value, dtype=np.int64), (len(source),))

    return Round(
        source=each(source),
        target=each(target),
        chunks=pattern.chunks,
        low=each(pattern.low),
        turn=each(pattern.turn),
        adds=each(adds),
        width=pattern.width,
        span=pattern.span,
        repeats=repeats,
        in_order=in_order,
    )


def whole_round(pairs: Sequence[tuple[int, int]], *, adds: bool) -> Round:
    """Return a round that sends whole buffers from the first to the second rank of each pair."""
    ends = np.array(pairs, dtype=np.int64).reshape(-1, 2)
    return round_of(ends[:, 0], ends[:, 1], adds=int(adds))
