"""Measurements of all ranks, joined: start and end of each task of the program."""

from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from groundwork.array_types import Floats
from groundwork.control_characters import check_texts
from groundwork.errors import ConfigError
from groundwork.input_arrays import array_input
from groundwork.whole_files import replacing
from planner.lowering.program import Program

if TYPE_CHECKING:
    import pandas as pd


class JoinedTasks:
    """Starts, ends and sent bytes of all tasks, shape (iterations, tasks) each, of the ranks that have been added.

    Ranks must be added in their order: then sums of bytes have the same last bit whichever way they came.
    """

    def __init__(self, iterations: int, tasks: int) -> None:
        self.start_s, self.end_s, self.sent_bytes = (np.full((iterations, tasks), np.nan) for _ in range(3))

    def add(self, first: int, times: Floats) -> None:
        """Add one rank's measurements of some iterations.

        Args:
            first: The first of the iterations.
            times: Starts, ends and sent bytes, shape (iterations, 3, tasks); NaN where the rank measures nothing.
        """
        rows = slice(first, first + len(times))
        # a collective starts when the last rank joins it; the start of any other task is measured by one rank
        for joined, values in ((self.start_s[rows], times[:, 0]), (self.end_s[rows], times[:, 1])):
            np.fmax(joined, values, out=joined)
        sent, values = self.sent_bytes[rows], times[:, 2]
        sent[:] = np.where(np.isnan(sent), values, sent + np.nan_to_num(values))


