"""Replay a program on the simulator and read off one steady iteration."""

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from hwprofiles import ConfigError, Floats, html_table
from planner.lowering import KINDS, Program
from planner.simulation.execution_models import ITERATIONS, ProgramGraph, build_program_graph
from planner.simulation.link_use import LinkUse
from simulator.engines import simulate
from simulator.formats import write_trace
from simulator.graph import Schedule
from simulator.timelines import resource_use, union

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Replay", "Shares", "iteration_rows", "replay"]


_TRACED_LINKS = 16
_MOST_TASKS = 20_000_000
"""Of all iterations together: some gigabytes.  As many iterations as are usual may have more."""


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
    program_graph: ProgramGraph
    schedule: Schedule
    engine_s: float
    """Wall time of the engine."""

    def __repr__(self) -> str:
        return f"Replay({self.program.name}: {self.iteration_s:.4g} s an iteration, {self.tasks} tasks)"

    def _repr_html_(self) -> str:
        """Return the time of each kind of task as a table, for notebooks."""
        times = self.timeline().assign(seconds=lambda rows: rows["end_s"] - rows["start_s"]).groupby("kind")["seconds"]
        rows = [
            {"kind": kind, "tasks": int(count), "seconds, summed over devices": f"{seconds:.4g}"}
            for kind, count, seconds in times.agg(["size", "sum"]).itertuples()
        ]
        return html_table(repr(self), rows)

    @cached_property
    def ends_s(self) -> Floats:
        """End of each iteration, shape (K,): its last task's end, and never before the one before."""
        ends = self.schedule.end_s[self.program_graph.task_of].max(axis=1)
        return np.maximum.accumulate(ends)

    @property
    def tasks(self) -> int:
        """Tasks of one iteration of the program."""
        return self.program.size

    @cached_property
    def steady_s(self) -> tuple[float, float, int]:
        """Start, end and number of the iterations that stand for the steady state.

        Two, because some schedules alternate between two; and not the last, which shares the cluster with no
        iteration after it.  Shorter replays give what they have.
        """
        ends = np.concatenate([[0.0], self.ends_s])
        last = max(len(ends) - 2, min(len(ends) - 1, 2))
        count = max(min(last - 1, 2), 1)
        return float(ends[last - count]), float(ends[last]), count

    @cached_property
    def iteration_s(self) -> float:
        """Steady-state time of one iteration: the mean of those that ``steady_s`` names."""
        begin, end, count = self.steady_s
        return (end - begin) / count

    @cached_property
    def window_s(self) -> tuple[float, float]:
        """Start and end of the iteration that timelines show: the last but one, where there are three."""
        ends = np.concatenate([[0.0], self.ends_s])
        last = max(len(ends) - 2, 1)
        return float(ends[last - 1]), float(ends[last])

    def _intervals(self, begin: float, end: float) -> tuple[NDArray[np.int64], Floats, Floats]:
        """Program task, start and end of everything that overlaps a window, cut to it."""
        start_s = self.schedule.ready_s[self.program_graph.task_of]
        end_s = self.schedule.end_s[self.program_graph.task_of]
        iteration, task = np.nonzero((end_s > begin) & (start_s < end))
        return task, np.maximum(start_s[iteration, task], begin), np.minimum(end_s[iteration, task], end)

    def shares(self) -> Shares:
        """Split the time of an iteration on the busiest device into arithmetic, exposed communication and idle."""
        program, (begin, end, count) = self.program, self.steady_s
        task, start_s, end_s = self._intervals(begin, end)
        compute = program.is_compute[task]
        busy = np.bincount(
            program.device[task[compute]], weights=(end_s - start_s)[compute], minlength=len(program.cluster.devices)
        )
        device = int(busy.argmax())
        mine = compute & (program.device[task] == device)
        touching = np.array([not c and self._touches(t, device) for t, c in zip(task.tolist(), compute, strict=True)])
        arithmetic = _covered_s(start_s[mine], end_s[mine])
        both = _covered_s(start_s[mine | touching], end_s[mine | touching])
        return Shares(
            device=device,
            compute_s=arithmetic / count,
            exposed_communication_s=(both - arithmetic) / count,
            idle_s=(end - begin - both) / count,
        )

    def _touches(self, task: int, device: int) -> bool:
        if task in self.program.collectives:
            return device in self.program.collectives[task].devices
        return device in (self.program.device[task], self.program.peer[task])

    @cached_property
    def shown(self) -> tuple[int, float]:
        """The iteration that timelines show, and when its first task starts: often before the one before ends."""
        row = max(len(self.ends_s) - 2, 0)
        return row, float(self.schedule.start_s[self.program_graph.task_of[row]].min())

    def timeline(self) -> "pd.DataFrame":
        """One row a task of the steady iteration; times from the start of its first task, seconds."""
        row, origin_s = self.shown
        engine_task = self.program_graph.task_of[row]
        start_s, end_s = self.schedule.start_s[engine_task] - origin_s, self.schedule.end_s[engine_task] - origin_s
        return iteration_rows(self.program, start_s, end_s, iteration=row, origin="simulated")

    def to_frame(self) -> "pd.DataFrame":
        """The same as ``timeline``: the name that all results have."""
        return self.timeline()

    def link_use(self, bins: int = 200) -> LinkUse:
        """Use of every link over the steady iteration; a transfer counts evenly over its time."""
        begin, end = self.window_s
        edges, links = np.linspace(begin, end, bins + 1), self.program.cluster.links
        share = resource_use(self.program_graph.graph, self.schedule, edges)[: len(links)].clip(min=0.0)
        return LinkUse(
            links=tuple(link.name for link in links),
            edges_s=edges - self.shown[1],
            share=share,
            moved_bytes=share.sum(axis=1) * self.program.cluster.bandwidth * (end - begin) / bins,
        )

    def write_trace(self, path: Path) -> None:
        """Write the steady iteration as a Chrome trace: a process a device, and one for the collectives.

        Counters follow the links that carry most.

        Raises:
            ConfigError: The file cannot be written.
        """
        rows, program, use = self.timeline(), self.program, self.link_use()
        names = np.array([device.name for device in program.cluster.devices] + ["collectives"])
        rows["process"] = names[program.device]
        rows["stream"] = rows["stream"].where(rows["kind"] != "transfer", "send")
        waits = program.waiting
        busiest = np.argsort(-use.moved_bytes, kind="stable")[:_TRACED_LINKS]
        counters = {
            ("links", use.links[link]): (use.edges_s[:-1].tolist(), use.share[link].tolist())
            for link in busiest.tolist()
        }
        write_trace(path, rows, dependencies=np.column_stack([program.after, waits]), counters=counters)


