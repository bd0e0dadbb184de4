"""A collective expanded: every message, and the earlier messages that bring what it carries."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from groundwork.array_types import Bools, Floats, Ints
from groundwork.sparse_rows import row_entries
from simulator.collectives.rounds import Round
from simulator.graph.memory_need import check_replay_memory

_CHUNK_BYTES, _PAIR_BYTES = 120, 64
"""Memory of one chunk of one message, and of one dependency, while a collective is expanded: measured, rounded up."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Messages:
    """The M messages between the p ranks of one collective, step by step."""

    source: Ints
    """Sending rank, shape (M,)."""
    target: Ints
    """Receiving rank, shape (M,)."""
    share: Floats
    """Size as a share of the buffer, shape (M,)."""
    first_chunk: Ints
    """First chunk of the message, counted in the chunks of its round, shape (M,)."""
    step_start: Ints
    """First message of each step, shape (steps + 1,); a repeat of a round is a step."""
    waits: tuple[Ints, Ints]
    """Pairs of a message and an earlier one that brought its source data that it carries, or that it follows."""
    own: Ints
    """Messages that carry data of their source's own."""
    last: tuple[Ints, Ints]
    """Pairs of a rank and a message that brings it a part of its result."""


@dataclass(frozen=True, slots=True, eq=False)
class _Writes:
    """The writes of chunks into cells, sorted by cell, then by time.

    A cell is a chunk of the buffer at one rank, numbered ``rank * chunks + chunk``.  For a cell to which message 3
    adds in step 0, which message 5 overwrites in step 1, and to which message 8 adds in step 2::

        step       0      1      2
        message    3      5      8
        since      row 0  row 1  row 1     a reader after step 2 depends on messages 5 and 8
        replaced   no     yes    yes
    """

    cell: Ints
    step: Ints
    message: Ints
    since: Ints
    """Row of the last write to the same cell that overwrote it, or else of the first write to the cell."""
    replaced: Bools
    """Flag that there is a write that overwrote the cell, up to this one."""


def messages_of(rounds: Sequence[Round], count: int) -> Messages:
    """Expand the rounds of a collective into messages with their dependencies.

    Every message reads the cells (chunk at a rank) of its source that it carries and writes the same chunks at its
    target.  It waits for the messages whose data is in what it reads: all that added to a cell since it was last
    overwritten, and that which overwrote it.  For a ring reduce-scatter of 3 ranks::

        step 0    message 0: 0 -> 1, chunk 2    1: 1 -> 2, chunk 0    2: 2 -> 0, chunk 1
        step 1    message 3: 0 -> 1, chunk 1    4: 1 -> 2, chunk 2    5: 2 -> 0, chunk 0
        waits     3 for 2, which added to chunk 1 at rank 0;  4 for 0;  5 for 1

    Args:
        rounds: Rounds between ranks 0 .. ``count`` - 1, at least one.
        count: Number p of ranks.

    Raises:
        InfeasiblePlanError: There is no memory for so many messages or dependencies.
    """
    carried = sum(step.repeats * len(step.source) * step.width for step in rounds)
    check_replay_memory(carried * _CHUNK_BYTES, f"expanding a collective of {count} ranks")
    steps = [(step, repeat) for step in rounds for repeat in range(step.repeats)]
    sizes = np.array([len(step.source) for step, _ in steps], dtype=np.int64)
    source = np.concatenate([step.source for step, _ in steps])
    target = np.concatenate([step.target for step, _ in steps])
    first = np.concatenate([step.first_chunk(repeat) for step, repeat in steps])
    adds = np.concatenate([step.adds > repeat for step, repeat in steps])
    # Rounds may divide the buffer differently: cells are counted in the finest chunks of all.
    finest = int(np.lcm.reduce([step.chunks for step in rounds]))
    fine = np.repeat([finest // step.chunks for step, _ in steps], sizes)
    width = np.repeat([step.width for step, _ in steps], sizes) * fine
    # One row for every fine chunk of every message.
    message = np.repeat(np.arange(len(source)), width)
    chunk = row_entries(first * fine, width)
    step_of = np.repeat(np.arange(len(steps)), sizes)[message]
    chunks = int(chunk.max(initial=0)) + 1
    writes = _writes(target[message] * chunks + chunk, step_of, message, adds[message])
    waits, own = _reads(writes, source[message] * chunks + chunk, step_of)
    follows = _order_pairs(source * count + target, np.repeat([step.in_order for step, _ in steps], sizes))
    # The result is read from every cell after the last step.
    cells = np.arange(count * chunks)
    last, _ = _reads(writes, cells, np.full(count * chunks, len(steps)))
    return Messages(
        source=source,
        target=target,
        share=np.repeat([step.share for step, _ in steps], sizes),
        first_chunk=first,
        step_start=np.concatenate(([0], np.cumsum(sizes))),
        waits=_unique_pairs(np.append(message[waits[0]], follows[0]), np.append(waits[1], follows[1])),
        own=np.unique(message[own]),
        last=_unique_pairs(cells[last[0]] // chunks, last[1]),
    )


def _writes(cell: Ints, step: Ints, message: Ints, adds: Bools) -> _Writes:
    """Sort writes by cell and time, and note for each the first write that still matters after it."""
    order = np.lexsort((message, step, cell))
    cell, row = cell[order], np.arange(len(order))
    first = np.searchsorted(cell, cell)
    # The last row up to each that overwrites, of this cell or of an earlier one; the latter does not count.
    overwriting = np.maximum.accumulate(np.where(adds[order], -1, row))
    replaced = overwriting >= first
    return _Writes(cell, step[order], message[order], np.where(replaced, overwriting, first), replaced)


def _reads(writes: _Writes, cell: Ints, step: Ints) -> tuple[tuple[Ints, Ints], Bools]:
    """Return the messages whose data is in the cells that are read when a step begins.

    Args:
        writes: All writes of the collective.
        cell: Cell of every read.
        step: Step of every read, which sees the writes of earlier steps.

    Returns:
        Pairs (read, message), and a flag for every read that the rank's own data is still in the cell.

    Raises:
        InfeasiblePlanError: There is no memory for so many pairs.
    """
    # Cell and step as one number, in the order of the writes: `stop` is the first write that the read does not see.
    scale = int(max(step.max(initial=0), writes.step.max(initial=0))) + 1
    stop = np.searchsorted(writes.cell * scale + writes.step, cell * scale + step)
    written = (stop > 0) & (writes.cell[stop - 1] == cell)
    since = np.where(written, writes.since[stop - 1], stop)
    counts = stop - since
    check_replay_memory(int(counts.sum()) * _PAIR_BYTES, f"{int(counts.sum()):,} dependencies of a collective")
    read = np.repeat(np.arange(len(cell)), counts)
    return (read, writes.message[row_entries(since, counts)]), ~(written & writes.replaced[stop - 1])


def _order_pairs(ends: Ints, in_order: Bools) -> tuple[Ints, Ints]:
    """Return pairs of a message that keeps the order and the previous one between the same two ranks."""
    order = np.argsort(ends, kind="stable")
    late, early = order[1:], order[:-1]
    keep = (ends[late] == ends[early]) & in_order[late]
    return late[keep], early[keep]


def _unique_pairs(first: Ints, second: Ints) -> tuple[Ints, Ints]:
    """Return each pair once, in order."""
    scale = int(second.max(initial=0)) + 1
    return tuple(np.divmod(np.unique(first * scale + second), scale))  # type: ignore[return-value]
