"""Schedules measured on this machine's cores, and predicted from the times of single sub-tasks.

Sub-tasks are timed one after another, with each number of cores that a schedule gives them, while a second network
keeps the other cores busy; the simulation then predicts the schedules.  Schedules are measured in turns, so that other
load of the machine affects all alike.
"""

import os
from collections.abc import Sequence
from contextlib import ExitStack

import numpy as np
import torch

from executor.runtime.optimizer_spec import OptimizerSpec
from executor.streams.measure_request import MEASURED_SCHEDULES, CoreStreamsRequest
from executor.streams.network import SubTaskNetwork
from executor.streams.schedule_setups import LoadedRunner, PlannedSchedule, ScheduleSetups, SubTaskTimes
from executor.streams.stream_results import MeasuredSchedule, MeasuredStreams
from executor.streams.threads import StepTimes, ThreadRunner
from executor.streams.turns import in_turns
from groundwork.errors import ConfigError
from groundwork.progress import Progress
from planner.graph.computation_graph import ComputationGraph
from studies.streams.decomposition import with_measured
from studies.streams.delayed_memory import held_bytes
from studies.streams.schedule_comparison import whole_program
from studies.streams.stream_plan import replay_streams
from studies.streams.stream_request import PathOptions

ORDERING_PROFILE = "cpu-core"
"""Compute profile whose times only order the paths until sub-tasks have been measured."""


def measure_streams(
    graph: ComputationGraph,
    request: CoreStreamsRequest,
    *,
    schedules: Sequence[str] = MEASURED_SCHEDULES,
    options: PathOptions | None = None,
    hold_bytes: float | None = None,
    seed: int = 0,
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
        network = SubTaskNetwork(with_measured(program, {}).program, seed=seed, optimizer=OptimizerSpec())
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
    results = [
        _result(setups, row, known, steps[at], [times.step_s for times in steps[0]], losses[at])
        for at, row in enumerate(planned)
    ]
    graph = network.graph
    return MeasuredStreams(
        model=graph.name, batch=graph.batch, cores=setups.total, rounds=rounds, results=tuple(results)
    )


def _result(
    setups: ScheduleSetups,
    row: PlannedSchedule,
    known: Sequence[dict[int, SubTaskTimes]],
    steps_times: Sequence[StepTimes],
    plain_s: Sequence[float],
    loss: float,
) -> MeasuredSchedule:
    steps = np.array([times.step_s for times in steps_times])
    middle = steps_times[int(np.argsort(steps)[(len(steps) - 1) // 2])]
    low, median, high = np.quantile(steps, [0.25, 0.5, 0.75]).tolist()
    works = [setups.work(row.cores_of, times) for times in known]
    spans = [replay_streams(each, row.plan, iterations=1).schedule.makespan_s for each in works]
    work = works[0]
    return MeasuredSchedule(
        name=row.plan.name,
        step_s=median,
        quartiles_s=(low, high),
        gains=tuple((np.array(plain_s) / steps).tolist()),
        predicted_s=float(np.median(spans)),
        errors=tuple((np.array(spans) / steps - 1).tolist()),
        threads=(row.cores_of["activation_gradient"], row.cores_of["weight_gradient"]),
        held_bytes=held_bytes(work.program, middle.end_s),
        loss=loss,
        times=middle,
        work=work,
        plan=row.plan,
    )
