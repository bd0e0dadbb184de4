"""Peak memory of a program on every device, before any replay."""

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from groundwork.array_types import Floats, Ints
from groundwork.errors import DeviceMemoryError, FittingChange
from planner.lowering.program import Program
from planner.lowering.send_phases import program_order
from planner.memory.buffers import BUFFERS, Buffers, bytes_by_kind
from planner.memory.lifetimes import BufferLifetimes
from planner.memory.memory_policy import MemoryPolicy

COPIES_OF_PARAMETERS = 3
"""Copies of every parameter that SGD with momentum keeps: value, gradient and momentum."""


def peak_memory_bytes(
    program: Program, memory_policy: MemoryPolicy | None = None, *, without: Sequence[str] = ()
) -> Floats:
    """Compute the bytes that each device holds at the task where they are most, tasks taken in program order.

    The buffers are those of a replay (``planner.memory.buffers``).  A device runs its own tasks in program order in a
    replay too; what differs is when messages leave and arrive.

    Args:
        program: The program.
        memory_policy: What the run keeps beside the tensors of the network; None: the state of the program's optimizer.
        without: Kinds of buffers (``planner.memory.buffers.BUFFERS``) to leave out.

    Returns:
        Shape (devices,).
    """
    if not without:
        return _peak_of(program, memory_policy).bytes_by_device
    buffers = _in_program_order(program, memory_policy)
    return _peak(
        program, buffers.take(~np.isin(buffers.kind, [BUFFERS.index(kind) for kind in without]))
    ).bytes_by_device


def peak_by_kind_bytes(program: Program, memory_policy: MemoryPolicy | None = None) -> dict[str, float]:
    """Return what the fullest device holds at its peak, in bytes by kind.

    Kinds are parameters, gradients (of parameters), optimizer_state, activations with their gradients, and buffers;
    they add up to the device's ``peak_memory_bytes``.

    Args:
        program: The program.
        memory_policy: What the run keeps beside the tensors of the network.
    """
    return _peak_of(program, memory_policy).bytes_by_kind


class _Peak(NamedTuple):
    """Where devices hold most."""

    bytes_by_device: Floats
    """Shape (devices,)."""
    bytes_by_kind: dict[str, float]
    """What the fullest device holds then."""


@lru_cache(maxsize=2)
def _peak_of(program: Program, memory_policy: MemoryPolicy | None) -> _Peak:
    """Return the peak of a program in program order, which a plan needs twice: to be checked, and to be told."""
    return _peak(program, _in_program_order(program, memory_policy))


def _in_program_order(program: Program, memory_policy: MemoryPolicy | None) -> Buffers:
    """Return all buffers of an iteration whose tasks run one after another."""
    lifetimes = BufferLifetimes(program, memory_policy)
    return Buffers.of([lifetimes.persistent(), lifetimes.transient(*program_order(program))])


def _peak(program: Program, buffers: Buffers) -> _Peak:
    """Return the peak of some buffers of a program."""
    capacity = program.cluster.devices.of_each(lambda device: device.usable_bytes)
    peaks, start, time_s, held = held_over_time(buffers, len(capacity))
    busy = np.flatnonzero(np.diff(start))  # the buffers of all other devices never change
    if len(busy):
        peaks[busy] = np.maximum(peaks[busy], np.maximum.reduceat(held, start[busy]))
    fullest = int((peaks / capacity).argmax())
    mine, at_s = slice(start[fullest], start[fullest + 1]), 0.0
    if mine.start < mine.stop:
        at_s = time_s[mine][held[mine].argmax()]
    here = (buffers.device == fullest) & (buffers.allocated_s <= at_s) & (at_s < buffers.released_s)
    return _Peak(program.on_all_devices(peaks), bytes_by_kind(buffers.kind[here], buffers.size_bytes[here]))


def held_over_time(buffers: Buffers, devices: int) -> tuple[Floats, Ints, Floats, Floats]:
    """Compute the bytes that every device holds over time, in exact steps.

    Allocations and releases are sorted by device and time, and added up.  A device that holds 8 bytes from 1 s to 2 s
    and 4 bytes from 2 s to 5 s:

        time     1 s       2 s    2 s      5 s
        change   +8        -8     +4       -4
        steps    8 bytes   4 bytes         0 bytes

    Args:
        buffers: The buffers.
        devices: Number of devices.

    Returns:
        Bytes allocated for the whole run, shape (devices,); first step of each device, shape (devices + 1,); and by
        step its time and the bytes held from then on.
    """
    transient = np.flatnonzero(np.isfinite(buffers.released_s) & (buffers.released_s > buffers.allocated_s))
    persistent = ~np.isfinite(buffers.released_s)
    base = np.bincount(buffers.device[persistent], buffers.size_bytes[persistent], minlength=devices).astype(np.float64)
    device = np.tile(buffers.device[transient], 2)
    time_s = np.concatenate([buffers.allocated_s[transient], buffers.released_s[transient]])
    change = np.concatenate([buffers.size_bytes[transient], -buffers.size_bytes[transient]])
    # Sorts of 16 bits take linear time, and there are seldom more devices than these count.
    order = np.argsort(time_s)
    order = order[np.argsort(device[order].astype(np.min_scalar_type(devices)), kind="stable")]
    device, time_s, change = device[order], time_s[order], change[order]
    # Sizes are whole bytes, or nearly so: the running sum over all devices is exact, and each device ends at its base.
    last = np.ones(len(device), dtype=bool)
    last[:-1] = (device[1:] != device[:-1]) | (time_s[1:] != time_s[:-1])  # releases and allocations at once: one step
    held = np.asarray(np.cumsum(change)[last] + base[device[last]], dtype=np.float64)
    return base, np.searchsorted(device[last], np.arange(devices + 1)), time_s[last], held


def check_plan_memory(
    program: Program, needed: Floats, *, fitting: Callable[[], Sequence[FittingChange]] | None = None
) -> None:
    """Refuse a program that does not fit into the memory of its devices.

    Args:
        program: The program.
        needed: Shape (devices,): bytes that it needs, by ``peak_memory_bytes`` or by a replay's memory curve.
        fitting: Returns changes that fit, for the error message.

    Raises:
        DeviceMemoryError: A device has less memory than it needs; the message names the fullest device.
    """
    capacity = program.cluster.devices.of_each(lambda device: device.usable_bytes)
    worst = int((needed / capacity).argmax())
    if needed[worst] > capacity[worst]:
        tried = ": no recomputation, sub-batches, named strategy or smaller batch that was tried fits"
        raise DeviceMemoryError(
            device=program.cluster.devices[worst].name,
            needed_bytes=float(needed[worst]),
            capacity_bytes=float(capacity[worst]),
            memory_bytes=program.cluster.devices[worst].memory_bytes,
            fitting=fitting or tuple,
            otherwise=f"use more devices{tried if fitting else ' or a smaller batch'}",
        )
