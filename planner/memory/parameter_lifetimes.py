"""Buffers of parameters: they and the optimizer's state for the whole run, their gradients for a while."""

from collections.abc import Sequence

import numpy as np

from groundwork.array_types import Floats, Ints
from planner.graph.computation_graph import Edge
from planner.graph.type_roles import TYPE_BYTES
from planner.layouts.regions import needed_regions
from planner.layouts.shared_regions import shared_regions
from planner.layouts.storage_units import storage_units
from planner.lowering.program import KINDS, Program
from planner.lowering.unit_times import UnitTimes, unit_of
from planner.memory.backend_memory import BackendMemory
from planner.memory.buffer_account import MemoryAccount, parameter_bytes, residuals
from planner.memory.buffers import BufferRows, Buffers
from planner.memory.message_lifetimes import sent_until
from planner.operations.base import BATCH_STATISTICS

_UPDATE, _TRANSFER = KINDS.index("update"), KINDS.index("transfer")


def persistent_buffers(account: MemoryAccount) -> Buffers:
    """Return what is allocated for the whole run.

    That is: parameters with their optimizer's state and master weights, gradients that are synchronised, running
    statistics, residuals of compression and, where the back end has them, buffers of messages.
    """
    program, backend, rows, never = account.program, account.memory_policy.backend, list[BufferRows](), np.inf
    zero = program.conditions.storage.zero
    types, element_bytes = program.types, program.graph.element_bytes
    wider = TYPE_BYTES[types.accumulation] / element_bytes
    for i, devices in account.parameter_devices.items():
        size, shards = account.parameter_bytes[i], account.storage_shards[i]
        kept, state = account.memory_policy.kept_bytes(types, divided=zero > 2 and shards > 1)
        held = size * kept / element_bytes / (shards if zero > 2 else 1)
        rows.append(BufferRows("parameters", i, devices, held, 0.0, never))
        rows.append(BufferRows("optimizer state", i, devices, size * state / element_bytes / shards, 0.0, never))
        if account.synchronised[i] or program.conditions.software.sums > 1:
            summed = wider * size / (shards if zero > 1 else 1)
            rows.append(BufferRows("parameter gradients", i, devices, summed, 0.0, never))
        if program.graph.layers[i].operation.statistics:
            running = BATCH_STATISTICS * account.channels(i) * program.graph.element_bytes
            rows.append(BufferRows("statistics", i, devices, running, 0.0, never))
    rows += [*_undivided(account), *_borrowed_parameters(account)]
    for i, space in enumerate(program.spaces):
        rows.append(BufferRows("parameters", i, space.devices, parameter_bytes(program, i, frozen=True), 0.0, never))
    for i, device in residuals(program):
        part = program.spaces[i].part_on(account.devices)[[device]]
        rows.append(BufferRows("residuals", i, np.array([device]), account.parameter_bytes[i][part], 0.0, never))
    if backend.has_message_buffers:
        moves = np.flatnonzero(program.kind == _TRANSFER)
        size = program.size_bytes[moves]
        rows.append(BufferRows("messages", program.layer[moves], program.peer[moves], size, 0.0, never))
        divides = program.conditions.storage.divides
        rows.append(_shard_buffers(program) if divides else _pair_buffers(program, backend))
    return Buffers.joined(rows)


