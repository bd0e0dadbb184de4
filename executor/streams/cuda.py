"""Streams of a plan as CUDA streams with priorities, ordered by events alone; as an option one CUDA graph a step.

Every tensor that a step makes is kept until the next step begins, so no stream's memory is reused while a kernel still
reads it.  The host waits once a step, for its end.
"""

import heapq
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from executor.streams.network import SubTaskNetwork
from executor.streams.threads import StepTimes
from groundwork.errors import ConfigError
from planner.lowering.program import Program
from studies.streams.stream_plan import StreamPlan


@dataclass(frozen=True, slots=True)
class IssuedTask:
    """Task with its stream and the events around it."""

    task: int
    stream: int
    waits: tuple[int, ...]
    """Tasks of other streams whose events it waits for."""
    records: bool
    """True where tasks of other streams wait for it."""


def issued_tasks(program: Program, plan: StreamPlan) -> list[IssuedTask]:
    """Return the tasks in the order of issue: those whose dependencies are issued, by priority, then in program order.

    Tasks without a stream take the stream of the dependency that was issued last.  Streams keep the order of issue.
    An event is waited for only where the stream has not yet waited for a later one of the same stream::

        stream 0:  a b c          d waits for b, then e for a: the wait for a is left out,
        stream 1:  d(b) e(a)      because a comes before b on stream 0
    """
    before = _before(program, plan)
    waits, readers = [len(row) for row in before], [list[int]() for _ in before]
    for task, row in enumerate(before):
        for early in row:
            readers[early].append(task)
    ready = [(-int(plan.priority[task]), task) for task, count in enumerate(waits) if count == 0]
    heapq.heapify(ready)
    issued: list[tuple[int, int, list[int]]] = []
    place, stream_of = np.full(program.size, -1), np.full(program.size, -1)
    seen: dict[tuple[int, int], int] = {}  # last place waited for, by waiting stream and other stream
    while ready:
        _, task = heapq.heappop(ready)
        row = sorted(before[task], key=lambda early: -place[early])
        stream = int(plan.shown[task]) if plan.shown[task] >= 0 else (int(stream_of[row[0]]) if row else 0)
        needed = []
        for early in row:
            key = stream, int(stream_of[early])
            if key[0] != key[1] and place[early] > seen.get(key, -1):
                seen[key] = int(place[early])
                needed.append(early)
        place[task], stream_of[task] = len(issued), stream
        issued.append((task, stream, needed))
        for reader in readers[task]:
            waits[reader] -= 1
            if waits[reader] == 0:
                heapq.heappush(ready, (-int(plan.priority[reader]), reader))
    recorded = {early for _, _, row in issued for early in row}
    return [IssuedTask(task, stream, tuple(row), task in recorded) for task, stream, row in issued]


def _before(program: Program, plan: StreamPlan) -> list[list[int]]:
    """Return the tasks that each task waits for: its dependencies, and those before it by the plan's order."""
    late = program.waiting
    pairs = np.unique(np.concatenate([np.column_stack([late, program.after]), plan.order]), axis=0)
    rows: list[list[int]] = [[] for _ in range(program.size)]
    for task, early in pairs.tolist():
        rows[task].append(early)
    last: dict[int, int] = {}
    for task, stream in enumerate(plan.stream.tolist()):  # streams run in program order
        if stream >= 0:
            if stream in last and last[stream] not in rows[task]:
                rows[task].append(last[stream])
            last[stream] = task
    return rows


def stream_priorities(plan: StreamPlan, *, least: int, greatest: int) -> list[int]:
    """Return the hardware priority of each stream; CUDA serves the lower number first.

    With fewer levels than the plan has, the highest priority of the plan gets the greatest, the next ones the next,
    and all others the least.

    Args:
        plan: Plan, in which a stream has the highest priority of its tasks.
        least: Least priority of the device, such as 0.
        greatest: Greatest priority of the device, such as -5.
    """
    ranks = [int(plan.priority[plan.shown == stream].max()) for stream in range(plan.streams)]
    levels = sorted(set(ranks), reverse=True)
    return [min(greatest + levels.index(rank), least) if len(levels) > 1 else least for rank in ranks]