def iteration_rows(program: Program, start_s: Floats, end_s: Floats, *, iteration: int, origin: str) -> "pd.DataFrame":
    """One row a task, in the form that simulated and measured timelines share.

    Args:
        program: What ran.
        start_s, end_s: Shape (T,).
        iteration: Which one it was.
        origin: ``simulated`` or ``measured``.
    """
    import pandas as pd  # a third of a second to load, and a replay does without

    names = [layer.name for layer in program.graph.layers]
    kinds = np.array(KINDS)[program.kind]
    return pd.DataFrame(
        {
            "id": np.arange(program.size),
            "name": [program.name(task) for task in range(program.size)],
            "kind": kinds,
            "device": program.device,
            "peer": program.peer,
            "stream": np.where(program.is_codec, "coding", np.where(program.is_compute, "compute", kinds)),
            "layer": [names[i] for i in program.layer],
            "phase": np.where(kinds == "update", "update", np.where(program.backward, "backward", "forward")),
            "iteration": iteration,
            "sub_batch": program.micro_batch,
            "start_s": start_s,
            "end_s": end_s,
            "bytes": program.size_bytes,
            "origin": origin,
        }
    )


def _covered_s(start_s: Floats, end_s: Floats) -> float:
    """Length of the union of intervals."""
    starts, ends = union(start_s, end_s)
    return float((ends - starts).sum())


def replay(
    program: Program,
    *,
    overlap: bool = True,
    contention: bool = True,
    iterations: int = ITERATIONS,
    engine: str = "auto",
) -> Replay:
    """Replay several iterations of a program.

    Args:
        program: One iteration, lowered.
        overlap: Off: the phases of Eq. 1 run one after the other, with barriers between.
        contention: Off: a phase's transfers load all their links at once and meet nobody else.
        iterations: Iterations in a row, >= 1; the steady state is read from the last two but one.
        engine: ``auto``, ``compiled`` or ``simpy``.

    Raises:
        ConfigError: ``iterations`` < 1, more than memory should be spent on, or an unknown engine.
    """
    if iterations < 1:
        raise ConfigError(f"iterations must be >= 1, got {iterations}")
    most = max(ITERATIONS, _MOST_TASKS // max(1, program.size))
    if iterations > most:
        rule = f"at most {most:,} for a program of {program.size:,} tasks"
        raise ConfigError(f"iterations must be {rule}, got {iterations}")
    program_graph = build_program_graph(program, overlap=overlap, contention=contention, iterations=iterations)
    begin = perf_counter()
    schedule = simulate(program_graph.graph, engine=engine)
    return Replay(program=program, program_graph=program_graph, schedule=schedule, engine_s=perf_counter() - begin)
