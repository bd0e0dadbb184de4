"""Schedules measured on this machine's cores, and predicted from the times of single sub-tasks.

Sub-tasks are timed one after another, with each number of cores that a schedule gives them, while a second network
keeps the other cores busy; the simulation then predicts the schedules.  Schedules are measured in turns, so that other
load of the machine affects all alike.
"""

import os
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from threading import Event, Thread

import numpy as np
import torch

from executor.runtime.optimizer_spec import OptimizerSpec
from executor.streams.measure_request import MEASURED_SCHEDULES, CoreStreamsRequest
from executor.streams.network import SubTaskNetwork
from executor.streams.stream_results import MeasuredStreams, SubTaskTimes, measured_schedule, median_times
from executor.streams.threads import StepTimes, ThreadRunner
from executor.streams.turns import in_turns
from groundwork.array_types import Floats
from groundwork.errors import ConfigError
from groundwork.progress import Progress
from hwprofiles.compute.launch import Launch
from planner.graph.computation_graph import ComputationGraph
from planner.lowering.program import KINDS, Program
from studies.streams.decomposition import Decomposed, with_measured
from studies.streams.delayed_memory import bounded
from studies.streams.schedule_comparison import whole_program
from studies.streams.stream_plan import StreamPlan, replay_streams
from studies.streams.stream_request import PathOptions
from studies.streams.stream_schedules import schedule

UNLIMITED = Launch(tile_rows=1, tile_columns=1, blocks_per_multiprocessor=1, priorities=1 << 20, streams=1 << 20)
"""Limits of threads: any number of streams and priorities."""
_BACKWARD = ("epilogue_gradient", "activation_gradient", "weight_gradient", "bias_gradient", "update")
_TRIES = 2
"""Steps from whose sub-tasks the schedules are planned; predictions use sub-tasks that are measured beside them."""


@dataclass(frozen=True, slots=True)
class PlannedSchedule:
    """Schedule with the cores of its tasks."""

    plan: StreamPlan
    cores: list[int]
    """Cores of each task, shape (T,)."""
    cores_of: dict[str, int]


class LoadedRunner:
    """Runner whose steps run while another runner keeps the remaining cores busy."""

    def __init__(
        self, runner: ThreadRunner, other: ThreadRunner | None = None, network: SubTaskNetwork | None = None
    ) -> None:
        self._runner, self._other, self._network = runner, other, network

    def step(self) -> StepTimes:
        """Run one step, and return its times; the other runner goes on until the step has ended."""
        if self._other is None or self._network is None:
            return self._runner.step()
        done = Event()
        thread = Thread(target=self._busy, args=(done,), name="neighbour")
        thread.start()
        try:
            return self._runner.step()
        finally:
            done.set()
            thread.join()

    def _busy(self, done: Event) -> None:
        assert self._other is not None
        assert self._network is not None
        while not done.is_set():
            self._network.begin(0)
            self._other.step()


class ScheduleSetups:
    """Cores of tasks in each schedule, and times of single sub-tasks with that many cores."""

    def __init__(self, program: Program, network: SubTaskNetwork, *, cores: int, critical: int) -> None:
        self.lowered, self.network = program, network
        self.total, self._critical = cores, critical
        self.neighbour = SubTaskNetwork(network.program, optimizer=OptimizerSpec())
        """Second network, which keeps the other cores as busy as in a schedule while single sub-tasks are timed."""
        self.counts = sorted({cores, critical, cores - critical})

    def _cores(self, name: str) -> dict[str, int]:
        """Return the cores of each kind of sub-task in a schedule."""
        if name == "one-stream":
            return dict.fromkeys(("forward", *_BACKWARD), self.total)
        other = dict.fromkeys(("weight_gradient", "bias_gradient", "update"), self.total - self._critical)
        return {
            "forward": self.total,
            "epilogue_gradient": self._critical,
            "activation_gradient": self._critical,
        } | other

    def alone(self, cores: int, stack: ExitStack) -> "LoadedRunner":
        """Return a runner of one sub-task after another on some cores, while the other cores do the same."""
        program = self.network.program
        plan = schedule(with_measured(self.lowered, {}), "one-stream", UNLIMITED)

        def runner(network: SubTaskNetwork, count: int) -> ThreadRunner:
            return stack.enter_context(
                ThreadRunner(program, plan, network.run, cores=[count] * program.size, total=count)
            )

        if cores == self.total:
            return LoadedRunner(runner(self.network, cores))
        return LoadedRunner(runner(self.network, cores), runner(self.neighbour, self.total - cores), self.neighbour)

    def sub_tasks(self, progress: Progress | None) -> dict[int, SubTaskTimes]:
        """Measure sub-tasks one after another; return their times by the number of cores."""
        rows: dict[int, list[StepTimes]] = {}
        for count in self.counts:
            with ExitStack() as stack:
                runner = self.alone(count, stack)
                for number in range(_TRIES + 1):
                    if progress:
                        progress(f"sub-tasks on {count} cores", number, _TRIES + 1)
                    self.network.begin(number)
                    rows.setdefault(count, []).append(runner.step())
        return {count: self.medians(steps[1:]) for count, steps in rows.items()}

    def medians(self, steps: Sequence[StepTimes]) -> SubTaskTimes:
        """Return the median time of every sub-task over steps, from the end of the one before: with its start."""
        return median_times(self.network.program, [_since_last(times) for times in steps])

    def work(self, cores: dict[str, int], known: dict[int, SubTaskTimes]) -> Decomposed:
        """Return the sub-tasks with their times, and the share of the cores that each takes."""
        times = {key: known[cores[key[1]]][key] for key in known[self.total]}
        share = {kind: count / self.total for kind, count in cores.items()}
        return with_measured(self.lowered, times, share)

    def planned(
        self, name: str, known: dict[int, SubTaskTimes], options: PathOptions | None, hold_bytes: float | None
    ) -> PlannedSchedule:
        """Return a schedule of the measured sub-tasks, with the cores of each task."""
        cores = self._cores(name)
        work = self.work(cores, known)
        given = options or PathOptions()
        options = PathOptions(alpha=given.alpha, beta=given.beta, method="levels")
        plan = schedule(work, name, UNLIMITED, options=options)
        if hold_bytes is not None and name in ("asynchronous", "critical-path"):
            plan = bounded(work.program, plan, hold_bytes)
        return PlannedSchedule(plan, [cores[KINDS[kind]] for kind in work.program.kind.tolist()], cores)


