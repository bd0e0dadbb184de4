"""Buffers of messages: copies of regions that are sent, regions that arrive, and compressed messages."""

import numpy as np

from groundwork.array_types import Floats, Ints
from planner.lowering.program import KINDS
from planner.lowering.unit_times import UnitTimes, unit_of
from planner.memory.buffer_account import MemoryAccount
from planner.memory.buffers import BufferRows

_COMPRESS, _DECOMPRESS, _TRANSFER = (KINDS.index(kind) for kind in ("compress", "decompress", "transfer"))
_COLLECTIVE = KINDS.index("collective")
_ONE_EXCHANGE = 2
"""Devices that sum what each sends whole to the other."""


def sent_until(account: MemoryAccount, times: UnitTimes, sends: Ints) -> Floats:
    """Return until when transfers need the tensor that they send: until it is compressed, copied, or has left.

    Args:
        account: Contents and sizes.
        times: Times of the tasks.
        sends: Shape (K,): transfers.

    Returns:
        Shape (K,).
    """
    program, task = account.program, account.waiting
    pairs = (program.kind[task] == _TRANSFER) & (program.kind[program.after] == _COMPRESS)
    compressed = np.full(program.size, np.nan)
    compressed[task[pairs]] = times.end_s[program.after[pairs]]
    plain = np.where(account.sends_copy[sends], _handed_over(account, times, sends), _released(account, times, sends))
    return np.where(np.isnan(compressed[sends]), plain, compressed[sends])


def _handed_over(account: MemoryAccount, times: UnitTimes, sends: Ints) -> Floats:
    """Return when transfers are handed over to be sent, all of a phase at once."""
    before = account.send_phases.before(sends, account.program.device[sends])
    return np.where(before >= 0, np.minimum(times.start_s[sends], times.end_s[before]), times.start_s[sends])


def _released(account: MemoryAccount, times: UnitTimes, sends: Ints) -> Floats:
    """Return when the back end releases what transfers have sent."""
    return account.memory_policy.backend.released_s(account.send_phases, sends, times.end_s)


def messages(account: MemoryAccount, times: UnitTimes) -> list[BufferRows]:
    """Return copies of regions where they leave and, unless messages have buffers of their own, where they arrive."""
    program, task = account.program, account.waiting
    moves = np.flatnonzero(program.kind == _TRANSFER)
    arrives = np.arange(program.size)  # by transfer, the task that ends with the region at its receiver
    is_decompression = (program.kind[task] == _DECOMPRESS) & (program.kind[program.after] == _TRANSFER)
    arrives[program.after[is_decompression]] = task[is_decompression]
    compressed = arrives[moves] != moves
    received = moves[compressed] if account.memory_policy.backend.has_message_buffers else moves
    return [_sent(account, times, moves[~compressed]), _received(account, times, received, arrives[received])]


def _sent(account: MemoryAccount, times: UnitTimes, moves: Ints) -> BufferRows:
    """Return the copies of regions that are sent uncompressed."""
    program, sends = account.program, moves[account.sends_copy[moves]]
    sends = np.repeat(sends, program.each(program.device[sends], sends))
    size, allocated = program.region_bytes[sends], _handed_over(account, times, sends)
    released = _released(account, times, sends)
    return BufferRows("messages", program.layer[sends], program.device[sends], size, allocated, released)


def _received(account: MemoryAccount, times: UnitTimes, moves: Ints, arrives: Ints) -> BufferRows:
    """Return regions at their receivers, from when these post the receives until the regions have been read."""
    program = account.program
    count = program.each(program.receiver[moves], moves)
    moves, arrives = np.repeat(moves, count), np.repeat(arrives, count)
    device, micro_batch = program.receiver[moves], program.micro_batch[moves]
    readers = unit_of(program, program.consumer[moves], device, micro_batch)
    makers = unit_of(program, program.layer[moves], device, micro_batch)
    read = np.where(program.recomputed[moves], times.forward[1].first[readers], times.forward[0].first[readers])
    until = np.where(program.backward[moves], times.backward.first[makers], read)
    added = program.moves_parameters[moves] & program.backward[moves]  # to a gradient, once that is computed
    until[added] = np.where(np.isfinite(times.weight.end[makers[added]]), times.weight.end[makers[added]], 0.0)
    until = np.maximum(until, times.end_s[arrives])
    size, ready = program.region_bytes[moves], account.send_phases.before(moves, device)
    early = (ready >= 0) & (arrives == moves)
    allocated = np.where(early, np.minimum(times.start_s[arrives], times.end_s[ready]), times.start_s[arrives])
    return BufferRows("messages", program.layer[moves], device, size, allocated, until)


def collective_buffers(account: MemoryAccount, times: UnitTimes) -> list[BufferRows]:
    """Return what collectives of activations take beside the tensor that each device gives, where buffers are counted.

    The sum of two is made in a tensor that has arrived; that of more begins with the device's share of it.  Of what is
    gathered or scattered, parts lie apart from the whole: those to send, or those of the other devices.
    """
    if not account.memory_policy.backend.has_message_buffers:
        return []
    program, rows = account.program, list[BufferRows]()
    for task in np.flatnonzero((program.kind == _COLLECTIVE) & program.moves_activations).tolist():
        collective = program.collectives[task]
        parts = 1 - 1 / collective.ranks
        if collective.kind == "all-reduce":
            parts = (collective.ranks > _ONE_EXCHANGE) / collective.ranks
        devices, begin_s, end_s = np.array(collective.devices), times.start_s[task], times.end_s[task]
        size = collective.buffer_bytes * (1 + parts)
        rows.append(BufferRows("messages", int(program.layer[task]), devices, size, begin_s, end_s))
    return rows


def compressed_messages(account: MemoryAccount, times: UnitTimes) -> list[BufferRows]:
    """Return compressed messages where they are compressed, until they have left, and where they are decompressed."""
    program, task, start_s, end_s = account.program, account.waiting, times.start_s, times.end_s
    # a compressed message is read by all tasks that wait for its maker, and arrives with the first of its transfers
    read_s, came_s = end_s.copy(), start_s.copy()
    np.maximum.at(read_s, program.after, end_s[task])
    moves = ~program.is_compute[program.after]
    np.minimum.at(came_s, task[moves], start_s[program.after[moves]])
    makes, takes = np.flatnonzero(program.compressed_bytes), np.flatnonzero(program.decompressed_bytes)
    return [
        BufferRows("compressed messages", program.layer[at], program.device[at], size[at], begin[at], end[at])
        for at, size, begin, end in (
            (makes, program.compressed_bytes, start_s, read_s),
            (takes, program.decompressed_bytes, came_s, end_s),
        )
    ]
