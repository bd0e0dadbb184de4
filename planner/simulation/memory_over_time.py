"""Memory over time: the bytes that each device has allocated at every moment of a replayed program."""

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from groundwork.array_types import Floats, Ints
from planner.lowering.program import Program
from planner.memory.buffers import BUFFERS, Buffers
from planner.memory.lifetimes import BufferLifetimes
from planner.memory.memory_policy import MemoryPolicy
from planner.memory.peak_memory import check_plan_memory, held_over_time
from planner.simulation.program_replay import Replay, replay

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, kw_only=True, eq=False)
class MemoryCurve:
    """Allocated memory of every device over a replay, in exact steps.

    Steps of device d are rows ``start[d]`` to ``start[d + 1]``: from ``time_s`` on it has ``held_bytes`` allocated.
    """

    program: Program
    buffers: Buffers
    always_bytes: Floats
    """Bytes allocated throughout, shape (devices,)."""
    start: Ints
    time_s: Floats
    held_bytes: Floats

    def of(self, device: int) -> tuple[Floats, Floats]:
        """Return the times of a device's steps, and the bytes allocated from each on."""
        device = self._lowered(device)
        rows = slice(self.start[device], self.start[device + 1])
        return self.time_s[rows], self.held_bytes[rows]

    @cached_property
    def peak_bytes(self) -> Floats:
        """Peak memory of each device, shape (devices,)."""
        peaks = self.always_bytes.copy()
        busy = np.flatnonzero(np.diff(self.start))
        if len(busy):
            peaks[busy] = np.maximum(peaks[busy], np.maximum.reduceat(self.held_bytes, self.start[busy]))
        return self.program.on_all_devices(peaks)

    def _lowered(self, device: int) -> int:
        """Return the device whose tasks stand for those of a device."""
        return device if self.program.classes is None else int(self.program.classes.device_like[device])

    @property
    def fullest(self) -> int:
        """Device whose peak is the largest share of its memory."""
        capacity = self.program.cluster.devices.of_each(lambda device: device.usable_bytes)
        return int((self.peak_bytes / capacity).argmax())

    def peak_time_s(self, device: int) -> float:
        """Return the time at which a device first reaches its peak; 0 if it only has what is allocated throughout."""
        times, held = self.of(device)
        return float(times[held.argmax()]) if len(held) else 0.0

    def alive(self, device: int, at_s: float) -> "pd.DataFrame":
        """Return the buffers of a device at a time: columns layer, kind, count and size_bytes, the largest first."""
        import pandas as pd

        known = self.buffers
        here = (known.device == self._lowered(device)) & (known.allocated_s <= at_s) & (at_s < known.released_s)
        rows = pd.DataFrame(
            {"layer": known.layer[here], "kind": known.kind[here], "count": 1, "size_bytes": known.size_bytes[here]}
        )
        rows = rows.groupby(["layer", "kind"], as_index=False).sum()
        rows = rows.sort_values("size_bytes", ascending=False, kind="stable", ignore_index=True)
        rows["layer"] = [self.program.graph.layers[i].name for i in rows["layer"]]
        rows["kind"] = [BUFFERS[i] for i in rows["kind"]]
        return rows


def replay_that_fits(program: Program) -> Replay:
    """Replay a program under its conditions, and refuse it if a device runs out of memory.

    Raises:
        InfeasiblePlanError: A device needs more memory than it has; the message has both sizes.
    """
    replayed = replay(program)
    check_replay_fits(replayed)
    return replayed


def check_replay_fits(replayed: Replay) -> None:
    """Refuse a replay in which a device runs out of memory; errors as for ``replay_that_fits``."""
    check_plan_memory(replayed.program, memory_curve(replayed).peak_bytes)


def memory_curve(replay: Replay, memory_policy: MemoryPolicy | None = None) -> MemoryCurve:
    """Return the allocated memory over a replay, all its iterations included."""
    known = buffers(replay, memory_policy)
    base, start, time_s, held = held_over_time(known, len(replay.program.cluster.devices))
    return MemoryCurve(
        program=replay.program, buffers=known, always_bytes=base, start=start, time_s=time_s, held_bytes=held
    )


def buffers(replay: Replay, memory_policy: MemoryPolicy | None = None) -> Buffers:
    """Return every buffer of every iteration of a replay, with its lifetime."""
    lifetimes, schedule = BufferLifetimes(replay.program, memory_policy), replay.schedule
    passing = [
        lifetimes.transient(schedule.start_s[tasks], schedule.end_s[tasks]) for tasks in replay.program_graph.task_of
    ]
    return Buffers.of([lifetimes.persistent(), *passing])
