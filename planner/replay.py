"""Replay a program on the simulator and read off one steady iteration."""

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from time import perf_counter

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from hwprofiles.errors import ConfigError
from planner.comparison import LinkUse
from planner.program import KINDS, Program
from planner.readings import Reading, read
from simulator.chrome_trace import write_trace
from simulator.engine import simulate
from simulator.task_graph import Schedule

__all__ = ["Replay", "Shares", "replay"]

Floats = NDArray[np.float64]

_TRACED_LINKS = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Shares:
    """What the device that computes longest does in one steady iteration; adds up to the iteration time."""

    device: int
    compute_s: float
    exposed_communication_s: float
    """Communication of that device that none of its arithmetic covers."""
    idle_s: float


@dataclass(frozen=True, kw_only=True)
class Replay:
    """A program of several iterations, replayed."""

    program: Program
    reading: Reading
    schedule: Schedule
    engine_s: float
    """Wall time of the engine."""

    @cached_property
    def ends_s(self) -> Floats:
        """End of each iteration, shape (K,): its last task's end, and never before the one before."""
        ends = self.schedule.end_s[self.reading.task_of].max(axis=1)
        return np.maximum.accumulate(ends)

    @property
    def tasks(self) -> int:
        """Tasks of one iteration of the program."""
        return self.program.size

    @cached_property
    def iteration_s(self) -> float:
        """Steady-state time of one iteration: the mean over the later half of the iterations."""
        ends = self.ends_s
        if len(ends) == 1:
            return float(ends[0])
        half = len(ends) // 2
        return float((ends[-1] - ends[half - 1]) / (len(ends) - half))

    @cached_property
    def window_s(self) -> tuple[float, float]:
        """Start and end of the iteration that timelines show: the last but one, where there are three."""
        ends = np.concatenate([[0.0], self.ends_s])
        last = max(len(ends) - 2, 1)
        return float(ends[last - 1]), float(ends[last])

    def _intervals(self) -> tuple[NDArray[np.int64], Floats, Floats]:
        """Program task, start and end of everything that overlaps the window, cut to it."""
        begin, end = self.window_s
        start_s = self.schedule.ready_s[self.reading.task_of]
        end_s = self.schedule.end_s[self.reading.task_of]
        iteration, task = np.nonzero((end_s > begin) & (start_s < end))
        return task, np.maximum(start_s[iteration, task], begin), np.minimum(end_s[iteration, task], end)

    def shares(self) -> Shares:
        """Split the steady iteration of the busiest device into arithmetic, exposed communication and idle."""
        program, (begin, end) = self.program, self.window_s
        task, start_s, end_s = self._intervals()
        compute = program.is_compute[task]
        busy = np.bincount(
            program.device[task[compute]], weights=(end_s - start_s)[compute], minlength=len(program.cluster.devices)
        )
        device = int(busy.argmax())
        mine = compute & (program.device[task] == device)
        touching = np.array([not c and self._touches(t, device) for t, c in zip(task.tolist(), compute, strict=True)])
        arithmetic = _union(start_s[mine], end_s[mine])
        both = _union(start_s[mine | touching], end_s[mine | touching])
        return Shares(
            device=device,
            compute_s=arithmetic,
            exposed_communication_s=both - arithmetic,
            idle_s=end - begin - both,
        )

    def _touches(self, task: int, device: int) -> bool:
        if task in self.program.collectives:
            return device in self.program.collectives[task].devices
        return device in (self.program.device[task], self.program.peer[task])

    def timeline(self) -> pd.DataFrame:
        """One row a task of the steady iteration; times from the start of the iteration, seconds."""
        program, row = self.program, min(max(len(self.ends_s) - 2, 0), len(self.ends_s) - 1)
        engine_task, origin = self.reading.task_of[row], self.window_s[0]
        names = [layer.name for layer in program.graph.layers]
        kinds = np.array(KINDS)[program.kind]
        return pd.DataFrame(
            {
                "id": np.arange(program.size),
                "name": [program.name(task) for task in range(program.size)],
                "kind": kinds,
                "device": program.device,
                "peer": program.peer,
                "stream": np.where(program.is_compute, "compute", kinds),
                "layer": [names[i] for i in program.layer],
                "phase": np.where(kinds == "update", "update", np.where(program.backward, "backward", "forward")),
                "iteration": row,
                "start_s": self.schedule.start_s[engine_task] - origin,
                "end_s": self.schedule.end_s[engine_task] - origin,
                "bytes": program.size_bytes,
                "origin": "simulated",
            }
        )

    def link_use(self, bins: int = 200) -> LinkUse:
        """Use of every link over the steady iteration; a transfer counts evenly over its time."""
        begin, end = self.window_s
        edges = np.linspace(begin, end, bins + 1)
        graph, links = self.reading.graph, len(self.program.cluster.links)
        share = np.zeros((links, bins))
        start_s, end_s = self.schedule.start_s, self.schedule.end_s
        tasks = np.repeat(np.arange(graph.size), np.diff(graph.use_start))
        on_link = (graph.use_resource < links) & (end_s[tasks] > begin) & (start_s[tasks] < end)
        for task, link, weight in zip(
            tasks[on_link].tolist(),
            graph.use_resource[on_link].tolist(),
            graph.use_weight[on_link].tolist(),
            strict=True,
        ):
            length = end_s[task] - start_s[task]
            cover = np.clip(np.minimum(edges[1:], end_s[task]) - np.maximum(edges[:-1], start_s[task]), 0, None)
            share[link] += cover * (graph.work[task] * weight / max(length, 1e-300))
        width = (end - begin) / bins
        moved = share.sum(axis=1)
        bandwidth = self.program.cluster.bandwidth
        names = tuple(link.name for link in self.program.cluster.links)
        return LinkUse(
            links=names, edges_s=edges - begin, share=share / (bandwidth[:, None] * width), moved_bytes=moved
        )


def _union(start_s: Floats, end_s: Floats) -> float:
    """Length of the union of intervals."""
    if not len(start_s):
        return 0.0
    order = np.argsort(start_s, kind="stable")
    start_s, reach = start_s[order], np.maximum.accumulate(end_s[order])
    gaps = np.clip(start_s[1:] - reach[:-1], 0, None).sum()
    return float(reach[-1] - start_s[0] - gaps)


def replay(
    program: Program, *, overlap: bool = True, contention: bool = True, iterations: int = 4, engine: str = "auto"
) -> Replay:
    """Replay several iterations of a program.

    Args:
        program: One iteration, lowered.
        overlap: Off: the phases of Eq. 1 run one after the other, with barriers between.
        contention: Off: a phase's transfers load all their links at once and meet nobody else.
        iterations: Iterations in a row, >= 1; the steady state is read from the later half.
        engine: ``auto``, ``compiled`` or ``simpy``.

    Raises:
        ConfigError: ``iterations`` < 1 or an unknown engine.
    """
    if iterations < 1:
        raise ConfigError(f"iterations must be >= 1, got {iterations}")
    reading = read(program, overlap=overlap, contention=contention, iterations=iterations)
    begin = perf_counter()
    schedule = simulate(reading.graph, engine=engine)
    return Replay(program=program, reading=reading, schedule=schedule, engine_s=perf_counter() - begin)