MEASUREMENT = "measured.npz"
"""Name of the file that rank 0 writes into the run's folder."""
WARM_UP = 2
"""Iterations that are measured but not counted: buffers are allocated, connections and caches warm up."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Measurement:
    """Measurement of K iterations of T tasks, on the clock of rank 0."""

    start_s: Floats
    """Starts, shape (K, T): when a transfer is sent, when the last rank joins a collective; NaN where not measured."""
    end_s: Floats
    """Ends, shape (K, T): when a transfer arrives, when a collective ends on the last rank."""
    sent_bytes: Floats
    """Bytes that the senders counted, shape (K, T); NaN where the back end sent them by itself."""
    paused: NDArray[np.bool_]
    """Pauses, shape (K,): True if other work, such as writing a checkpoint, came before an iteration."""
    loss: Floats
    """Mean loss over the batch, shape (steps,); of all steps, also of those before the K measured ones."""
    peak_memory_bytes: Floats
    """Peak memory, shape (ranks,)."""
    notes: tuple[str, ...] = ()
    allocated_bytes: Floats = field(default_factory=lambda: np.empty((0, 0)))
    """Bytes allocated at the peak, shape (ranks, kinds), by ``executor.measurement.memory_meter.ALLOCATED``; empty if
    not measured."""

    @cached_property
    def ends_s(self) -> Floats:
        """End of each iteration, shape (K,)."""
        return np.asarray(np.maximum.accumulate(np.nanmax(self.end_s, axis=1)))

    @cached_property
    def iterations_s(self) -> Floats:
        """Duration of each counted iteration, from end to end."""
        ends = np.concatenate([[float(np.nanmin(self.start_s[0]))], self.ends_s])
        return np.asarray(np.diff(ends)[self.counted])

    @cached_property
    def counted(self) -> NDArray[np.int64]:
        """Iterations that count: those after the warm-up and not after a pause; the last one where there are none."""
        iterations = np.arange(len(self.ends_s))
        counted = iterations[(iterations >= WARM_UP) & ~self.paused]
        return counted if len(counted) else iterations[-1:]

    @property
    def iteration_s(self) -> float:
        """Median time of an iteration."""
        return float(np.median(self.iterations_s))

    @property
    def spread_s(self) -> float:
        """Half the distance between the quartiles of the iteration times."""
        low, high = np.quantile(self.iterations_s, [0.25, 0.75])
        return float(high - low) / 2

    @cached_property
    def shown(self) -> int:
        """Iteration whose duration is nearest to the median, which timelines show."""
        return int(self.counted[np.abs(self.iterations_s - self.iteration_s).argmin()])

    def timeline(self, program: Program) -> "pd.DataFrame":
        """Return one row for each task of a typical iteration, in the form of a simulated timeline.

        Times are seconds from the start of the first task.
        """
        return self.iteration_timeline(program, self.shown)

    def iteration_timeline(self, program: Program, row: int) -> "pd.DataFrame":
        """Return the timeline of one iteration; ``waited_for`` follows from the program and the measured ends."""
        # not loaded by ranks, whose start it would delay
        from planner.simulation.program_replay import iteration_rows, last_waited_for

        origin_s, before_end_s = float(np.nanmin(self.start_s[row])), self.end_s[row - 1] if row else None
        start_s, end_s = self.start_s[row] - origin_s, self.end_s[row] - origin_s
        rows = iteration_rows(program, start_s, end_s, iteration=row, origin="measured")
        return rows.assign(waited_for=last_waited_for(program, self.end_s[row], before_end_s))

    def write_trace(self, program: Program, path: Path) -> None:
        """Write the same iteration as a Chrome trace, in the form of a simulated one.

        Raises:
            ConfigError: The file cannot be written.
        """
        from simulator.formats.chrome_trace import write_trace

        rows = self.timeline(program).drop(columns=["ready_s", "latency_s"])
        names = np.array([*program.cluster.devices.names, "collectives"])
        rows["process"] = names[program.device]
        rows["stream"] = rows["stream"].where(rows["kind"] != "transfer", "send")
        waits = program.waiting
        write_trace(path, rows, dependencies=np.column_stack([program.after, waits]))

    def write(self, path: Path) -> None:
        """Write everything as one file."""
        with replacing(path) as partial, partial.open("wb") as file:
            np.savez_compressed(
                file,
                start_s=self.start_s,
                end_s=self.end_s,
                sent_bytes=self.sent_bytes,
                loss=self.loss,
                paused=self.paused,
                peak_memory_bytes=self.peak_memory_bytes,
                notes=np.array(self.notes, dtype=str),
                allocated_bytes=self.allocated_bytes,
            )


_DIMENSIONS = {
    "start_s": 2,
    "end_s": 2,
    "sent_bytes": 2,
    "loss": 1,
    "paused": 1,
    "peak_memory_bytes": 1,
    "notes": 1,
    "allocated_bytes": 2,
}
"""Arrays of a file, with their numbers of dimensions."""
_LONGEST_S = 1e12


def read_measurement(path: Path) -> Measurement:
    """Read a measurement that ``Measurement.write`` wrote.

    Raises:
        ConfigError: The file cannot be read, is damaged, or holds other arrays, or times that no run can have.
    """
    values = array_input(path, "measurement")
    origin = f"measurement {path}"
    if values.keys() != _DIMENSIONS.keys():
        raise ConfigError(f"{origin} must hold the arrays {', '.join(_DIMENSIONS)}, got {', '.join(values) or 'none'}")
    kinds = {"paused": "b", "notes": "U"}
    for name, array in values.items():
        if array.ndim != _DIMENSIONS[name] or array.dtype.kind != kinds.get(name, "f"):
            raise ConfigError(
                f"{origin}: {name} must have {_DIMENSIONS[name]} dimensions, got {array.dtype} of {array.shape}"
            )
    start_s, end_s = values["start_s"], values["end_s"]
    if not start_s.size or not start_s.shape == end_s.shape == values["sent_bytes"].shape:
        raise ConfigError(f"{origin}: start_s, end_s and sent_bytes must have one shape, got {start_s.shape}")
    if values["paused"].shape != start_s.shape[:1]:
        raise ConfigError(f"{origin}: paused must have an entry for each iteration, got {values['paused'].shape}")
    measured = ~np.isnan(start_s)
    if not (measured.any(axis=1).all() and np.array_equal(measured, ~np.isnan(end_s))):
        raise ConfigError(f"{origin}: every iteration must have tasks with both a start and an end")
    if np.any(np.abs(np.concatenate([start_s[measured], end_s[measured]])) > _LONGEST_S):
        raise ConfigError(f"{origin}: times must be at most {_LONGEST_S:g} s")
    if np.any(end_s[measured] < start_s[measured]):
        raise ConfigError(f"{origin}: no task may end before it starts")
    notes: list[str] = values.pop("notes").tolist()
    check_texts(notes, origin)
    measurement = Measurement(**values, notes=tuple(notes))
    if not measurement.iteration_s > 0:
        raise ConfigError(f"{origin}: iterations must take time, got {measurement.iteration_s:g} s")
    return measurement
