"""Simulation of cases: the strategy of each row as a plan, lowered and replayed with overlap and contention."""

import os
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from functools import lru_cache

from groundwork.errors import OrreryError
from hwprofiles.devices.device_graph import DeviceGraph
from planner.cost.cost_model import CostModel
from planner.graph.computation_graph import ComputationGraph
from planner.lowering.lower_strategy import lower
from planner.lowering.program import Program
from planner.search.pipeline_strategy import Pipeline, strategy_and_micro_batching
from planner.simulation.memory_over_time import memory_curve
from planner.simulation.program_replay import replay
from studies.oracle.cases import HYBRIDS, OracleCase
from studies.oracle.oracle_table import Simulated
from studies.sweep.workers import DIED, compute_in_processes

_ITERATIONS = 3
"""Replayed iterations; the second is measured, because one precedes it and one follows."""
SCHEDULE = "gpipe"
"""Schedule of the pipeline as in Table 1: all micro-batches forward, then all backward, with all activations kept."""


def plan_text(case: OracleCase) -> str:
    """Return the strategy of a plan for a case: a name, or degrees over all of the case's devices."""
    if case.strategy in HYBRIDS:
        return f"data={case.p1},{HYBRIDS[case.strategy]}={case.p2}"
    return {"serial": "data", "layer": "pipeline"}.get(case.strategy, case.strategy)


def program_of_case(graph: ComputationGraph, cluster: DeviceGraph, case: OracleCase) -> Program:
    """Return the program of a case's plan, whether it fits in memory or not.

    Args:
        graph: The network, with any batch.
        cluster: Device graph; its first devices are those of the case.
        case: The case.

    Raises:
        OrreryError: There is no plan for the case.
    """
    model = CostModel(graph.with_batch(case.batch), cluster.take(case.p))
    pipeline = Pipeline(schedule=SCHEDULE, stages=case.p, micro_batches=case.segments)
    strategy, micro_batching = strategy_and_micro_batching(model, plan_text(case), pipeline=pipeline)
    return lower(model, model.spaces_of(strategy), micro_batching=micro_batching)


def simulate_case(graph: ComputationGraph, cluster: DeviceGraph, case: OracleCase, samples: int) -> Simulated:
    """Replay a case; where there is no plan the result has the reason.

    Args:
        graph: The network, with any batch.
        cluster: Device graph; its first devices are those of the case.
        case: The case.
        samples: Samples of the data set.
    """
    text = plan_text(case)
    try:
        program = program_of_case(graph, cluster, case)
    except OrreryError as error:
        return Simulated(plan=text, refused=str(error))
    replayed = replay(program, iterations=_ITERATIONS)
    shares, peaks = replayed.shares(), memory_curve(replayed).peak_bytes
    iteration_s = replayed.iteration_s
    return Simulated(
        plan=text,
        iteration_s=iteration_s,
        compute_s=shares.compute_s,
        exposed_communication_s=shares.exposed_communication_s,
        idle_s=shares.idle_s,
        epoch_s=samples / case.batch * iteration_s,
        memory_bytes=float(peaks.max()),
        fits=bool((peaks <= [device.usable_bytes for device in program.cluster.devices]).all()),
        tasks=program.size,
    )


@dataclass(frozen=True)
class _Replays:
    """Cases and what they have in common, for the processes that replay them by number."""

    graph: ComputationGraph
    cluster: DeviceGraph
    samples: int
    cases: Sequence[OracleCase]

    def __call__(self, number: int) -> Simulated:
        # Cache the cluster's parts, so that cases on the same devices share their routes.
        if "take" not in vars(self.cluster):
            self.cluster.take = lru_cache(maxsize=4)(self.cluster.take)  # type: ignore[method-assign]
        return simulate_case(self.graph, self.cluster, self.cases[number], self.samples)

    def died(self, number: int) -> Simulated:
        """Return the row of a case whose process has died twice."""
        return Simulated(plan=plan_text(self.cases[number]), refused=DIED)


def simulate_cases(
    graph: ComputationGraph, cluster: DeviceGraph, cases: Sequence[OracleCase], samples: int, *, processes: int = 0
) -> Generator[tuple[int, Simulated]]:
    """Replay all cases, the largest first, in parallel processes; yield the number of each with its result."""
    # roughly the number of tasks: under filters each part of a group sends to all others
    tasks = [c.p * (c.p2 if c.kind in ("filter", "channel") else 4) * c.segments for c in cases]
    order = sorted(range(len(cases)), key=lambda k: -tasks[k])
    replays = _Replays(graph, cluster, samples, cases)
    count = min(processes or os.cpu_count() or 1, len(cases))
    if count <= 1:
        return ((number, replays(number)) for number in order)
    return compute_in_processes(order, processes=count, evaluate=replays, died=replays.died)
