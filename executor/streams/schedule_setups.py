"""Cores of the tasks of each schedule, and times of single sub-tasks with that many cores."""

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from threading import Event, Thread

import numpy as np

from executor.runtime.optimizer_spec import OptimizerSpec
from executor.streams.network import SubTaskNetwork
from executor.streams.threads import StepTimes, ThreadRunner
from groundwork.array_types import Floats
from groundwork.progress import Progress
from hwprofiles.compute.launch import Launch
from planner.lowering.program import KINDS, Program
from studies.streams.decomposition import Decomposed, with_measured
from studies.streams.delayed_memory import bounded
from studies.streams.stream_plan import StreamPlan
from studies.streams.stream_request import PathOptions
from studies.streams.stream_schedules import schedule

UNLIMITED = Launch(tile_rows=1, tile_columns=1, blocks_per_multiprocessor=1, priorities=1 << 20, streams=1 << 20)
"""Limits of threads: any number of streams and priorities."""
_BACKWARD = ("epilogue_gradient", "activation_gradient", "weight_gradient", "bias_gradient", "update")
SubTaskTimes = dict[tuple[str, str], float]
"""Seconds of sub-tasks, by layer and kind of task."""
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
        program = self.network.program
        names = [layer.name for layer in program.graph.layers]
        seconds = np.median(np.array([_since_last(times) for times in steps]), axis=0)
        keys = [(names[layer], KINDS[kind]) for layer, kind in zip(program.layer, program.kind, strict=True)]
        return dict(zip(keys, seconds.tolist(), strict=True))

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