def _since_last(times: StepTimes) -> Floats:
    """Return the seconds from the end of the sub-task before, or from the step's begin, to each end, shape (T,)."""
    order = np.argsort(times.end_s)
    seconds = np.empty_like(times.end_s)
    seconds[order] = np.diff(times.end_s[order], prepend=0.0)
    return seconds


ORDERING_PROFILE = "cpu-core"
"""Compute profile whose times only order the paths until sub-tasks have been measured."""


def measure_streams(
    graph: ComputationGraph,
    request: CoreStreamsRequest,
    *,
    schedules: Sequence[str] = MEASURED_SCHEDULES,
    options: PathOptions | None = None,
    hold_bytes: float | None = None,
    progress: Progress | None = None,
) -> MeasuredStreams:
    """Run schedules on threads, in turns.

    The forward pass takes all cores, one layer after another.  Backward a critical sub-task takes ``critical_cores``,
    any other the rest; the plain schedule gives all cores to each.

    Raises:
        ConfigError: There are fewer than two cores or more than the machine has, no round, or an unknown schedule.
    """
    cores, critical = _cores(request)
    program, _ = whole_program(graph, ORDERING_PROFILE)
    threads_before = torch.get_num_threads()
    try:
        network = SubTaskNetwork(with_measured(program, {}).program, optimizer=OptimizerSpec())
        setups = ScheduleSetups(program, network, cores=cores, critical=critical)
        known = setups.sub_tasks(progress)
        planned = [setups.planned(name, known, options, hold_bytes) for name in schedules]
        return _measured(setups, planned, request.counted_rounds, progress)
    finally:
        torch.set_num_threads(threads_before)


def _cores(request: CoreStreamsRequest) -> tuple[int, int]:
    """Return the number of cores, and the number of those that a critical sub-task takes."""
    cores = request.cores or torch.get_num_threads()
    if cores < 2:
        raise ConfigError(f"cores must be >= 2 for streams side by side, got {cores}")
    if cores > (most := os.cpu_count() or 1):
        raise ConfigError(f"cores must be at most the machine's {most}, got {cores}")
    critical = cores // 2 if request.critical_cores is None else request.critical_cores
    if not 1 <= critical < cores:
        raise ConfigError(f"critical_cores must be from 1 to {cores - 1}, got {critical}")
    return cores, critical


def _measured(
    setups: ScheduleSetups, planned: Sequence[PlannedSchedule], rounds: int, progress: Progress | None
) -> MeasuredStreams:
    """Run the schedules, and the sub-tasks one after another, in turns."""
    network, count = setups.network, len(planned)
    with ExitStack() as stack:
        runners = [
            stack.enter_context(
                ThreadRunner(network.program, row.plan, network.run, cores=row.cores, total=setups.total)
            )
            for row in planned
        ]
        everyone: list[ThreadRunner | LoadedRunner] = [
            *runners,
            *(setups.alone(cores, stack) for cores in setups.counts),
        ]
        steps, losses = in_turns(network, everyone, rounds, warm_up=1, progress=progress)
    known = [
        {cores: setups.medians([row[turn]]) for cores, row in zip(setups.counts, steps[count:], strict=True)}
        for turn in range(rounds)
    ]
    results = []
    for at, row in enumerate(planned):
        works = [setups.work(row.cores_of, times) for times in known]
        results.append(
            measured_schedule(
                row.plan,
                steps[at],
                steps[0],
                predicted_s=[replay_streams(each, row.plan, iterations=1).schedule.makespan_s for each in works],
                work=works[0],
                threads=(row.cores_of["activation_gradient"], row.cores_of["weight_gradient"]),
                loss=losses[at],
            )
        )
    graph = network.graph
    return MeasuredStreams(
        model=graph.name, batch=graph.batch, cores=setups.total, rounds=rounds, results=tuple(results)
    )