class CudaRunner:
    """Steps of one program on CUDA streams, under one plan."""

    def __init__(self, program: Program, plan: StreamPlan, network: SubTaskNetwork, *, graph: bool = False) -> None:
        """Make the streams.

        Args:
            program: Decomposed program of one device.
            plan: Streams, priorities and additional order.
            network: Network on a CUDA device, made with ``keep``.
            graph: Capture one step, after one more step that really runs, and replay it: launches then take no time,
                and tasks are not timed singly.

        Raises:
            ConfigError: There is no CUDA device, or a graph is requested of a network with dropout, whose masks it
                would repeat.
        """
        if not torch.cuda.is_available():
            raise ConfigError("device must be a CUDA device for CUDA streams, got none")
        if graph and any(getattr(layer.operation, "dropout", 0.0) for layer in program.graph.layers):
            raise ConfigError("graph must be off for networks with dropout: it would repeat one step's masks")
        self._program, self._network, self._captured = program, network, graph
        self._issued = issued_tasks(program, plan)
        least, greatest = _priority_range()
        ranks = stream_priorities(plan, least=least, greatest=greatest)
        self._streams = [torch.cuda.Stream(priority=rank) for rank in ranks]
        self._graph: torch.cuda.CUDAGraph | None = None
        self._static: tuple[Tensor, ...] = ()
        self._made: dict[int, dict[str, Tensor]] = {}
        self._losses: list[Tensor | None] = []

    def step(self) -> StepTimes:
        """Run every task once, after ``SubTaskNetwork.begin``.

        Returns:
            Times of each task, by the device's clock; with a graph every task lasts from begin to end of the step.
        """
        return self._replay() if self._captured else self._issue_step()

    def _issue_step(self) -> StepTimes:
        begin = torch.cuda.Event(enable_timing=True)
        begin.record()
        marks = self._issue(begin, timed=True)
        torch.cuda.synchronize()
        start_s, end_s = np.zeros((2, self._program.size))
        for task, (first, last) in marks.items():
            start_s[task], end_s[task] = begin.elapsed_time(first) * 1e-3, begin.elapsed_time(last) * 1e-3
        return StepTimes(start_s, end_s)

    def _issue(self, begin: torch.cuda.Event, *, timed: bool) -> dict[int, tuple[torch.cuda.Event, torch.cuda.Event]]:
        """Launch all tasks on their streams, which start after ``begin``, and let the current stream wait for them."""
        current, recorded = torch.cuda.current_stream(), dict[int, torch.cuda.Event]()
        marks: dict[int, tuple[torch.cuda.Event, torch.cuda.Event]] = {}
        for stream in self._streams:
            stream.wait_event(begin)
        for row in self._issued:
            stream = self._streams[row.stream]
            with torch.cuda.stream(stream):
                for early in row.waits:
                    stream.wait_event(recorded[early])
                if timed:
                    marks[row.task] = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
                    marks[row.task][0].record(stream)
                self._network.run(row.task)
                if timed:
                    marks[row.task][1].record(stream)
                if row.records:
                    recorded[row.task] = torch.cuda.Event()
                    recorded[row.task].record(stream)
        for stream in self._streams:
            current.wait_stream(stream)
        return marks

    def _capture(self) -> torch.cuda.CUDAGraph:
        """Run a step, in which libraries choose their algorithms, then capture a step with the same data."""
        network, number = self._network, self._network.number
        self._issue_step()
        network.begin(number)
        self._static, graph = network.batch, torch.cuda.CUDAGraph()
        torch.cuda.synchronize()
        with torch.cuda.graph(graph):
            begin = torch.cuda.Event()
            begin.record()
            self._issue(begin, timed=False)
        self._made, self._losses = network.gradients, [part.loss for part in network.parts]
        return graph

    def _replay(self) -> StepTimes:
        network = self._network
        if self._graph is None:
            self._graph = self._capture()
        for static, fresh in zip(self._static, network.batch, strict=True):
            static.copy_(fresh)
        first, last = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        first.record()
        self._graph.replay()
        last.record()
        torch.cuda.synchronize()
        network.gradients = self._made
        for part, loss in zip(network.parts, self._losses, strict=True):
            part.loss = loss
        whole_s = first.elapsed_time(last) * 1e-3
        return StepTimes(np.zeros(self._program.size), np.full(self._program.size, whole_s))


def _priority_range() -> tuple[int, int]:
    """Return the least and the greatest priority of the current device, as cudaDeviceGetStreamPriorityRange does."""
    priority_range = getattr(torch.cuda.Stream, "priority_range", None)
    least, greatest = (
        priority_range() if priority_range is not None else (0, -1)
    )  # torch clamps what the device does not have
    return int(least), int(greatest)
