"""Schedules measured on a CUDA device, and predicted from the times of single sub-tasks.

Occupancies are those of a compute profile; times are measured on the device, of sub-tasks one after another on one
stream.
"""

from dataclasses import replace

import numpy as np

from executor.runtime.optimizer_spec import OptimizerSpec
from executor.streams.cuda import CudaRunner
from executor.streams.measure_request import CudaStreamsRequest
from executor.streams.network import SubTaskNetwork
from executor.streams.stream_results import MeasuredStreams, SubTaskTimes, measured_schedule, median_times
from executor.streams.turns import in_turns
from groundwork.progress import Progress
from hwprofiles.compute.kernel_occupancy import launch_of
from hwprofiles.compute.profile_file import load_profile
from planner.graph.computation_graph import ComputationGraph
from planner.lowering.program import Program
from studies.streams.decomposition import with_measured
from studies.streams.schedule_comparison import whole_program, work_of
from studies.streams.stream_plan import StreamPlan, replay_streams
from studies.streams.stream_request import PathOptions
from studies.streams.stream_schedules import schedule


def measure_on_cuda(
    graph: ComputationGraph,
    request: CudaStreamsRequest,
    *,
    options: PathOptions | None = None,
    progress: Progress | None = None,
) -> MeasuredStreams:
    """Run schedules on CUDA streams, in turns.

    Raises:
        ConfigError: There is no CUDA device, the profile has no ``launch`` section, or a schedule is unknown.
    """
    profile = request.profile
    launch = launch_of(load_profile(profile))
    lowered, _ = whole_program(graph, profile)
    whole = work_of(graph, profile, occupancy_model=request.occupancy)
    share = dict(zip(_layers_and_kinds(whole.program), whole.occupancy.tolist(), strict=True))
    first = with_measured(lowered, {})
    network = SubTaskNetwork(
        first.program, seed=request.seed, optimizer=OptimizerSpec(), device=request.device, keep=True
    )
    alone = _alone(network, schedule(first, "one-stream", launch), rounds=3)
    work = with_measured(lowered, alone)
    work = replace(work, occupancy=np.array([share.get(key, 1.0) for key in _layers_and_kinds(work.program)]))
    plans = [schedule(work, name, launch, options=options) for name in request.schedules]
    runners = [CudaRunner(work.program, plan, network, graph=request.graphs) for plan in plans]
    times, losses = in_turns(network, runners, request.rounds, warm_up=3, progress=progress)
    results = []
    for plan, steps, loss in zip(plans, times, losses, strict=True):
        predicted_s = [replay_streams(work, plan, iterations=1).schedule.makespan_s] * len(steps)
        results.append(
            measured_schedule(plan, steps, times[0], predicted_s=predicted_s, work=work, threads=(1, 1), loss=loss)
        )
    return MeasuredStreams(model=graph.name, batch=graph.batch, cores=1, rounds=request.rounds, results=tuple(results))


def _layers_and_kinds(program: Program) -> list[tuple[int, int]]:
    return list(zip(program.layer.tolist(), program.kind.tolist(), strict=True))


def _alone(network: SubTaskNetwork, plan: StreamPlan, *, rounds: int) -> SubTaskTimes:
    """Return the median seconds of sub-tasks on one stream, by layer and kind; the first step is not counted."""
    runner, durations_s = CudaRunner(network.program, plan, network), []
    for number in range(rounds + 1):
        network.begin(number)
        times = runner.step()
        durations_s.append(times.end_s - times.start_s)
    return median_times(network.program, durations_s[1:])
