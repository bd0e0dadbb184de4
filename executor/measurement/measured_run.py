"""What all ranks measured, joined: when each task of the program really ran."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from hwprofiles import Floats
from planner.lowering import Program

if TYPE_CHECKING:
    import pandas as pd

    from executor.program import Measured

__all__ = ["MEASUREMENT", "Measurement", "join", "read_measurement"]


MEASUREMENT = "measured.npz"
"""What rank 0 writes into the run's folder."""
WARM_UP = 2
"""Iterations that are measured but not counted: buffers are made, connections and caches warm up."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Measurement:
    """K iterations of T tasks, all on the clock of rank 0."""

    start_s: Floats
    """Shape (K, T): a transfer's sending, a collective's last arrival; NaN where nothing was measured."""
    end_s: Floats
    """Shape (K, T): a transfer's arrival, a collective's last end."""
    sent_bytes: Floats
    """Shape (K, T): as counted by the senders; NaN where the back end moved them by itself."""
    paused: NDArray[np.bool_]
    """Shape (K,): whether something else, such as a checkpoint's writing, came before an iteration."""
    loss: Floats
    """Shape (steps,): mean over the batch; of all steps, also of those before the K measured ones."""
    peak_memory_bytes: Floats
    """Shape (ranks,)."""
    notes: tuple[str, ...] = ()
    """What else ranks have to say."""
    allocated_bytes: Floats = field(default_factory=lambda: np.empty((0, 0)))
    """Shape (ranks, kinds): what was allocated at the peak, by ``executor.measurement.memory_meter.ALLOCATED``; empty
    if not asked
    for."""

    @cached_property
    def ends_s(self) -> Floats:
        """End of each iteration, shape (K,)."""
        return np.asarray(np.maximum.accumulate(np.nanmax(self.end_s, axis=1)))

    @cached_property
    def iterations_s(self) -> Floats:
        """Time of each iteration that counts, from end to end."""
        ends = np.concatenate([[float(np.nanmin(self.start_s[0]))], self.ends_s])
        return np.asarray(np.diff(ends)[self.counted])

    @cached_property
    def counted(self) -> NDArray[np.int64]:
        """Iterations that count: after the warm-up and not after a pause, where there are any; else the last."""
        iterations = np.arange(len(self.ends_s))
        found = iterations[(iterations >= WARM_UP) & ~self.paused]
        return found if len(found) else iterations[-1:]

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
    def task_s(self) -> Floats:
        """Median duration of each task over the iterations that count, shape (T,)."""
        return np.asarray(np.median(self.end_s[self.counted] - self.start_s[self.counted], axis=0))

    @cached_property
    def shown(self) -> int:
        """The iteration whose time is nearest the median: the one that timelines show."""
        return int(self.counted[np.abs(self.iterations_s - self.iteration_s).argmin()])

    def timeline(self, program: Program) -> "pd.DataFrame":
        """One row a task of a typical iteration, in the form of a simulated one; times from its first task."""
        from planner.simulation import iteration_rows  # not loaded by ranks, whose start it would delay

        start_s, end_s = self.start_s[self.shown], self.end_s[self.shown]
        origin_s = float(np.nanmin(start_s))
        return iteration_rows(program, start_s - origin_s, end_s - origin_s, iteration=self.shown, origin="measured")

    def write_trace(self, program: Program, path: Path) -> None:
        """Write the same iteration as a Chrome trace, in the form of a simulated one.

        Raises:
            ConfigError: The file cannot be written.
        """
        from simulator.formats import write_trace

        rows = self.timeline(program)
        names = np.array([device.name for device in program.cluster.devices] + ["collectives"])
        rows["process"] = names[program.device]
        rows["stream"] = rows["stream"].where(rows["kind"] != "transfer", "send")
        waits = program.waiting
        write_trace(path, rows, dependencies=np.column_stack([program.after, waits]))

    def write(self, path: Path) -> None:
        """Write everything as one file."""
        partial = path.with_name(f".{path.name}.part")
        with partial.open("wb") as file:
            np.savez_compressed(
                file, start_s=self.start_s, end_s=self.end_s, sent_bytes=self.sent_bytes, loss=self.loss,
                paused=self.paused, peak_memory_bytes=self.peak_memory_bytes, notes=np.array(self.notes, dtype=str),
                allocated_bytes=self.allocated_bytes,
            )  # fmt: skip
        partial.replace(path)


def read_measurement(path: Path) -> Measurement:
    """Read what ``Measurement.write`` wrote."""
    with np.load(path) as arrays:
        values = {name: arrays[name] for name in arrays.files}
    return Measurement(**{**values, "notes": tuple(values["notes"].tolist())})


def join(
    program: Program,
    ranks: Sequence[Sequence["Measured"]],
    losses: Floats,
    peak_memory_bytes: Floats,
    *,
    allocated_bytes: Floats | None = None,
    paused: Sequence[bool] = (),
    notes: tuple[str, ...] = (),
) -> Measurement:
    """Join the views of all ranks.

    Args:
        program: What ran.
        ranks: By rank and iteration, on one clock.
        losses: Shape (ranks, steps): shares of the mean loss.
        peak_memory_bytes: Shape (ranks,).
        allocated_bytes: As in ``Measurement``.
        paused: As in ``Measurement``; nothing came between if empty.
        notes: As in ``Measurement``.
    """
    starts = np.array([[row.start_s for row in rank] for rank in ranks])
    ends = np.array([[row.end_s for row in rank] for rank in ranks])
    sent = np.array([[row.sent_bytes for row in rank] for rank in ranks])
    known = ~np.isnan(sent).all(axis=0)
    return Measurement(
        # of a collective the last arrival is its start; anything else has one rank that says when it started
        start_s=np.fmax.reduce(starts, axis=0),
        end_s=np.fmax.reduce(ends, axis=0),
        sent_bytes=np.where(known, np.nansum(sent, axis=0), np.nan),
        paused=np.array(list(paused) or [False] * len(ranks[0])),
        loss=losses.sum(axis=0),
        peak_memory_bytes=peak_memory_bytes,
        notes=notes,
        allocated_bytes=np.empty((0, 0)) if allocated_bytes is None else allocated_bytes,
    )
