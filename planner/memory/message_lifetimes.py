"""Regions on their way: copies that leave and arrive, and their codes."""

import numpy as np

from hwprofiles import Floats, Ints
from planner.lowering import KINDS, UnitTimes, unit_of
from planner.memory.buffer_account import Account
from planner.memory.buffers import Buffers

__all__ = ["codes", "leaves", "messages"]

_COMPRESS, _DECOMPRESS, _TRANSFER = (KINDS.index(kind) for kind in ("compress", "decompress", "transfer"))


def leaves(account: Account, times: UnitTimes, sends: Ints) -> Floats:
    """When what transfers send is no more needed: it has been copied, it has left, or its codes have been made."""
    program, task = account.program, account.waiting
    pairs = (program.kind[task] == _TRANSFER) & (program.kind[program.after] == _COMPRESS)
    encoded = np.full(program.size, np.nan)
    encoded[task[pairs]] = times.end_s[program.after[pairs]]
    plain = np.where(account.copied[sends], _departs(account, times, sends), _gone(account, times, sends))
    return np.where(np.isnan(encoded[sends]), plain, encoded[sends])


def _departs(account: Account, times: UnitTimes, sends: Ints) -> Floats:
    """When transfers are handed over to be sent, all of a phase at once."""
    before = account.departures.before(sends, account.program.device[sends])
    return np.where(before >= 0, np.minimum(times.start_s[sends], times.end_s[before]), times.start_s[sends])


def _gone(account: Account, times: UnitTimes, sends: Ints) -> Floats:
    """When what was sent is no more held for that."""
    if not account.memory_policy.host:
        return times.end_s[sends]
    return account.departures.forgotten_s(sends, times.end_s)


def messages(account: Account, times: UnitTimes) -> list[Buffers]:
    """Copies of regions on their way: where they leave, and, without buffers of their own, where they arrive."""
    program, task = account.program, account.waiting
    moves = np.flatnonzero(program.kind == _TRANSFER)
    arrives = np.arange(program.size)  # by transfer, the task with which its numbers are there
    decoding = (program.kind[task] == _DECOMPRESS) & (program.kind[program.after] == _TRANSFER)
    arrives[program.after[decoding]] = task[decoding]
    decoded = arrives[moves] != moves
    come = moves[decoded] if account.memory_policy.host else moves
    return [_leaving(account, times, moves[~decoded]), _coming(account, times, come, arrives[come])]


def _leaving(account: Account, times: UnitTimes, moves: Ints) -> Buffers:
    """Copies of what is sent as it is."""
    program, sends = account.program, moves[account.copied[moves]]
    size, birth = program.region_bytes[sends], _departs(account, times, sends)
    return Buffers.made(
        "messages", program.layer[sends], program.device[sends], size, birth, _gone(account, times, sends)
    )


def _coming(account: Account, times: UnitTimes, moves: Ints, arrives: Ints) -> Buffers:
    """What arrives, from when its receiver gets ready for it until it has been read."""
    program = account.program
    device, micro_batch = program.peer[moves], program.micro_batch[moves]
    readers = unit_of(program, program.consumer[moves], device, micro_batch)
    makers = unit_of(program, program.layer[moves], device, micro_batch)
    read = np.where(program.recomputed[moves], times.forward[1].first[readers], times.forward[0].first[readers])
    until = np.where(program.backward[moves], times.backward.first[makers], read)
    until = np.maximum(until, times.end_s[arrives])
    size, ready = program.region_bytes[moves], account.departures.before(moves, device)
    early = (ready >= 0) & (arrives == moves)
    birth = np.where(early, np.minimum(times.start_s[arrives], times.end_s[ready]), times.start_s[arrives])
    return Buffers.made("messages", program.layer[moves], device, size, birth, until)


def codes(account: Account, times: UnitTimes) -> list[Buffers]:
    """Codes where they are made, and where they arrive."""
    program, task, start_s, end_s = account.program, account.waiting, times.start_s, times.end_s
    read_s, came_s = end_s.copy(), start_s.copy()
    np.maximum.at(read_s, program.after, end_s[task])
    moves = ~program.is_compute[program.after]
    np.minimum.at(came_s, task[moves], start_s[program.after[moves]])
    makes, takes = np.flatnonzero(program.compressed_bytes), np.flatnonzero(program.decompressed_bytes)
    return [
        Buffers.made("codes", program.layer[rows], program.device[rows], size[rows], born[rows], dead[rows])
        for rows, size, born, dead in (
            (makes, program.compressed_bytes, start_s, read_s), (takes, program.decompressed_bytes, came_s, end_s),
        )
    ]  # fmt: skip
