"""The clear engine: one SimPy process for each task.  It is the reference for the compiled one.

An *instant* is a time at which something happens.  Everything that happens within the tolerance of
one instant happens at it: first all ends and starts, to the last consequence, then exclusive
resources are handed over, then rates are solved, once.  So nothing depends on the order of events
within an instant, and rounding does not separate simultaneous events.
"""

import heapq
import math
from collections.abc import Generator
from typing import Any

import numpy as np
import simpy

from groundwork.array_types import Floats, Ints
from groundwork.sparse_rows import row_entries
from simulator.graph.sharing import TOLERANCE, max_min_rates
from simulator.graph.task_graph import Schedule, TaskGraph


def replay_simpy(graph: TaskGraph) -> Schedule:
    """Replay a valid task graph (see ``simulator.graph.graph_checks``)."""
    replay = _Replay(graph)
    replay.run()
    return Schedule(ready_s=replay.ready_s, start_s=replay.start_s, end_s=replay.end_s)


class _Replay:
    """The state of one replay."""

    def __init__(self, graph: TaskGraph) -> None:
        self.graph = graph
        self.ready_s, self.start_s, self.end_s = (np.full(graph.size, math.nan) for _ in range(3))
        self.limit = graph.alone_rates
        self.env = simpy.Environment()
        self.instant = 0
        self.ended = [self.env.event() for _ in range(graph.size)]
        self.done = [self.env.event() for _ in range(graph.size)]
        self.alarms: list[tuple[float, int, simpy.Event]] = []
        self.waiting: list[tuple[int, int]] = []
        """Activities that wait for exclusive resources, as (instant of readiness, task)."""
        self.held: set[int] = set()
        self.working: set[int] = set()
        self.changed = False
        self.rate, self.since, self.due = np.zeros(graph.size), np.zeros(graph.size), np.full(graph.size, math.inf)
        self.remaining = graph.work.copy()
        latest_of_stream: dict[int, int] = {}
        for task in range(graph.size):
            before = [int(other) for other in graph.after[graph.after_start[task] : graph.after_start[task + 1]]]
            stream = int(graph.stream[task])
            if stream >= 0:
                if stream in latest_of_stream:
                    before.append(latest_of_stream[stream])
                latest_of_stream[stream] = task
            self.env.process(self._life(task, before))

    def run(self) -> None:
        """Replay instant after instant until no event is left."""
        while True:
            while self.env.peek() <= self.env.now:
                self.env.step()
            self._hand_over()
            if self.changed:
                self._share()
            events = [self.due[task] for task in self.working] + [alarm[0] for alarm in self.alarms[:1]]
            soonest = min(events, default=math.inf)
            if soonest == math.inf:
                return
            if soonest > self.env.now:
                self.env.run(until=soonest)
            self._trigger_due()

    def _life(self, task: int, before: list[int]) -> Generator[simpy.Event, Any, None]:
        """Run one task: wait for its dependencies, then for its latency, then for the end of its work."""
        yield self.env.all_of([self.ended[other] for other in before])
        earliest = float(self.graph.start_s[task])
        if earliest > self.env.now * (1 + TOLERANCE):
            yield self._alarm(task, earliest)
        ready, instant = max(self.env.now, earliest), self.instant
        self.ready_s[task] = ready
        if self.graph.latency_s[task] > 0:
            yield self._alarm(task, ready + float(self.graph.latency_s[task]))
        self.start_s[task] = self.env.now
        if self.graph.work[task] > 0:
            if self._ports(task):
                self.waiting.append((instant, task))
            else:
                self._begin(task)
            yield self.done[task]
        self.end_s[task] = self.env.now
        self.ended[task].succeed()

    def _alarm(self, task: int, time_s: float) -> simpy.Event:
        """Return an event that happens at the instant of ``time_s``."""
        event = self.env.event()
        heapq.heappush(self.alarms, (time_s, task, event))
        return event

    def _ports(self, task: int) -> set[int]:
        """Return the exclusive resources that a task uses."""
        uses = self.graph.use_resource[self.graph.use_start[task] : self.graph.use_start[task + 1]]
        return {int(resource) for resource in uses[self.graph.exclusive[uses]]}

    def _trigger_due(self) -> None:
        """Trigger all events that are due at the current instant."""
        self.instant += 1
        limit = self.env.now * (1 + TOLERANCE)
        for task in sorted(task for task in self.working if self.due[task] <= limit):
            self.working.remove(task)
            self.held -= self._ports(task)
            self.changed = True
            self.done[task].succeed()
        while self.alarms and self.alarms[0][0] <= limit:
            heapq.heappop(self.alarms)[2].succeed()

    def _hand_over(self) -> None:
        """Begin, in order of readiness, then of task id, the waiting tasks whose exclusive resources are all free."""
        for key in sorted(self.waiting):
            ports = self._ports(key[1])
            if not ports & self.held:
                self.waiting.remove(key)
                self.held |= ports
                self._begin(key[1])

    def _begin(self, task: int) -> None:
        """Begin the work of a task."""
        self.start_s[task] = self.since[task] = self.env.now
        self.working.add(task)
        self.changed = True

    def _share(self) -> None:
        """Solve the rates of all working tasks; a task that keeps its rate keeps its end."""
        self.changed = False
        tasks = np.array(sorted(self.working), dtype=np.int64)
        rate = self._rates(tasks)
        moved = rate != self.rate[tasks]
        tasks, rate = tasks[moved], rate[moved]
        self.remaining[tasks] -= self.rate[tasks] * (self.env.now - self.since[tasks])
        self.rate[tasks], self.since[tasks] = rate, self.env.now
        lasts = np.full(len(tasks), math.inf)  # a task with rate 0 never ends, unless nothing of its work remains
        np.divide(self.remaining[tasks], rate, out=lasts, where=rate > 0)
        self.due[tasks] = self.env.now + np.where(self.remaining[tasks] > 0, lasts, 0.0)

    def _rates(self, tasks: Ints) -> Floats:
        """Return the max-min fair rates of the tasks that work, shape (tasks,)."""
        first, count = self.graph.use_start[tasks], np.diff(self.graph.use_start)[tasks]
        flow, uses = np.repeat(np.arange(len(tasks)), count), row_entries(first, count)
        return max_min_rates(
            capacity=self.graph.capacity,
            flow=flow,
            resource=self.graph.use_resource[uses],
            weight=self.graph.use_weight[uses],
            rate_limit=self.limit[tasks],
            priority=self.graph.priority[tasks],
        )
