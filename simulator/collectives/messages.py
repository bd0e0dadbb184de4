"""A collective expanded: every message, and the messages that it waits for because they bring what it carries."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hwprofiles import Floats, Ints
from simulator.collectives.rounds import Round
from simulator.graph import check_replay_memory

__all__ = ["Messages", "messages_of"]


_PIECE_BYTES, _PAIR_BYTES = 120, 64  # measured, rounded up


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Messages:
    """M messages between the p ranks of one collective, step by step."""

    source: Ints
    target: Ints
    """Shape (M,): ranks."""
    share: Floats
    """Shape (M,): size as a share of the buffer."""
    first_piece: Ints
    """Shape (M,), in the pieces of its round."""
    step_start: Ints
    """Shape (steps + 1,): first message of each step; a repeat of a round is a step."""
    waits: tuple[Ints, Ints]
    """Pairs: a message, and an earlier one that brought its source something that it carries, or that it follows."""
    own: Ints
    """Messages that carry something of their source's own."""
    last: tuple[Ints, Ints]
    """Pairs: a rank, and a message that brings it a part of its result."""


@dataclass(frozen=True, slots=True, eq=False)
class _Log:
    """What arrives where, sorted by place (a piece at a rank), then time."""

    place: Ints
    step: Ints
    message: Ints
    since: Ints
    """Row of the last arrival at the same place that replaced what was there, or else of the first."""
    replaced: NDArray[np.bool_]
    """Whether there is such an arrival."""


def messages_of(rounds: Sequence[Round], count: int) -> Messages:
    """Expand the rounds, at least one, of a collective between ranks 0 .. ``count`` - 1.

    Raises:
        InfeasiblePlanError: There is no memory for so many messages or dependencies.
    """
    carried = sum(step.repeats * len(step.source) * step.width for step in rounds)
    check_replay_memory(carried * _PIECE_BYTES, f"expanding a collective of {count} ranks")
    steps = [(step, repeat) for step in rounds for repeat in range(step.repeats)]
    sizes = np.array([len(step.source) for step, _ in steps], dtype=np.int64)
    source = np.concatenate([step.source for step, _ in steps])
    target = np.concatenate([step.target for step, _ in steps])
    first = np.concatenate([step.first_piece(repeat) for step, repeat in steps])
    adds = np.concatenate([step.adds > repeat for step, repeat in steps])
    # Rounds may cut the buffer differently: places are counted in the finest pieces of all.
    finest = int(np.lcm.reduce([step.pieces for step in rounds]))
    fine = np.repeat([finest // step.pieces for step, _ in steps], sizes)
    width = np.repeat([step.width for step, _ in steps], sizes) * fine
    message = np.repeat(np.arange(len(source)), width)
    piece = np.repeat(first * fine - np.cumsum(width) + width, width) + np.arange(len(message))
    step_of = np.repeat(np.arange(len(steps)), sizes)[message]
    pieces = int(piece.max(initial=0)) + 1
    log = _log(target[message] * pieces + piece, step_of, message, adds[message])
    waits, own = _reads(log, source[message] * pieces + piece, step_of)
    behind = _behind(source * count + target, np.repeat([step.in_order for step, _ in steps], sizes))
    everything = np.arange(count * pieces)
    last, _ = _reads(log, everything, np.full(count * pieces, len(steps)))
    return Messages(
        source=source,
        target=target,
        share=np.repeat([step.share for step, _ in steps], sizes),
        first_piece=first,
        step_start=np.concatenate(([0], np.cumsum(sizes))),
        waits=_pairs(np.append(message[waits[0]], behind[0]), np.append(waits[1], behind[1])),
        own=np.unique(message[own]),
        last=_pairs(everything[last[0]] // pieces, last[1]),
    )


def _log(place: Ints, step: Ints, message: Ints, adds: NDArray[np.bool_]) -> _Log:
    order = np.lexsort((message, step, place))
    place, row = place[order], np.arange(len(order))
    first = np.searchsorted(place, place)
    replacing = np.maximum.accumulate(np.where(adds[order], -1, row))
    replaced = replacing >= first
    return _Log(place, step[order], message[order], np.where(replaced, replacing, first), replaced)


def _reads(log: _Log, place: Ints, step: Ints) -> tuple[tuple[Ints, Ints], NDArray[np.bool_]]:
    """What is at a place when a step begins: pairs (read, message that is in it), and whether its own is too."""
    scale = int(max(step.max(initial=0), log.step.max(initial=0))) + 1
    stop = np.searchsorted(log.place * scale + log.step, place * scale + step)
    found = (stop > 0) & (log.place[stop - 1] == place)
    since = np.where(found, log.since[stop - 1], stop)
    counts = stop - since
    check_replay_memory(int(counts.sum()) * _PAIR_BYTES, f"{int(counts.sum()):,} dependencies of a collective")
    read = np.repeat(np.arange(len(place)), counts)
    row = np.repeat(since - np.cumsum(counts) + counts, counts) + np.arange(len(read))
    return (read, log.message[row]), ~(found & log.replaced[stop - 1])


def _behind(ends: Ints, in_order: NDArray[np.bool_]) -> tuple[Ints, Ints]:
    """Pairs: a message that keeps the order, and the one before between the same two ranks."""
    order = np.argsort(ends, kind="stable")
    late, early = order[1:], order[:-1]
    keep = (ends[late] == ends[early]) & in_order[late]
    return late[keep], early[keep]


def _pairs(first: Ints, second: Ints) -> tuple[Ints, Ints]:
    """Each pair once, in order."""
    scale = int(second.max(initial=0)) + 1
    return tuple(np.divmod(np.unique(first * scale + second), scale))  # type: ignore[return-value]
