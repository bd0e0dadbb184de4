"""Critical path of a replayed program: the chain of tasks that determines the steady iteration time."""

from dataclasses import dataclass
from itertools import groupby

import numpy as np

from planner.lowering.program import KINDS
from planner.simulation.program_replay import Replay
from simulator.timelines.path_analysis import CriticalStep, critical_path

LAUNCH = "launch"
"""Kind of the steps in which a host launches a task."""
INPUT = "input"
"""Kind of the steps in which samples are brought."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PathStep:
    """One task of the critical path; each step begins when the one before ends."""

    task: int
    """Number of the program's task; of a joined activity that of its first."""
    iteration: int
    """Iteration of the replay that the task belongs to."""
    name: str
    kind: str
    layer: str
    device: str
    """Device that computes or sends; empty for collectives."""
    start_s: float
    """Start in seconds from the start of the steady window; the task's latency is included."""
    end_s: float
    reason: str
    """Event that let it start: ``dependency``, ``stream``, ``link`` or ``device`` (its turn on an exclusive one),
    or ``start``."""
    resource: str
    """Link, device or copy engines that it waited for, either for its turn or because other tasks shared them."""
    latency_s: float
    wait_s: float
    """Time lost to other tasks that shared its resources."""
    work_s: float
    """Time of its work alone; latency, wait and work add up to ``end_s - start_s``."""
    link: str
    """Link that limits a transfer or collective: the one that it shared if it waited, else that of least bandwidth."""
    link_class: str

    @property
    def seconds(self) -> float:
        """Length of the step."""
        return self.end_s - self.start_s

    @property
    def communicates(self) -> bool:
        """True for a transfer, a collective, or a copy to or from a server."""
        return self.kind in ("transfer", "gather", "collective", "push", "fetch")


