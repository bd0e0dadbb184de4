"""Rounds: messages that start together, and which pieces of the buffer each of them carries."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from hwprofiles import Ints

__all__ = ["Round", "round_of", "whole_round"]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Round:
    """M messages that start together; the round repeats ``repeats`` times, one after the other.

    The buffer is cut into ``pieces`` equal pieces; a message carries ``width`` of them, which its target adds to its
    own in the first ``adds`` repeats and puts in their place in the others.  From one repeat to the next, messages
    move on by one of ``span`` blocks of pieces, backwards and around, as rings do.
    """

    source: Ints
    target: Ints
    """Shape (M,): ranks of a group, or devices."""
    pieces: int
    low: Ints
    """Shape (M,): where each message's blocks begin."""
    turn: Ints
    """Shape (M,): block that it carries in the first repeat, modulo ``span``."""
    adds: Ints
    """Shape (M,)."""
    width: int = 1
    span: int = 1
    repeats: int = 1
    in_order: bool = False
    """Whether a message also waits for the one before between the same two ranks, so that pieces follow each other."""

    @property
    def share(self) -> float:
        """Size of each message as a share of the buffer."""
        return self.width / self.pieces

    @property
    def is_ring(self) -> bool:
        """Whether it is, with its repeats, the ring all-reduce that gloo and NCCL run by themselves."""
        count = len(self.source)
        ring = self.repeats == 2 * (count - 1) and self.pieces == self.span == count and self.width == 1
        return bool(ring and len(np.unique(self.source)) == count and len(np.unique(self.target)) == count)

    def first_piece(self, repeat: int) -> Ints:
        """First of the pieces that each message carries, shape (M,)."""
        return self.low + (self.turn - repeat) % self.span * self.width

    def among(self, devices: Ints) -> "Round":
        """The round with devices in place of ranks; ``devices`` has shape (ranks,)."""
        return replace(self, source=devices[self.source], target=devices[self.target])


def round_of(
    source: Sequence[int] | Ints, target: Sequence[int] | Ints, *, pieces: int = 1, adds: int | Ints = 0,
    low: int | Ints = 0, turn: int | Ints = 0, width: int = 1, span: int = 1, repeats: int = 1, in_order: bool = False,
) -> Round:  # fmt: skip
    """A round whose messages share what is given once."""
    count = len(source)
    arrays = [
        np.broadcast_to(np.asarray(value, dtype=np.int64), (count,)) for value in (source, target, low, turn, adds)
    ]
    names = ("source", "target", "low", "turn", "adds")
    ends = dict(zip(names, arrays, strict=True))
    return Round(**ends, pieces=pieces, width=width, span=span, repeats=repeats, in_order=in_order)


def whole_round(pairs: Sequence[tuple[int, int]], *, adds: bool) -> Round:
    """Whole buffers from the first to the second of each pair."""
    ends = np.array(pairs, dtype=np.int64).reshape(-1, 2)
    return round_of(ends[:, 0], ends[:, 1], adds=int(adds))
