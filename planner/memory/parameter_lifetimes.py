"""Buffers of parameters: they and the optimizer's state for the whole run, their gradients for a while."""

import numpy as np

from groundwork.array_types import Floats, Ints
from planner.graph.computation_graph import Edge
from planner.graph.type_roles import TYPE_BYTES
from planner.layouts.regions import needed_regions
from planner.layouts.shared_regions import shared_regions
from planner.lowering.program import KINDS, Program
from planner.lowering.unit_times import UnitTimes, unit_of
from planner.memory.backend_memory import BackendMemory
from planner.memory.buffer_account import MemoryAccount, parameter_bytes, residuals
from planner.memory.buffers import BufferRows, Buffers
from planner.memory.message_lifetimes import sent_until
from planner.memory.storage_lifetimes import kept_gradients, sums_come_and_go
from planner.operations.base import BATCH_STATISTICS
from planner.operations.linear import Linear
from planner.operations.products import TensorProduct

_UPDATE, _TRANSFER = KINDS.index("update"), KINDS.index("transfer")


def persistent_buffers(account: MemoryAccount) -> Buffers:
    """Return what is allocated for the whole run.

    That is: parameters with their optimizer's state and master weights, gradients that are synchronised, running
    statistics, residuals of compression, the workspace of libraries and, where the back end has them, buffers of
    messages.
    """
    program, backend, rows, never = account.program, account.memory_policy.backend, list[BufferRows](), np.inf
    zero, software = program.conditions.storage.zero, program.conditions.software
    types, element_bytes = program.types, program.graph.element_bytes
    wider = TYPE_BYTES[types.accumulation] / element_bytes
    for i, devices in account.parameter_devices.items():
        size, shards = account.parameter_bytes[i], account.storage_shards[i]
        kept, state = account.memory_policy.kept_bytes(types, divided=zero > 2 and shards > 1)
        held = size * kept / element_bytes / (shards if zero > 2 else 1)
        rows.append(BufferRows("parameters", i, devices, held, 0.0, never))
        rows.append(BufferRows("optimizer state", i, devices, size * state / element_bytes / shards, 0.0, never))
        summed = wider * size / (shards if zero > 1 else 1)
        if software.gradient_buffer or (account.synchronised[i] and not sums_come_and_go(account, i)):
            rows.append(BufferRows("parameter gradients", i, devices, summed, 0.0, never))
        if program.graph.layers[i].operation.statistics:
            running = BATCH_STATISTICS * account.channels(i) * program.graph.element_bytes
            rows.append(BufferRows("statistics", i, devices, running, 0.0, never))
    rows += [*([kept_gradients(account)] if zero > 2 else []), *_borrowed_parameters(account)]
    rows.append(BufferRows("workspace", 0, np.arange(account.devices), software.workspace_bytes, 0.0, never))
    for i, space in enumerate(program.spaces):
        rows.append(BufferRows("parameters", i, space.devices, parameter_bytes(program, i, frozen=True), 0.0, never))
    for i, device in residuals(program):
        part = program.spaces[i].part_on(account.devices)[[device]]
        rows.append(BufferRows("residuals", i, np.array([device]), account.parameter_bytes[i][part], 0.0, never))
    if backend.has_message_buffers:
        moves = np.flatnonzero(program.kind == _TRANSFER)
        moves = np.repeat(moves, program.each(program.receiver[moves], moves))
        size, receiver = program.size_bytes[moves], program.receiver[moves]
        rows.append(BufferRows("messages", program.layer[moves], receiver, size, 0.0, never))
        divides = program.conditions.storage.divides
        rows.append(_shard_buffers(program) if divides else _pair_buffers(program, backend))
    return Buffers.joined(rows)


def _pair_buffers(program: Program, backend: BackendMemory) -> BufferRows:
    """Return the buffer in which each of two replicas receives what the other one adds."""
    sizes: dict[int, dict[int, float]] = {}
    for task, collective in program.collectives.items():
        if collective.ranks == 2 and collective.round.is_ring and program.syncs_gradients[task]:
            for device in collective.devices:
                sizes.setdefault(device, {})[int(program.layer[task])] = collective.buffer_bytes
    layer = np.array([min(row) for row in sizes.values()], dtype=np.int64)
    size = np.array([backend.pair_buffer_bytes(sum(row.values())) for row in sizes.values()])
    return BufferRows("messages", layer, np.array(list(sizes), dtype=np.int64), size, 0.0, np.inf)