@dataclass(frozen=True, slots=True, kw_only=True)
class Stretch:
    """Consecutive steps of the path of one kind and one layer."""

    name: str
    """Name of its first step."""
    kind: str
    layer: str
    count: int
    start_s: float
    """Start in seconds from the start of the first stretch."""
    seconds: float
    wait_s: float
    reasons: tuple[str, ...]
    """Reasons of its steps, each once, with the resources waited for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExposedCommunication:
    """Communication on the critical path of one kind, one layer and one class of links; all per iteration."""

    layer: str
    kind: str
    link_class: str
    steps: float
    """Number of transfers or collectives."""
    latency_s: float
    wait_s: float
    work_s: float
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class CriticalPath:
    """Critical path over the steady window of a replay; its steps add up to ``iterations`` times the iteration time."""

    steps: tuple[PathStep, ...]
    """Steps in order of time."""
    iterations: int
    """Number of iterations in the window."""
    row: int
    """Last steady iteration, as ``PathStep.iteration`` counts."""

    def seconds_by(self, key: str, *, communication: bool = False) -> dict[str, float]:
        """Return the seconds per iteration by ``kind``, ``layer``, ``link``, ...; the longest first.

        Args:
            key: Field of ``PathStep``.
            communication: True for steps that communicate only.
        """
        totals: dict[str, float] = {}
        for step in self.steps:
            if step.communicates or not communication:
                name = str(getattr(step, key))
                totals[name] = totals.get(name, 0.0) + step.seconds / self.iterations
        return dict(sorted(totals.items(), key=lambda item: -item[1]))

    def exposed(self) -> tuple[ExposedCommunication, ...]:
        """Return the communication on the path, by layer, kind and class of links; the longest first."""
        groups: dict[tuple[str, str, str], list[PathStep]] = {}
        for step in self.steps:
            if step.communicates:
                groups.setdefault((step.layer, step.kind, step.link_class), []).append(step)
        rows = []
        for (layer, kind, link_class), steps in groups.items():
            sums = np.array([(1, step.latency_s, step.wait_s, step.work_s, step.seconds) for step in steps]).sum(axis=0)
            count, latency_s, wait_s, work_s, seconds = (sums / self.iterations).tolist()
            rows.append(
                ExposedCommunication(
                    layer=layer,
                    kind=kind,
                    link_class=link_class,
                    steps=count,
                    latency_s=latency_s,
                    wait_s=wait_s,
                    work_s=work_s,
                    seconds=seconds,
                )
            )
        return tuple(sorted(rows, key=lambda row: -row.seconds))

    def stretches(self) -> tuple[Stretch, ...]:
        """Return the last steady iteration in order of time, with consecutive steps of one kind and layer joined."""
        last = [step for step in self.steps if step.iteration == self.row]
        runs = (list(run) for _, run in groupby(last, key=lambda step: (step.kind, step.layer)))
        return tuple(
            Stretch(
                name=run[0].name,
                kind=run[0].kind,
                layer=run[0].layer,
                count=len(run),
                start_s=run[0].start_s - last[0].start_s,
                seconds=sum(step.seconds for step in run),
                wait_s=sum(step.wait_s for step in run),
                reasons=tuple(dict.fromkeys(f"{step.reason} {step.resource}".strip() for step in run)),
            )
            for run in runs
        )


def program_path(replay: Replay) -> CriticalPath:
    """Return the critical path of the steady iterations.

    It is a section of the critical path of the whole replay, so a step that crosses an end of the window counts in
    part.

    Args:
        replay: Replay of a program, with three iterations or more for a steady state.
    """
    begin, end, count = replay.steady_s
    names = _Names(replay)
    chain = critical_path(replay.program_graph.graph, replay.schedule)
    steps = (names.step(step, begin, end) for step in chain)
    row = int(np.searchsorted(replay.ends_s, end))
    return CriticalPath(steps=tuple(step for step in steps if step is not None), iterations=count, row=row)


class _Names:
    """Names of the engine's tasks: the program's tasks that they represent, with layers, devices and links."""

    def __init__(self, replay: Replay) -> None:
        self.replay, self.program, self.graph = replay, replay.program, replay.program_graph.graph
        task_of = replay.program_graph.task_of
        # program task of each engine task, as iteration x tasks + task; -1 for barriers.  Assigned backwards, so that
        # the first member of a joined activity represents it
        self.represents = np.full(self.graph.size, -1)
        self.represents[task_of.ravel()[::-1]] = np.arange(task_of.size)[::-1]
        launches = replay.program_graph.launches
        self.launched = np.full(self.graph.size, -1) if launches is None else launches
        if launches is not None:
            iteration = np.arange(self.graph.size) // (self.graph.size // len(task_of))
            self.represents = np.where(launches < 0, self.represents, iteration * self.program.size + launches)

        self.inputs = (
            {}
            if replay.program_graph.inputs is None
            else {task: iteration for iteration, task in enumerate(replay.program_graph.inputs.tolist())}
        )
        if self.inputs:  # the input stands for the first task of its iteration
            first = np.array(list(self.inputs.values())) * self.program.size
            self.represents[list(self.inputs)] = first

    def step(self, step: CriticalStep, begin: float, end: float) -> PathStep | None:
        """Return a step clipped to the window; None outside it, and for barriers, which take no time."""
        length = step.latency_s + step.wait_s + step.work_s
        to = float(self.replay.schedule.end_s[step.task])
        start_s, end_s = max(to - length, begin), min(to, end)
        represents = int(self.represents[step.task])
        if represents < 0 or end_s < start_s or not begin < to or to - length >= end:
            return None
        share = (end_s - start_s) / length if length else 1.0
        iteration, task = divmod(represents, self.program.size)
        device, program = int(self.program.device[task]), self.program
        launches, brings = self.launched[step.task] >= 0, step.task in self.inputs
        link = -1 if launches or brings else self._link(step, task)
        name = "input of samples" if brings else program.name(task)
        return PathStep(
            task=task,
            iteration=iteration,
            name=f"launch of {name}" if launches else name,
            kind=LAUNCH if launches else INPUT if brings else KINDS[program.kind[task]],
            layer=program.graph.layers[program.layer[task]].name,
            device=program.cluster.devices[device].name if device >= 0 and not brings else "",
            start_s=start_s - begin,
            end_s=end_s - begin,
            reason=self._reason(step),
            resource=self.graph.resource_names[step.resource] if step.resource >= 0 else "",
            latency_s=step.latency_s * share,
            wait_s=step.wait_s * share,
            work_s=step.work_s * share,
            link=program.cluster.links[link].name if link >= 0 else "",
            link_class=program.cluster.links[link].link_class if link >= 0 else "",
        )

    def _reason(self, step: CriticalStep) -> str:
        """Return the reason of a step, with links and devices for the engine's resources."""
        if step.reason != "resource":
            return step.reason
        return "link" if step.resource < len(self.program.cluster.links) else "device"

    def _link(self, step: CriticalStep, task: int) -> int:
        """Return the link that limits a transfer or collective; -1 for arithmetic, and if transfers have no links."""
        row = slice(self.graph.use_start[step.task], self.graph.use_start[step.task + 1])
        if self.program.is_compute[task] or row.start == row.stop:
            return -1
        links = len(self.program.cluster.links)
        if step.wait_s and 0 <= step.resource < links:
            return step.resource
        weights = self.graph.use_weight if self.graph.own_weight is None else self.graph.own_weight
        used, weight = self.graph.use_resource[row], weights[row]
        slack = np.where(used < links, self.graph.capacity[used] / weight, np.inf)
        return int(used[np.argmin(slack)])
