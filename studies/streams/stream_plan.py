"""A stream plan: the stream and the priority of each task of a decomposed program, and what else it waits for."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from hwprofiles import Floats, Ints
from planner.simulation import ITERATIONS, ProgramGraph, Replay, build_program_graph, message_overheads_of
from simulator.engines import simulate
from studies.streams.decomposition import Decomposed

__all__ = ["StreamPlan", "pairs_of", "read_streams", "replay_streams"]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class StreamPlan:
    """Arrays have shape (T,) over the tasks of a decomposed program."""

    name: str
    stream: Ints
    """Of the task's device; -1: it runs when it is ready (transfers, and updates called back by their gradients)."""
    labels: tuple[str, ...]
    """What each stream holds."""
    shown: Ints
    """Index into ``labels``: where pictures show a task; -1 for none."""
    priority: Ints
    """Higher is served first."""
    wait_s: Floats
    """Synchronisation before a task, beside its launch."""
    order: Ints
    """Shape (N, 2): task, and one that it waits for beside its own dependencies."""
    carried: Ints
    """Shape (M, 2): the same, of the iteration before."""

    @property
    def streams(self) -> int:
        """Streams of a device."""
        return len(self.labels)


def read_streams(work: Decomposed, plan: StreamPlan, *, iterations: int) -> ProgramGraph:
    """The task graph of a decomposed program under a stream plan: launches wait, kernels share by their occupancy.

    Args:
        work: One iteration.
        plan: For its tasks.
        iterations: Iterations in a row, >= 1.
    """
    program = work.program
    plain = build_program_graph(program, iterations=iterations)
    graph, compute = plain.graph, program.is_compute & ~program.is_codec
    occupancy = np.where(compute & (work.occupancy > 0), work.occupancy, 1.0)
    everywhere = np.tile(compute, iterations)
    weights = np.repeat(np.tile(occupancy, iterations), np.diff(graph.use_start)) * graph.use_weight
    latency_s = np.where(compute, work.launch_s + plan.wait_s, graph.latency_s[: program.size])
    stream = np.where(plan.stream >= 0, plan.stream + plan.streams * program.device, -1)
    priority = message_overheads_of(program.cluster).priority(plan.priority, program.is_compute)
    start, after = _with_order(graph.after_start, graph.after, program.size, plan, iterations)
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


def _with_order(start: Ints, after: Ints, size: int, plan: StreamPlan, iterations: int) -> tuple[Ints, Ints]:
    """Dependencies with those of the plan, in every iteration."""
    total = size * iterations
    late = [np.repeat(np.arange(total), np.diff(start))]
    early = [after]
    for k in range(iterations):
        late.append(plan.order[:, 0] + k * size)
        early.append(plan.order[:, 1] + k * size)
        if k:
            late.append(plan.carried[:, 0] + k * size)
            early.append(plan.carried[:, 1] + (k - 1) * size)
    pairs = np.unique(np.concatenate(late) * total + np.concatenate(early))
    rows, values = np.divmod(pairs, max(total, 1))
    return np.concatenate([[0], np.cumsum(np.bincount(rows, minlength=total))]), values


def replay_streams(work: Decomposed, plan: StreamPlan, *, iterations: int = ITERATIONS, engine: str = "auto") -> Replay:
    """Replay several iterations; times are read off as of any replay.

    Raises:
        ConfigError: Unknown engine, or a plan whose order makes tasks wait for each other.
    """
    reading = read_streams(work, plan, iterations=iterations)
    schedule = simulate(reading.graph, engine=engine)
    return Replay(program=work.program, program_graph=reading, schedule=schedule, engine_s=0.0)


def pairs_of(rows: Sequence[tuple[int, int]]) -> Ints:
    """Pairs as an array, shape (N, 2)."""
    return np.array(rows, dtype=np.int64).reshape(-1, 2)
