"""The critical path: the chain of tasks that determines the length of a schedule."""

from typing import NamedTuple

import numpy as np

from groundwork.array_types import Floats, Ints
from groundwork.sparse_rows import grouped_rows
from simulator.graph.sharing import TOLERANCE
from simulator.graph.task_graph import Schedule, TaskGraph
from simulator.timelines.timeline import alone_s

_SAME = 10 * TOLERANCE
"""Largest relative difference of times that belong to one instant."""


class CriticalStep(NamedTuple):
    """One task of the critical path.

    Latency, wait and work of all steps add up to the makespan less the first ready time.
    """

    task: int
    reason: str
    """Event that it began upon: ``dependency`` or ``stream`` (the step before had ended), ``resource`` (the step
    before released an exclusive resource), ``start`` (its earliest start: the first of the chain)."""
    latency_s: float
    wait_s: float
    """Time lost because other tasks used its resources at the same time."""
    work_s: float
    """Time that its work takes alone."""
    resource: int
    """Resource that it waited for: the fullest meanwhile that others used, too; -1 where it did not wait."""


def critical_path(graph: TaskGraph, schedule: Schedule) -> list[CriticalStep]:
    """Return the chain of tasks, from the first to the one that ends last, each of which delayed the next.

    Args:
        graph: Task graph.
        schedule: Its times, as an engine returned them.

    Returns:
        Steps in order of time; empty for an empty graph.
    """
    if graph.size == 0:
        return []
    chain = _Chain(graph, schedule)
    task, steps = int(np.argmax(schedule.end_s)), []
    while task >= 0:
        before, step = chain.step(task)
        steps.append(step)
        task = before
    return steps[::-1]


class _Chain:
    """A replayed task graph, indexed to find the task that delayed another one."""

    def __init__(self, graph: TaskGraph, schedule: Schedule) -> None:
        self.graph, self.schedule = graph, schedule
        self.alone_s = alone_s(graph)
        self._own = graph.use_weight if graph.own_weight is None else graph.own_weight
        self.owner = graph.use_owners
        # Uses by resource, each row in order of time, so that those in a span are found by two binary searches.
        self._bounds, self._by_resource = grouped_rows(graph.use_resource, len(graph.capacity))
        self._in_time: dict[int, tuple[Ints, Floats, Floats]] = {}  # rows of the resources asked for so far
        self.stream_before = np.full(graph.size, -1)
        # Streams [0, -1, 0, 0] of four tasks sort to tasks 1, 0, 2, 3: 0 comes before 2, and 2 before 3.
        order = np.argsort(graph.stream, kind="stable")
        follows = (graph.stream[order][1:] == graph.stream[order][:-1]) & (graph.stream[order][1:] >= 0)
        self.stream_before[order[1:][follows]] = order[:-1][follows]

    def step(self, task: int) -> tuple[int, CriticalStep]:
        """Return the task that delayed this one, or -1, and the step of this one."""
        ready_s, start_s, end_s = (
            float(times[task]) for times in (self.schedule.ready_s, self.schedule.start_s, self.schedule.end_s)
        )
        work_s = min(float(self.alone_s[task]), end_s - start_s)
        wait_s = end_s - start_s - work_s
        # Differences of rounding are no waits.
        wait_s = wait_s if wait_s > _SAME * end_s else 0.0
        if start_s > (ready_s + float(self.graph.latency_s[task])) * (1 + _SAME):
            before, held = self._holder(task)
            return before, CriticalStep(task, "resource", 0.0, wait_s, work_s, held)
        before, reason = self._cause(task)
        resource = self._busiest(task) if wait_s else -1
        return before, CriticalStep(task, reason, start_s - ready_s, wait_s, work_s, resource)

    def _cause(self, task: int) -> tuple[int, str]:
        """Return the task whose end made this one ready, the last of those that it waits for, and the reason."""
        waits_for = self.graph.after[self.graph.after_start[task] : self.graph.after_start[task + 1]]
        candidates = [(float(self.schedule.end_s[other]), "dependency", int(other)) for other in waits_for]
        stream_before = int(self.stream_before[task])
        if stream_before >= 0:
            candidates.append((float(self.schedule.end_s[stream_before]), "stream", stream_before))
        end_s, reason, before = max(candidates, key=lambda candidate: candidate[0], default=(0.0, "start", -1))
        if self.graph.start_s[task] > end_s * (1 + _SAME):
            return -1, "start"
        return before, reason

    def _overlapping(self, resource: int, begin_s: float, end_s: float) -> Ints:
        """Return the uses of a resource that may overlap a span of time, its ends included, in order."""
        if resource not in self._in_time:
            row = self._by_resource[self._bounds[resource] : self._bounds[resource + 1]]
            self._in_time[resource] = _in_time(row, self.owner, self.schedule)
        uses, starts_s, reached_s = self._in_time[resource]
        return np.sort(uses[reached_s.searchsorted(begin_s) : starts_s.searchsorted(end_s, side="right")])

    def _resources(self, task: int) -> list[int]:
        """Return the resources that a task uses."""
        row = slice(self.graph.use_start[task], self.graph.use_start[task + 1])
        resources: list[int] = self.graph.use_resource[row].tolist()
        return resources

    def _holder(self, task: int) -> tuple[int, int]:
        """Return the task that released an exclusive resource when this task began, and the resource."""
        start_s = self.schedule.start_s[task]
        for resource in self._resources(task):
            if not self.graph.exclusive[resource]:
                continue
            users = self.owner[self._overlapping(resource, start_s * (1 - _SAME), start_s * (1 + _SAME))]
            # tasks without work hold nothing
            others = (users != task) & (self.alone_s[users] > 0)
            left = users[others & (np.abs(self.schedule.end_s[users] - start_s) <= _SAME * start_s)]
            if len(left):
                return int(left[np.argmax(self.schedule.end_s[left] - self.schedule.start_s[left])]), resource
        raise AssertionError(f"task {task} waited for an exclusive resource that nobody left")

    def _busiest(self, task: int) -> int:
        """Return the resource that was fullest while this task worked, of those that others used, too."""
        start_s, end_s = self.schedule.start_s[task], self.schedule.end_s[task]

        def share(resource: int) -> float:
            """Return the seconds of capacity of a resource that were used meanwhile; 0 if by this task alone."""
            uses = self._overlapping(resource, start_s, end_s)
            users = self.owner[uses]
            from_s = np.maximum(self.schedule.start_s[users], start_s)
            to_s = np.minimum(self.schedule.end_s[users], end_s)
            lasted_s = np.maximum(self.schedule.end_s[users] - self.schedule.start_s[users], np.finfo(float).tiny)
            amount = self.graph.use_weight[uses] * self.graph.work[users] * np.maximum(to_s - from_s, 0.0) / lasted_s
            others = (users != task) | (self.graph.use_weight[uses] > self._own[uses])
            return float(amount.sum() / self.graph.capacity[resource]) if amount[others].any() else 0.0

        return max(self._resources(task), key=share)


def _in_time(uses: Ints, owner: Ints, schedule: Schedule) -> tuple[Ints, Floats, Floats]:
    """Return uses in order of their start, those starts, and the latest end up to each use.

    The latest ends never fall, so they can be searched although ends alone are in no order::

        starts         0 s    1 s    2 s
        ends           5 s    3 s    6 s
        latest end     5 s    5 s    6 s
    """
    uses = uses[np.argsort(schedule.start_s[owner[uses]], kind="stable")]
    tasks = owner[uses]
    return uses, schedule.start_s[tasks], np.maximum.accumulate(schedule.end_s[tasks])
