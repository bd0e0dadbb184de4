"""Buffers of divided storage: parameters that are whole while they are read, and gradients until they are summed.

Parameters of a unit are gathered while the unit before computes, and released by their last reader; gradients of a unit
are whole from the first of them until the next unit but one goes back, when their sums have arrived.  What is whole
while units go back, and then while parameters are updated::

    unit that goes back     2       1       0       none
    parameters of units     2, 1    1, 0    0       none
    gradients of units      2       2, 1    1, 0    none
"""

import numpy as np

from planner.graph.type_roles import TYPE_BYTES
from planner.layouts.storage_units import storage_units
from planner.lowering.program import KINDS
from planner.lowering.unit_times import UnitTimes
from planner.memory.buffer_account import MemoryAccount
from planner.memory.buffers import BufferRows

_GATHER, _UPDATE, _WEIGHT_GRADIENT = (KINDS.index(kind) for kind in ("gather", "update", "weight_gradient"))
_WHOLE_GRADIENTS = 2
"""Units whose gradients are whole at once: the one that goes back, and the one whose sums travel."""


class _Units:
    """Units of divided storage."""

    def __init__(self, account: MemoryAccount) -> None:
        program = account.program
        rows = storage_units(program.graph, whole=program.conditions.storage.zero < 3)
        self.first = np.array([min(layers, default=0) for layers in rows])
        """First layer of each."""
        self.of_layer = np.full(len(program.graph.layers), -1)
        """Unit of each layer; -1 where replicas do not divide its parameters."""
        self.size = np.zeros((len(rows), account.devices))
        """Bytes of the parameters that each device computes with, shape (units, devices)."""
        for unit, layers in enumerate(rows):
            for i in (i for i in layers if account.storage_shards[i] > 1):
                self.of_layer[i] = unit
                self.size[unit, program.spaces[i].devices] += account.parameter_bytes[i]


def kept_gradients(account: MemoryAccount) -> BufferRows:
    """Return the gradients that are whole all the time: of what lies in no block, where parameters are divided."""
    size = _Units(account).size[0] * _sent_share(account)
    return BufferRows("parameter gradients", 0, np.arange(account.devices), size, 0.0, np.inf)


def sums_come_and_go(account: MemoryAccount, layer: int) -> bool:
    """Return whether sums of a layer's gradients lie in memory from its unit's first gradient to its last update."""
    conditions = account.program.conditions
    return conditions.storage.zero > 1 and account.storage_shards[layer] > 1 and not conditions.software.gradient_buffer


def divided_storage(account: MemoryAccount, times: UnitTimes) -> list[BufferRows]:
    """Return parameters and gradients that replicas divide, where they are whole for a while."""
    zero = account.program.conditions.storage.zero
    units = _Units(account) if zero > 1 else None
    if units is None:
        return []
    gathered = [_gathered(account, units, times)] if zero > 2 else []
    return [*gathered, _whole_gradients(account, units, times), *_sums(account, units, times)]


def _sent_share(account: MemoryAccount) -> float:
    """Return the bytes of a gradient that is summed by those of a parameter that is computed with."""
    return TYPE_BYTES[account.program.types.message] / account.program.graph.element_bytes


def _gathered(account: MemoryAccount, units: _Units, times: UnitTimes) -> BufferRows:
    """Return the parameters that are gathered, from when their gather may begin to the end of its last reader."""
    program, waits, count = account.program, account.waiting, account.devices
    ready = np.full(program.size, -np.inf)
    np.maximum.at(ready, waits, times.end_s[program.after])
    ready = np.minimum(times.start_s, np.where(np.isfinite(ready), ready, np.inf))
    gathers, parts = program.kind == _GATHER, program.micro_batching.parts
    turn = (units.of_layer[program.layer] * parts + program.micro_batch) * 2 + program.backward
    begin = np.full(len(units.first) * parts * 2, np.inf)
    np.minimum.at(begin, turn[gathers], ready[gathers])
    pairs = np.flatnonzero(gathers[program.after] & program.is_compute[waits])
    reader = waits[pairs]
    held, place = np.unique(turn[program.after[pairs]] * count + program.device[reader], return_inverse=True)
    until = np.full(len(held), -np.inf)
    np.maximum.at(until, place, times.end_s[reader])
    turn, device = np.divmod(held, count)
    unit, allocated = turn // (2 * parts), begin[turn]
    order = np.lexsort((allocated, device, unit))
    unit, device, allocated, until = unit[order], device[order], allocated[order], until[order]
    again = (unit[1:] == unit[:-1]) & (device[1:] == device[:-1])  # what is still held is not gathered elsewhere
    allocated[1:] = np.maximum(allocated[1:], np.where(again, until[:-1], -np.inf))
    return BufferRows("parameters", units.first[unit], device, units.size[unit, device], allocated, until)


def _whole_gradients(account: MemoryAccount, units: _Units, times: UnitTimes) -> BufferRows:
    """Return the gradients of units that travel, from the first gradient to the next unit but one, or the updates."""
    program, start_s = account.program, times.start_s
    kept = program.conditions.storage.zero > 2  # then those of the first unit are whole all the time
    tasks = np.flatnonzero((program.kind == _WEIGHT_GRADIENT) & (units.of_layer[program.layer] >= kept))
    tasks = tasks[np.lexsort((start_s[tasks], program.device[tasks]))]
    device, unit = program.device[tasks], units.of_layer[program.layer[tasks]]
    enters = np.ones(len(tasks), dtype=bool)
    enters[1:] = (device[1:] != device[:-1]) | (unit[1:] != unit[:-1])
    device, unit, begin = device[enters], unit[enters], start_s[tasks[enters]]
    updates = np.flatnonzero(program.kind == _UPDATE)
    until = np.full(account.devices, np.inf)
    np.minimum.at(until, program.device[updates], start_s[updates])
    released = until[device]
    later = device[_WHOLE_GRADIENTS:] == device[:-_WHOLE_GRADIENTS]
    released[:-_WHOLE_GRADIENTS][later] = begin[_WHOLE_GRADIENTS:][later]
    size = units.size[unit, device] * _sent_share(account)
    return BufferRows("parameter gradients", units.first[unit], device, size, begin, released)


def _sums(account: MemoryAccount, units: _Units, times: UnitTimes) -> list[BufferRows]:
    """Return the shards of gradients that devices keep, from a unit's first gradient to its last update."""
    program, count = account.program, account.devices
    wider = TYPE_BYTES[program.types.accumulation] / program.graph.element_bytes
    begin, until = np.full(len(units.first) * count, np.inf), np.full(len(units.first) * count, -np.inf)
    for kind, moments, ufunc, bound in (
        (_WEIGHT_GRADIENT, times.start_s, np.minimum, begin),
        (_UPDATE, times.end_s, np.maximum, until),
    ):
        tasks = np.flatnonzero((program.kind == kind) & (units.of_layer[program.layer] >= 0))
        ufunc.at(bound, units.of_layer[program.layer[tasks]] * count + program.device[tasks], moments[tasks])
    rows = []
    for i, devices in account.parameter_devices.items():
        if sums_come_and_go(account, i):
            place, size = units.of_layer[i] * count + devices, wider * account.parameter_bytes[i]
            size = size / account.storage_shards[i]
            rows.append(BufferRows("parameter gradients", i, devices, size, begin[place], until[place]))
    return rows
