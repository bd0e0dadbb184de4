"""Memory that a program needs on every device at its peak, before any replay."""

from collections.abc import Callable, Sequence

import numpy as np

from hwprofiles import DeviceMemoryError, Floats, Ints
from planner.lowering import Program, program_order
from planner.memory.buffer_account import parameter_bytes, residuals
from planner.memory.buffers import BUFFERS, Buffers
from planner.memory.lifetimes import BufferLifetimes
from planner.memory.memory_policy import MOMENTUM, MemoryPolicy

__all__ = [
    "COPIES_OF_PARAMETERS",
    "check_plan_memory",
    "held_over_time",
    "parameter_bytes",
    "peak_memory_bytes",
    "residuals",
]


COPIES_OF_PARAMETERS = 3
"""Value, gradient and momentum of every trained number."""


def peak_memory_bytes(
    program: Program, memory_policy: MemoryPolicy = MOMENTUM, *, without: Sequence[str] = ()
) -> Floats:
    """Bytes that each device must hold, at the task where that is most, tasks taken in program order.

    The buffers are those of the replay (``planner.memory.buffers``); what differs is when messages come and go, for a
    device
    runs its own tasks in program order there too.

    Args:
        program: What is to run.
        keeping: What is kept beside the tensors of the network.
        without: Kinds of buffers (``planner.memory.buffers.BUFFERS``) to leave out.

    Returns:
        Shape (devices,).
    """
    lives = BufferLifetimes(program, memory_policy)
    known = Buffers.of([lives.kept(), lives.passing(*program_order(program))])
    if without:
        known = known.take(~np.isin(known.kind, [BUFFERS.index(kind) for kind in without]))
    base, start, _, held = held_over_time(known, len(program.cluster.devices))
    busy = np.flatnonzero(np.diff(start))
    if len(busy):
        base[busy] = np.maximum(base[busy], np.maximum.reduceat(held, start[busy]))
    return base


def held_over_time(known: Buffers, devices: int) -> tuple[Floats, Ints, Floats, Floats]:
    """What every device holds, in exact steps.

    Returns:
        What is always there, shape (devices,); where the steps of each device begin, shape (devices + 1,); from when
        on, and how much is held, one row a step.
    """
    passing = np.flatnonzero(np.isfinite(known.death_s) & (known.death_s > known.birth_s))
    always = ~np.isfinite(known.death_s)
    base = np.bincount(known.device[always], known.size_bytes[always], minlength=devices).astype(np.float64)
    device = np.tile(known.device[passing], 2)
    time_s = np.concatenate([known.birth_s[passing], known.death_s[passing]])
    change = np.concatenate([known.size_bytes[passing], -known.size_bytes[passing]])
    order = np.lexsort((time_s, device))
    device, time_s, change = device[order], time_s[order], change[order]
    # Sizes are whole bytes, or nearly so: the running sum over all devices is exact, and each device ends at its base.
    last = np.ones(len(device), dtype=bool)
    last[:-1] = (device[1:] != device[:-1]) | (time_s[1:] != time_s[:-1])  # what is freed and taken at once is one step
    held = np.asarray(np.cumsum(change)[last] + base[device[last]], dtype=np.float64)
    return base, np.searchsorted(device[last], np.arange(devices + 1)), time_s[last], held


def check_plan_memory(program: Program, needed: Floats, *, nearest: Callable[[], str] | None = None) -> None:
    """Refuse a program that does not fit.

    Args:
        program: What is to run.
        needed: Shape (devices,): bytes that it needs, by ``peak_memory_bytes`` or by a replay's memory curve.
        nearest: Says what would fit.

    Raises:
        DeviceMemoryError: A device holds less than it needs; names the fullest one with both numbers.
    """
    capacity = np.array([device.memory_bytes for device in program.cluster.devices])
    worst = int((needed / capacity).argmax())
    if needed[worst] > capacity[worst]:
        raise DeviceMemoryError(
            device=program.cluster.devices[worst].name,
            needed_bytes=float(needed[worst]),
            capacity_bytes=float(capacity[worst]),
            change=nearest or (lambda: "use more devices or a smaller batch"),
        )
