"""Regions on their way: copies that leave and arrive, and their codes."""

import numpy as np
from numpy.typing import NDArray

from planner.buffers import Buffers
from planner.lives.account import Account
from planner.program import KINDS
from planner.unit_times import UnitTimes, unit_of

__all__ = ["codes", "leaves", "messages"]

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
_COMPRESS, _DECOMPRESS, _TRANSFER = (KINDS.index(kind) for kind in ("compress", "decompress", "transfer"))


def leaves(account: Account, times: UnitTimes, sends: Ints) -> Floats:
    """When what transfers send is no more needed: it has arrived, or its codes have been made."""
    program, task, end = account.program, account.waiting, times.end_s.copy()
    pairs = (program.kind[task] == _TRANSFER) & (program.kind[program.after] == _COMPRESS)
    end[task[pairs]] = times.end_s[program.after[pairs]]
    return np.asarray(end[sends])


def messages(account: Account, times: UnitTimes) -> list[Buffers]:
    """Copies of regions on their way: where they leave, and, without buffers of their own, where they arrive."""
    program, task = account.program, account.waiting
    moves = np.flatnonzero(program.kind == _TRANSFER)
    arrives = np.arange(program.size)  # by transfer, the task with which its numbers are there
    decoding = (program.kind[task] == _DECOMPRESS) & (program.kind[program.after] == _TRANSFER)
    arrives[program.after[decoding]] = task[decoding]
    decoded = arrives[moves] != moves
    come = moves[decoded] if account.keeping.host else moves
    return [_leaving(account, times, moves[~decoded]), _coming(account, times, come, arrives[come])]


def _leaving(account: Account, times: UnitTimes, moves: Ints) -> Buffers:
    """Copies of what is sent as it is; a whole part is no copy, nor is a gradient of which nothing stays."""
    program = account.program
    part_bytes = np.array([part.output.max(initial=0.0) for part in account.parts])
    holds = np.zeros((len(account.parts), account.devices), dtype=bool)
    for i, space in enumerate(program.spaces):
        holds[i, space.devices] = True
    layer, device, size = program.layer[moves], program.device[moves], program.region_bytes[moves]
    copied = (size < part_bytes[layer]) | (program.backward[moves] & holds[layer, device])
    sends = moves[copied]
    return Buffers.made(
        "messages", layer[copied], device[copied], size[copied], times.start_s[sends], _freed(account, times, sends)
    )


def _freed(account: Account, times: UnitTimes, sends: Ints) -> Floats:
    """When copies that were sent are freed: on processors, no sooner than the sender's next task has ended."""
    program, end = account.program, times.end_s[sends]
    if not account.keeping.host:
        return end
    tasks = np.flatnonzero(program.is_compute & ~program.is_coding)
    places = np.sort(program.device[tasks] * program.size + tasks)
    mine = program.device[sends] * program.size + sends
    following = places[np.minimum(np.searchsorted(places, mine), len(places) - 1)]
    same = following // program.size == program.device[sends]
    return np.where(same, np.maximum(end, times.end_s[following % program.size]), end)


def _coming(account: Account, times: UnitTimes, moves: Ints, arrives: Ints) -> Buffers:
    """What has arrived, until it has been read."""
    program = account.program
    device, sub_batch = program.peer[moves], program.sub_batch[moves]
    readers = unit_of(program, program.consumer[moves], device, sub_batch)
    makers = unit_of(program, program.layer[moves], device, sub_batch)
    read = np.where(program.again[moves], times.forward[1].first[readers], times.forward[0].first[readers])
    until = np.where(program.backward[moves], times.backward.first[makers], read)
    until = np.maximum(until, times.end_s[arrives])
    size, birth = program.region_bytes[moves], times.start_s[arrives]
    return Buffers.made("messages", program.layer[moves], device, size, birth, until)


def codes(account: Account, times: UnitTimes) -> list[Buffers]:
    """Codes where they are made, and where they arrive."""
    program, task, start_s, end_s = account.program, account.waiting, times.start_s, times.end_s
    read_s, came_s = end_s.copy(), start_s.copy()
    np.maximum.at(read_s, program.after, end_s[task])
    moves = ~program.is_compute[program.after]
    np.minimum.at(came_s, task[moves], start_s[program.after[moves]])
    makes, takes = np.flatnonzero(program.made_bytes), np.flatnonzero(program.taken_bytes)
    return [
        Buffers.made("codes", program.layer[rows], program.device[rows], size[rows], born[rows], dead[rows])
        for rows, size, born, dead in (
            (makes, program.made_bytes, start_s, read_s), (takes, program.taken_bytes, came_s, end_s),
        )
    ]  # fmt: skip