def _shard_buffers(program: Program) -> BufferRows:
    """Return the buffer in which each replica receives what the others add to its shard of the largest unit."""
    largest = np.zeros(len(program.cluster.devices))
    for task, collective in program.collectives.items():
        if program.syncs_gradients[task]:
            group = list(collective.devices)
            others = collective.buffer_bytes * (collective.ranks - 1) / collective.ranks
            largest[group] = np.maximum(largest[group], others)
    devices = np.arange(len(largest))
    return BufferRows("messages", np.zeros_like(devices), devices, largest, 0.0, np.inf)


def parameter_gradients(account: MemoryAccount, times: UnitTimes) -> list[BufferRows]:
    """Return gradients from a layer's weight gradient to its update or, if synchronised, into their buffer."""
    program, micro_batching, rows = account.program, account.program.micro_batching, list[BufferRows]()
    software = program.conditions.software
    added_each = software.gradient_buffer
    update = np.full(times.cells, -np.inf)
    tasks = np.flatnonzero(program.kind == _UPDATE)
    np.maximum.at(update, times.unit[tasks], times.end_s[tasks])
    for i, devices in account.parameter_devices.items():
        cells, count = account.cells_of[i].reshape(len(devices), -1), micro_batching.of(i)
        begin, end = times.weight.second[cells], times.weight.end[cells]
        synchronised = account.synchronised[i] or added_each
        buffer = program.types.message if program.conditions.storage.zero > 1 else program.types.accumulation
        same_type = buffer == program.types.activation
        into_buffer = synchronised and same_type and not added_each
        each, in_place = np.repeat(devices, count), into_buffer & account.parts[i].gradient_in_place
        if added_each and not software.sums:  # products themselves add to the buffer
            in_place |= isinstance(program.graph.layers[i].operation, TensorProduct | Linear)
        size = np.where(in_place, 0.0, account.parameter_bytes[i])
        if micro_batching.update_each or count == 1 or added_each or program.conditions.storage.zero > 1:
            until = end if synchronised else np.maximum(update[cells], end)
            rows.append(
                BufferRows("parameter gradients", i, each, np.repeat(size, count), begin.ravel(), until.ravel())
            )
            continue
        last = end.max(axis=1)
        until = last if synchronised else np.maximum(update[cells].max(axis=1), last)
        rows.append(BufferRows("parameter gradients", i, devices, size, begin.min(axis=1), until))
        one, scratch = account.parameter_bytes[i], account.parts[i].scratch["weight_gradient"]
        second = np.where(in_place, one, one + np.maximum(one - scratch, 0.0))
        rows.append(BufferRows("workspace", i, each, _sums(begin, one, second), begin.ravel(), end.ravel()))
    rows += _borrowed_gradients(account, times)
    return rows


def _sums(begin: Floats, one: Floats, second: Floats) -> Floats:
    """Return what is held while the gradient of each micro-batch is added to those before, shape (parts x count,).

    The second is added to the first: into a new buffer, once what computed it is released, or into that of the
    synchronisation; all later ones are added to the sum.

    Args:
        begin: Shape (parts, count): time at which each micro-batch has its gradient.
        one: Shape (parts,): bytes of a gradient.
        second: Shape (parts,): bytes that are held while the second is added.
    """
    turn = begin.argsort(axis=1).argsort(axis=1)
    return np.choose(np.minimum(turn, 2), [0.0, second[:, None], one[:, None]]).ravel()