def _undivided(account: MemoryAccount) -> list[BufferRows]:
    """Return the buffers in which units of divided storage are whole for a while.

    Gradients are whole in the unit that goes back and in the one before, whose sums travel; gathered parameters in the
    unit that computes and in the next one, in all that a segment computes again, or in all where gradients of weights
    come much later than the others.  Of what lies in no block, both are whole all the time.
    """
    program, storage = account.program, account.program.conditions.storage
    if storage.zero < 2:
        return []
    units = storage_units(program.graph, whole=storage.zero < 3)
    size = np.zeros((len(units), account.devices))
    for unit, layers in enumerate(units):
        for i in (i for i in layers if account.storage_shards[i] > 1):
            size[unit, program.spaces[i].devices] += account.parameter_bytes[i]
    kept, others = (size[0], size[1:]) if storage.zero == 3 else (np.zeros(account.devices), size)
    repeats, devices = program.micro_batching.parts > 1, np.arange(account.devices)
    sent = TYPE_BYTES[program.types.message] / program.graph.element_bytes
    gradients = sent * (kept + _two_in_turn(others, repeats=repeats))
    rows = [BufferRows("parameter gradients", 0, devices, gradients, 0.0, np.inf)]
    if storage.zero == 3:
        gathered = size.sum(axis=0)
        if storage.gathers_again and program.micro_batching.order != "zero-bubble":
            gathered = kept + np.maximum(_two_in_turn(others, repeats=False), _recomputed(program, units[1:], others))
        rows.append(BufferRows("parameters", 0, devices, gathered, 0.0, np.inf))
    return rows


def _recomputed(program: Program, units: Sequence[tuple[int, ...]], size: Floats) -> Floats:
    """Return the most bytes of the units that one segment computes again before it goes back, shape (devices,).

    Args:
        program: The program.
        units: Layers of each unit.
        size: Shape (units, devices): bytes.
    """
    most = np.zeros(size.shape[1])
    for segment in {*program.segments} - {-1}:
        inside = [any(program.segments[i] == segment for i in layers) for layers in units]
        most = np.maximum(most, size[inside].sum(axis=0))
    return most


def _two_in_turn(size: Floats, *, repeats: bool) -> Floats:
    """Return the most bytes of two units that follow each other on a device, shape (devices,).

    Args:
        size: Shape (units, devices): bytes; 0 where a device holds nothing of a unit.
        repeats: Whether the first unit follows the last one.
    """
    most, before, last = np.zeros(size.shape[1]), np.zeros(size.shape[1]), np.full(size.shape[1], -1)
    for unit in [*range(len(size))] * (2 if repeats else 1):
        here = size[unit] > 0
        both = size[unit] + np.where(last == unit, 0.0, before)
        most = np.where(here, np.maximum(most, both), most)
        before, last = np.where(here, size[unit], before), np.where(here, unit, last)
    return most


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
    added_each = program.conditions.software.sums > 1
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
        first, last = _weight_times(account, times, way.consumer, devices)
        last = np.maximum(last, _weight_times(account, times, way.producer, devices)[1])
        mine = (program.layer[sends] == by.producer) & (program.consumer[sends] == by.consumer)
        mine &= program.slot[sends] == by.slot
        sent = np.full(account.devices, -np.inf)
        np.maximum.at(sent, program.device[sends[mine]], until[mine])
        size = _borrowed_bytes(account, way)[space.part_on(account.devices)[devices]]
        released = np.maximum(last, sent[devices])
        rows.append(BufferRows("parameter gradients", way.consumer, devices, size, first, released))
        count = program.micro_batching.of(way.consumer)
        if count > 1 and program.conditions.software.sums <= 1:
            each = np.repeat(devices, count)
            units = unit_of(program, np.full(len(each), way.consumer), each, np.tile(np.arange(count), len(devices)))
            begin, end = times.weight.second[units], times.weight.end[units]
            sums = _sums(begin.reshape(-1, count), size, 2 * size)
            rows.append(BufferRows("workspace", way.consumer, each, sums, begin, end))
    return rows


def _weight_times(account: MemoryAccount, times: UnitTimes, layer: int, devices: Ints) -> tuple[Floats, Floats]:
    """Return when devices first have a weight gradient of a layer, and when its last one is done.

    Returns:
        Shape (devices,) each; infinite and minus infinity where a device holds no part.
    """
    first, last = np.full(len(devices), np.inf), np.full(len(devices), -np.inf)
    for s in range(account.program.micro_batching.of(layer)):
        cells = unit_of(account.program, np.full(len(devices), layer), devices, np.full(len(devices), s))
        end = times.weight.end[cells]
        first = np.minimum(first, times.weight.second[cells])
        last = np.maximum(last, np.where(np.isfinite(end), end, -np.inf))
    return first, last
