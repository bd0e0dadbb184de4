"""Replay of a program on the simulator, and the timeline of its steady iteration."""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from groundwork.array_types import Bools, Floats, Ints
from groundwork.errors import ConfigError
from groundwork.input_files import AnyPath
from groundwork.notebook_tables import html_table
from groundwork.sparse_rows import row_owners
from hwprofiles.compute.profile_file import profile_in
from planner.expected.likely_times import WIDE_ARITHMETIC, TimeParts, expected_s, likely_s
from planner.lowering.program import KINDS, Program
from planner.simulation.collective_use import carried_bytes
from planner.simulation.execution_models import ITERATIONS, ProgramGraph, build_program_graph
from planner.simulation.host_launches import with_launches
from planner.simulation.input_rate import input_s, with_input
from planner.simulation.interference_use import with_interference
from planner.simulation.iterations import all_in_a_row, first_alone
from planner.simulation.link_use import LinkUse
from planner.simulation.rank_spread import drawn_factors, wait_share, with_factors, with_slowest_rank
from planner.topology.network_routes import routes_of_cluster
from simulator.formats.chrome_trace import write_trace
from simulator.graph.task_graph import Schedule
from simulator.timelines.last_causes import before_in_streams, last_causes
from simulator.timelines.timeline import resource_use, union

if TYPE_CHECKING:
    import pandas as pd


