"""What parameters take: themselves and the optimizer's state, always, and their gradients for a while."""

import numpy as np

from planner.lowering import KINDS, PAIR_BYTES, Program, UnitTimes
from planner.memory.buffer_account import Account, residuals
from planner.memory.buffers import Buffers
from planner.operations import BATCH_STATISTICS

__all__ = ["kept", "parameter_gradients"]

_UPDATE, _TRANSFER = KINDS.index("update"), KINDS.index("transfer")


def kept(account: Account) -> Buffers:
    """Parameters with their optimizer's state, gradients that are exchanged, residuals, buffers of messages."""
    program, rows, never = account.program, [], np.inf
    for i, devices in account.places.items():
        size = account.held_bytes[i]
        rows.append(Buffers.made("parameters", i, devices, size, 0.0, never))
        rows.append(Buffers.made("optimizer state", i, devices, size * account.memory_policy.states, 0.0, never))
        if account.exchanged[i]:
            rows.append(Buffers.made("parameter gradients", i, devices, size, 0.0, never))
        if program.graph.layers[i].operation.statistics:
            running = BATCH_STATISTICS * account.channels(i) * program.graph.element_bytes
            rows.append(Buffers.made("statistics", i, devices, running, 0.0, never))
    for i, device in residuals(program):
        rows.append(Buffers.made("residuals", i, np.array([device]), account.held_bytes[i], 0.0, never))
    if account.memory_policy.host:
        moves = np.flatnonzero(program.kind == _TRANSFER)
        size = program.size_bytes[moves]
        rows.append(Buffers.made("messages", program.layer[moves], program.peer[moves], size, 0.0, never))
        rows.append(_sums_of_two(program))
    return Buffers.of(rows) if rows else Buffers.made("parameters", 0, np.empty(0, dtype=np.int64), 0.0, 0.0, 0.0)


def _sums_of_two(program: Program) -> Buffers:
    """Where what the other adds arrives, half of it on each; it is as long as the longest sum, up to a bound."""
    sizes: dict[int, dict[int, float]] = {}
    for task, collective in program.collectives.items():
        if len(collective.devices) == 2 and collective.round.is_ring and not program.statistics[task]:
            for device in collective.devices:
                sizes.setdefault(device, {})[int(program.layer[task])] = collective.buffer_bytes
    layer = np.array([min(row) for row in sizes.values()], dtype=np.int64)
    size = np.array([min(sum(row.values()), PAIR_BYTES) / 2 for row in sizes.values()])
    return Buffers.made("messages", layer, np.array(list(sizes), dtype=np.int64), size, 0.0, np.inf)


def parameter_gradients(account: Account, times: UnitTimes) -> list[Buffers]:
    """From a layer's weight gradient to its update or, where it is exchanged, to its buffer."""
    program, micro_batching, rows = account.program, account.program.micro_batching, list[Buffers]()
    update = np.full(times.cells, -np.inf)
    tasks = np.flatnonzero(program.kind == _UPDATE)
    np.maximum.at(update, times.unit[tasks], times.end_s[tasks])
    for i, devices in account.places.items():
        cells, subs, size = account.cells_of[i].reshape(len(devices), -1), micro_batching.of(i), account.held_bytes[i]
        begin, end = times.weight.second[cells], times.weight.end[cells]
        each, placed = np.repeat(devices, subs), account.exchanged[i] & account.parts[i].placed
        size = np.where(placed, 0.0, size)
        if micro_batching.update_each or subs == 1:
            until = end if account.exchanged[i] else np.maximum(update[cells], end)
            rows.append(
                Buffers.made("parameter gradients", i, each, np.repeat(size, subs), begin.ravel(), until.ravel())
            )
            continue
        last = end.max(axis=1)
        until = last if account.exchanged[i] else np.maximum(update[cells].max(axis=1), last)
        rows.append(Buffers.made("parameter gradients", i, devices, size, begin.min(axis=1), until))
        turn = begin.argsort(axis=1).argsort(axis=1)
        # the second is added to the first in a tensor of their own, or where the first has its place
        second = np.where(placed, 1.0, 2.0)[:, None]
        sums = np.choose(np.minimum(turn, 2), [0.0, second, 1.0]).ravel() * account.held_bytes[i]
        rows.append(Buffers.made("workspace", i, each, sums, begin.ravel(), end.ravel()))
    return rows
