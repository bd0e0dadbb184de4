"""A stream plan: stream, priority and further dependencies of each task of a decomposed program, and its replay."""

import heapq
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from groundwork.array_types import Floats, Ints
from groundwork.sparse_rows import row_owners
from planner.simulation.execution_models import ITERATIONS, ProgramGraph, build_program_graph
from planner.simulation.message_overhead_use import message_overheads_of
from planner.simulation.program_replay import Replay
from simulator.engines.engine import simulate
from studies.streams.decomposition import Decomposed


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class StreamPlan:
    """Streams and priorities of a decomposed program; arrays have shape (T,) over its tasks."""

    name: str
    stream: Ints
    """Stream of the task's device; -1: the task runs as soon as it is ready (transfers, and updates that are called
    back by their gradients)."""
    labels: tuple[str, ...]
    """Contents of each stream, in words."""
    shown: Ints
    """Index into ``labels`` of the stream that a drawing shows for a task; -1 for none."""
    priority: Ints
    """Priority; the highest runs first."""
    wait_s: Floats
    """Synchronisation before a task, in addition to its launch."""
    order: Ints
    """Pairs of a task and one that it waits for in addition to its own dependencies, shape (N, 2)."""
    carried: Ints
    """Pairs of a task and one of the previous iteration that it waits for, shape (M, 2)."""

    @classmethod
    def of(
        cls,
        name: str,
        stream: Ints,
        labels: tuple[str, ...],
        *,
        priority: Ints | None = None,
        wait_s: Floats | None = None,
        order: Ints | None = None,
    ) -> "StreamPlan":
        """Return a plan without dependencies between iterations; no array given means all zeros, or no pairs.

        Args:
            name: Name of the schedule.
            stream: Stream of each task, shape (T,).
            labels: Contents of each stream.
            priority: Priority of each task, shape (T,).
            wait_s: Synchronisation before each task, seconds, shape (T,).
            order: Pairs of a task and one that it waits for, shape (N, 2).
        """
        return cls(
            name=name,
            stream=stream,
            labels=labels,
            shown=stream,
            priority=np.zeros(len(stream), dtype=np.int64) if priority is None else priority,
            wait_s=np.zeros(len(stream)) if wait_s is None else wait_s,
            order=pairs_of([]) if order is None else order,
            carried=pairs_of([]),
        )

    @property
    def streams(self) -> int:
        """Number of streams of a device."""
        return len(self.labels)


def streamed_graph(work: Decomposed, plan: StreamPlan, *, iterations: int) -> ProgramGraph:
    """Return the task graph of a decomposed program under a stream plan.

    A launch makes its stream wait and takes nothing of the device; a kernel takes its occupancy of the device.
    """
    program, kernels = work.program, work.kernels
    plain = build_program_graph(program, iterations=iterations)
    graph = plain.graph
    occupancy = np.where(kernels & (work.occupancy > 0), work.occupancy, 1.0)
    everywhere = np.tile(kernels, iterations)
    weights = np.tile(occupancy, iterations)[row_owners(graph.use_start)] * graph.use_weight
    latency_s = np.where(kernels, work.launch_s + plan.wait_s, graph.latency_s[: program.size])
    stream = np.where(plan.stream >= 0, plan.stream + plan.streams * program.device, -1)
    priority = message_overheads_of(program.cluster).priority(plan.priority, program.is_compute)
    total = program.size * iterations
    late = [row_owners(graph.after_start)]
    early = [graph.after]
    for k in range(iterations):
        late.append(plan.order[:, 0] + k * program.size)
        early.append(plan.order[:, 1] + k * program.size)
        if k:
            late.append(plan.carried[:, 0] + k * program.size)
            early.append(plan.carried[:, 1] + (k - 1) * program.size)
    pairs = np.unique(np.concatenate(late) * total + np.concatenate(early))
    rows, values = np.divmod(pairs, max(total, 1))
    start, after = np.concatenate([[0], np.cumsum(np.bincount(rows, minlength=total))]), values
    streamed = replace(
        graph,
        work=np.where(everywhere, np.tile(program.work_s - work.launch_s, iterations), graph.work),
        latency_s=np.tile(latency_s, iterations),
        rate_limit=np.where(everywhere, 1.0, graph.rate_limit),
        priority=np.tile(priority, iterations),
        stream=np.tile(stream, iterations),
        use_weight=weights,
        after_start=start,
        after=after,
    )
    return ProgramGraph(streamed, plain.task_of)


def replay_streams(work: Decomposed, plan: StreamPlan, *, iterations: int = ITERATIONS) -> Replay:
    """Replay several iterations of a decomposed program under a stream plan.

    Raises:
        ConfigError: The plan's order makes tasks wait for each other.
    """
    program_graph = streamed_graph(work, plan, iterations=iterations)
    schedule = simulate(program_graph.graph)
    return Replay(program=work.program, program_graph=program_graph, schedule=schedule, engine_s=0.0)


def pairs_of(rows: Sequence[tuple[int, int]]) -> Ints:
    """Return pairs as an array, shape (N, 2)."""
    return np.array(rows, dtype=np.int64).reshape(-1, 2)


def run_order(late: Ints, early: Ints, priority: Ints) -> list[int]:
    """Return the order in which one worker runs tasks: of those that are ready the highest priority, then the first.

    Args:
        late: Task of each dependency.
        early: Task that it waits for, same shape.
        priority: Priority of each task, shape (T,).
    """
    waits = np.bincount(late, minlength=len(priority))
    readers: list[list[int]] = [[] for _ in priority]
    for task, before in zip(late.tolist(), early.tolist(), strict=True):
        readers[before].append(task)
    ready = [(-int(priority[task]), task) for task in np.flatnonzero(waits == 0).tolist()]
    heapq.heapify(ready)
    order = []
    while ready:
        _, task = heapq.heappop(ready)
        order.append(task)
        for reader in readers[task]:
            waits[reader] -= 1
            if waits[reader] == 0:
                heapq.heappush(ready, (-int(priority[reader]), reader))
    return order