def _borrowed_parameters(account: MemoryAccount) -> list[BufferRows]:
    """Return the copies of shared parameters on devices that do not hold all of what their layer borrows.

    Software that trains the copies holds their gradients and state too.
    """
    program, element_bytes, rows = account.program, account.program.graph.element_bytes, list[BufferRows]()
    summed_bytes = TYPE_BYTES[program.types.accumulation]
    zero = program.conditions.storage.zero
    for way in dict.fromkeys(program.borrowed_by.values()):
        away = _away(account, way)
        size = _borrowed_bytes(account, way)[program.spaces[way.consumer].part_on(account.devices)[away]]
        rows.append(BufferRows("parameters", way.consumer, away, size, 0.0, np.inf))
        if program.conditions.software.trains_copies and program.graph.returns_gradient(way):
            shards = account.storage_shards[way.producer]
            kept = size * summed_bytes / element_bytes / (shards if zero > 1 else 1)
            _, each = account.memory_policy.kept_bytes(program.types, divided=False)
            state = size * each / element_bytes / shards
            rows.append(BufferRows("parameter gradients", way.consumer, away, kept, 0.0, np.inf))
            rows.append(BufferRows("optimizer state", way.consumer, away, state, 0.0, np.inf))
    return rows


def _away(account: MemoryAccount, way: Edge) -> Ints:
    """Return the devices that do not hold all of a shared parameter that their layer borrows."""
    spaces, shared = account.program.spaces, account.program.graph.shared[way]
    owner = spaces[way.producer]
    regions = shared_regions(owner, spaces[way.consumer], shared, account.devices)
    return np.unique(regions.device[owner.devices[regions.part] != regions.device])


def _borrowed_bytes(account: MemoryAccount, way: Edge) -> Floats:
    """Return the bytes of a shared parameter that each part of a layer borrows."""
    shared, space = account.program.graph.shared[way], account.program.spaces[way.consumer]
    volume = needed_regions(space, shared.needed, shared.shape).volume
    return np.asarray(volume * float(account.program.graph.element_bytes), dtype=np.float64)


def _borrowed_gradients(account: MemoryAccount, times: UnitTimes) -> list[BufferRows]:
    """Return the gradients of shared parameters where a layer borrows them, until they are added or have been sent."""
    program, graph, rows = account.program, account.program.graph, list[BufferRows]()
    sends = np.flatnonzero(program.moves_parameters & program.backward)
    until = sent_until(account, times, sends)
    for way, by in program.borrowed_by.items():
        if not graph.returns_gradient(way):
            continue
        space = program.spaces[way.consumer]
        devices = space.devices
        if program.conditions.software.trains_copies:
            devices = np.setdiff1d(devices, _away(account, by))
        count = program.micro_batching.of(way.consumer)
        each, micro_batch = np.repeat(devices, count), np.tile(np.arange(count), len(devices))
        mine = (program.layer[sends] == by.producer) & (program.consumer[sends] == by.consumer)
        mine &= program.slot[sends] == by.slot
        sent = np.full(account.devices, -np.inf)
        np.maximum.at(sent, program.device[sends[mine]], until[mine])
        uses, owns = (
            unit_of(program, np.full(len(each), layer), each, micro_batch) for layer in (way.consumer, way.producer)
        )
        begin, end = times.weight.second[uses], times.weight.end[uses]
        added = np.maximum(_finite(end), _finite(times.weight.end[owns]))
        size = _borrowed_bytes(account, way)[space.part_on(account.devices)[devices]]
        if program.micro_batching.update_each or (program.conditions.storage.zero > 1 and not mine.any()):
            rows.append(BufferRows("parameter gradients", way.consumer, each, np.repeat(size, count), begin, added))
            continue
        first, last = begin.reshape(-1, count).min(axis=1), added.reshape(-1, count).max(axis=1)
        rows.append(
            BufferRows("parameter gradients", way.consumer, devices, size, first, np.maximum(last, sent[devices]))
        )
        if count > 1 and not program.conditions.software.gradient_buffer:
            sums = _sums(begin.reshape(-1, count), size, 2 * size)
            rows.append(BufferRows("workspace", way.consumer, each, sums, begin, end))
    return rows


def _finite(times: Floats) -> Floats:
    """Return times with minus infinity where there is no task."""
    return np.where(np.isfinite(times), times, -np.inf)