_TRACED_LINKS = 16
"""Links with most traffic, for which a trace has counters."""
_MOST_TASKS = 20_000_000
"""Most tasks of all iterations together, which take some gigabytes; ``ITERATIONS`` iterations may have more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shares:
    """Shares of a steady iteration of the device that computes longest; they add up to the iteration time."""

    device: int
    compute_s: float
    exposed_communication_s: float
    """Time in which the device communicates and does not compute."""
    idle_s: float
    """Time in which the device neither computes nor communicates."""


@dataclass(frozen=True, kw_only=True)
class Replay:
    """Replay of several iterations of a program."""

    program: Program
    program_graph: ProgramGraph
    """Task graph of all iterations under the execution model."""
    schedule: Schedule
    """Start and end of each task of the graph."""
    engine_s: float
    """Wall time of the engine."""
    wait_share: float = 0.0
    """Share by which the slowest rank is expected to compute longer than the mean, as all do here; 0 without a spread,
    and where one was drawn."""

    def __repr__(self) -> str:
        subject = f"{self.program.graph.name} on {self.program.cluster.spec}"
        times = f"{self.expected_s:.4g} s an iteration expected, {self.iteration_s:.4g} s simulated"
        return f"Replay({subject}: {times}, {self.tasks} tasks)"

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
        """End of each iteration, shape (K,): the end of its last task, and not before that of earlier iterations."""
        return np.maximum.accumulate(self.schedule.end_s[self.program_graph.task_of].max(axis=1))

    @property
    def tasks(self) -> int:
        """Number of tasks of one iteration, on all devices."""
        return int(self.program.stands_for.sum())

    @cached_property
    def steady_s(self) -> tuple[float, float, int]:
        """Start, end and number of the iterations that represent the steady state.

        There are two, because some schedules alternate between two iteration times, and the last is left out, because
        no iteration behind it shares the cluster.  Shorter replays use the iterations that they have.
        """
        iterations = len(self.ends_s)
        last = max(iterations - 1, min(iterations, 2))
        count = max(min(last - 1, 2), 1)
        ends = np.concatenate([[0.0], self.ends_s])
        return float(ends[last - count]), float(ends[last]), count

    @cached_property
    def iteration_s(self) -> float:
        """Steady-state time of one iteration: the mean of the iterations of ``steady_s``."""
        begin, end, count = self.steady_s
        return (end - begin) / count

    @cached_property
    def time_parts(self) -> TimeParts:
        """Shares of the iteration, from which follows what it is expected to take.

        Where the input of samples is a bound, they are of the machine alone: its prediction has errors, the rate none.
        """
        if self.program.conditions.input_images_per_s:
            unbound = replace(self.program.conditions, input_images_per_s=0.0)
            machine = replay(replace(self.program, conditions=unbound))
            return replace(machine.time_parts, input_s=input_s(self.program))
        program, devices = self.program, len(self.program.cluster.devices)
        profiles = {device.profile for device in program.cluster.devices.kinds}
        sent = np.flatnonzero(~program.is_compute)
        # the bytes of a collective are those of all its messages: about twice the buffer for every device
        of_collectives = np.isin(sent, list(program.collectives))
        count = program.stands_for[sent]
        sizes = np.where(of_collectives, program.size_bytes[sent] / (2 * devices), program.size_bytes[sent])
        return TimeParts(
            total_s=self.iteration_s,
            exposed_s=self.shares().exposed_communication_s,
            devices=devices,
            message_bytes=float(count @ sizes**2 / (count @ sizes)) if sizes.any() else 0.0,
            nodes=program.cluster.node_count,
            real=self.wait_share > 0,
            by_relative=any(profile_in(name, program.conditions.arithmetic).relative for name in profiles),
            half=program.conditions.arithmetic not in WIDE_ARITHMETIC,
        )

    @property
    def expected_s(self) -> float:
        """Median of the times that an iteration may take on real machines, whose errors were measured.

        ``iteration_s`` is the time of the machine as it is described.
        """
        return expected_s(self.time_parts)

    @property
    def likely_s(self) -> tuple[float, float] | None:
        """80 % interval about ``expected_s``; None where errors are not known."""
        return likely_s(self.time_parts)

    @property
    def durations_s(self) -> Floats:
        """Duration of every iteration, shape (K,): from the end of the one before."""
        return np.diff(self.ends_s, prepend=0.0)

    @cached_property
    def window_s(self) -> tuple[float, float]:
        """Start and end of the iteration that timelines show: the last but one if there are three or more."""
        ends = np.concatenate([[0.0], self.ends_s])
        last = max(len(ends) - 2, 1)
        return float(ends[last - 1]), float(ends[last])

    def _intervals(self, begin: float, end: float) -> tuple[NDArray[np.int64], Floats, Floats]:
        """Return program task, start and end of everything that overlaps a window, clipped to it."""
        start_s = self.schedule.ready_s[self.program_graph.task_of]
        end_s = self.schedule.end_s[self.program_graph.task_of]
        iteration, task = np.nonzero((end_s > begin) & (start_s < end))
        return task, np.maximum(start_s[iteration, task], begin), np.minimum(end_s[iteration, task], end)

    def shares(self) -> Shares:
        """Divide the time of an iteration on the busiest device into compute, exposed communication and idle time."""
        program, (begin, end, count) = self.program, self.steady_s
        task, start_s, end_s = self._intervals(begin, end)
        compute = program.is_compute[task]
        busy = np.bincount(
            program.device[task[compute]], weights=(end_s - start_s)[compute], minlength=len(program.cluster.devices)
        )
        device = int(busy.argmax())
        computing = compute & (program.device[task] == device)
        communicating = ~compute & self._use(device)[task]
        compute_s = _covered_s(start_s[computing], end_s[computing])
        busy_s = _covered_s(start_s[computing | communicating], end_s[computing | communicating])
        return Shares(
            device=device,
            compute_s=compute_s / count,
            exposed_communication_s=(busy_s - compute_s) / count,
            idle_s=(end - begin - busy_s) / count,
        )

    def _use(self, device: int) -> Bools:
        """Return whether a device computes, sends or receives in each task, shape (T,)."""
        used: Bools = (self.program.device == device) | (self.program.receiver == device)
        for task, collective in self.program.collectives.items():
            used[task] = device in collective.devices
        return used

    @cached_property
    def shown(self) -> tuple[int, float]:
        """Iteration that timelines show, and the start of its first task, often before the iteration before ends."""
        row = max(len(self.ends_s) - 2, 0)
        return row, float(self.schedule.start_s[self.program_graph.task_of[row]].min())

    def timeline(self) -> "pd.DataFrame":
        """Return the tasks of the steady iteration, one a row; times are seconds from the start of its first task."""
        row, origin_s = self.shown
        engine_task, times = self.program_graph.task_of[row], self.schedule
        start_s, end_s = times.start_s[engine_task] - origin_s, times.end_s[engine_task] - origin_s
        rows = iteration_rows(self.program, start_s, end_s, iteration=row, origin="simulated")
        return rows.assign(
            waited_for=self._last_waits(row),
            ready_s=times.ready_s[engine_task] - origin_s,
            latency_s=self.program_graph.graph.latency_s[engine_task],
        )

    def _last_waits(self, iteration: int) -> Ints:
        """Return for each task of an iteration the one of the same iteration whose end let it begin, or -1.

        Of tasks that are one activity, the first stands for all.
        """
        graph, activities = self.program_graph.graph, self.program_graph.task_of[iteration]
        queued = before_in_streams(graph.stream)
        second = np.flatnonzero(queued >= 0)
        late, early = np.append(row_owners(graph.after_start), second), np.append(graph.after, queued[second])
        here = (late >= activities.min(initial=0)) & (late <= activities.max(initial=0))
        late, early = late[here], early[here]
        causes = last_causes(late, early, self.schedule.end_s[early], graph.size)[activities]
        represents = np.full(graph.size + 1, -1, dtype=np.int64)  # the last entry stands for no cause
        represents[activities[::-1]] = np.arange(len(activities))[::-1]
        return np.asarray(represents[causes], dtype=np.int64)

    def to_frame(self) -> "pd.DataFrame":
        """Return ``timeline()``; all results have a method of this name."""
        return self.timeline()

    def link_use(self, bins: int = 200) -> LinkUse:
        """Return the utilisation of every link over the steady iteration, assuming even rates over a transfer's time.

        Args:
            bins: Number of bins of time.
        """
        begin, end = self.window_s
        edges, links = np.linspace(begin, end, bins + 1), self.program.cluster.links
        replicas = self.program.classes
        like = np.arange(len(links)) if replicas is None else replicas.link_like
        shown = np.flatnonzero(like == np.arange(len(links)))
        return LinkUse(
            links=tuple(links.names[i] for i in shown.tolist()),
            edges_s=edges - self.shown[1],
            share=resource_use(self.program_graph.graph, self.schedule, edges, shown).clip(min=0.0),
            moved_bytes=carried_bytes(self.program, routes_of_cluster(self.program.cluster))[shown],
            like=np.searchsorted(shown, like),
            classes=tuple(links.classes[shown].tolist()),
        )

    def write_trace(self, path: AnyPath) -> None:
        """Write the steady iteration as a Chrome trace: a process for each device, and one for the collectives.

        Counters show the utilisation of the links with most traffic.

        Args:
            path: File to write.

        Raises:
            ConfigError: The file cannot be written.
        """
        rows, program, use = self.timeline(), self.program, self.link_use()
        names = np.array([*program.cluster.devices.names, "collectives"])
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
    """Return the tasks of an iteration, one a row, in the form that simulated and measured timelines share.

    Args:
        program: Program that ran.
        start_s: Start of each task, shape (T,).
        end_s: End of each task, shape (T,).
        iteration: Number of the iteration.
        origin: ``simulated`` or ``measured``.

    Returns:
        ``waited_for`` (the task of this iteration whose end let a task begin) is -1 here, and ``ready_s`` and
        ``latency_s`` are NaN: a measurement sees neither when a task could have begun nor its start-up latency.
    """
    import pandas as pd  # a third of a second to load, and a replay does without

    names = [layer.name for layer in program.graph.layers]
    kinds = np.array(KINDS)[program.kind]
    return pd.DataFrame(
        {
            "id": np.arange(program.size),
            "name": program.names,
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
            "waited_for": -1,
            "ready_s": np.nan,
            "latency_s": np.nan,
        }
    )


def last_waited_for(program: Program, end_s: Floats, before_end_s: Floats | None = None) -> Ints:
    """Return for each task the one whose end let it begin, by times from elsewhere, such as measured ones.

    A task waits for its dependencies and, if it computes, for the task before it on its device.

    Args:
        program: One iteration.
        end_s: End of each task in the iteration, shape (T,); NaN where it is unknown.
        before_end_s: End of each task in the iteration before, on the same clock, shape (T,); None in the first.

    Returns:
        Tasks of the same iteration, shape (T,); -1 where that was a task of the iteration before, and where a task
        waits for nothing.
    """
    queued = stream_before(program)
    second = np.flatnonzero(queued >= 0)
    late, early = np.append(program.waiting, second), np.append(program.after, queued[second])
    ended_s = end_s[early]
    if before_end_s is not None and len(program.carried):
        late, early = np.append(late, program.carried[:, 0]), np.append(early, np.full(len(program.carried), -1))
        ended_s = np.append(ended_s, before_end_s[program.carried[:, 1]])
    return last_causes(late, early, ended_s, program.size)


def stream_before(program: Program) -> Ints:
    """Return the compute task before each one on its device, shape (T,); -1 if there is none."""
    return before_in_streams(np.where(program.is_compute & ~program.is_codec, program.device, -1))


def _covered_s(start_s: Floats, end_s: Floats) -> float:
    """Return the length of the union of intervals."""
    starts, ends = union(start_s, end_s)
    return float((ends - starts).sum())


def replay(
    program: Program,
    *,
    overlap: bool = True,
    contention: bool = True,
    interference: bool | None = None,
    spread: bool | None = None,
    seed: int | None = None,
    iterations: int | None = None,
    engine: str = "auto",
) -> Replay:
    """Replay one or several iterations of a program under an execution model.

    Args:
        program: One iteration, lowered.
        overlap: False: the phases of Eq. 1 run one after the other, with barriers between.
        contention: False: the transfers of a phase take the time of the busiest link, and do not share links with
            transfers of other phases.
        interference: True: messages and arithmetic take from one another on every device; needs contention.  None: with
            overlap and contention as the conditions of the program say, else not.
        spread: True: iterations wait for the slowest rank.  None: as for ``interference``.
        seed: Draws the time of every rank in every iteration, if there is a spread; None: all ranks compute as long
            as the slowest is expected to.
        iterations: Iterations in a row, >= 1; the steady state is that of the two before the last.  None: one where
            each begins when the one before has ended, so that all are alike, else ``ITERATIONS``.
        engine: ``auto``, ``compiled`` or ``simpy``.

    Raises:
        ConfigError: ``iterations`` < 1, more than memory should be spent on, an unknown engine, interference without
            contention, a seed without a spread, or a cluster that declares nothing of what interferes or spreads.
    """
    interference, spread = _rungs(program, overlap, contention, interference, spread)
    assert seed is None or program.classes is None, "times that are drawn differ between replicas"
    if seed is not None and not spread:
        raise ConfigError(f"seed must be left out without spread, got {seed}")
    late = spread and seed is None
    played = None
    if iterations is None and seed is None:  # times that are drawn differ between iterations
        played = first_alone(_under(program, overlap, contention, interference, late, 2), engine)
    if played is None:
        count = ITERATIONS if iterations is None else _checked(program, iterations)
        program_graph = _under(program, overlap, contention, interference, late, count)
        if seed is not None:
            program_graph = with_factors(program, program_graph, drawn_factors(program.cluster, seed, count))
        played = all_in_a_row(program_graph, engine)
    return Replay(
        program=program,
        program_graph=played.program_graph,
        schedule=played.schedule,
        engine_s=played.engine_s,
        wait_share=wait_share(program) if late else 0.0,
    )


def _checked(program: Program, iterations: int) -> int:
    """Return a number of iterations that may be replayed in a row; errors as for ``replay``."""
    if type(iterations) is not int or iterations < 1:
        raise ConfigError(f"iterations must be a whole number >= 1, got {iterations!r}")
    most = max(ITERATIONS, _MOST_TASKS // max(1, program.size))
    if iterations > most:
        rule = f"at most {most:,} for a program of {program.size:,} tasks"
        raise ConfigError(f"iterations must be {rule}, got {iterations}")
    return iterations


def _rungs(
    program: Program, overlap: bool, contention: bool, interference: bool | None, spread: bool | None
) -> tuple[bool, bool]:
    """Return whether there is interference and a spread: where nothing is said, as the conditions have it."""
    detailed = overlap and contention
    interference = detailed and program.conditions.interference if interference is None else interference
    spread = detailed and program.conditions.spread if spread is None else spread
    if interference and not contention:
        raise ConfigError("contention must be on where interference is")
    return interference, spread


def _under(
    program: Program, overlap: bool, contention: bool, interference: bool, late: bool, iterations: int
) -> ProgramGraph:
    """Return the task graph under an execution model; ``late``: all ranks compute as long as the slowest."""
    program_graph = build_program_graph(program, overlap=overlap, contention=contention, iterations=iterations)
    if interference:
        program_graph = with_interference(program, program_graph)
    program_graph = with_slowest_rank(program, program_graph) if late else program_graph
    return with_input(program, with_launches(program, program_graph)) if overlap and contention else program_graph
