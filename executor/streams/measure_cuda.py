"""Schedules measured on a CUDA device, and predicted from the times of single sub-tasks.

Occupancies are those of a compute profile; times are measured on the device, of sub-tasks one after another on one
stream.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from executor.runtime.optimizer_spec import OptimizerSpec
from executor.streams.cuda import CudaRunner
from executor.streams.measure_request import CudaStreamsRequest
from executor.streams.network import SubTaskNetwork
from executor.streams.stream_results import MeasuredSchedule, MeasuredStreams
from executor.streams.threads import StepTimes
from executor.streams.turns import in_turns
from groundwork.progress import Progress
from hwprofiles.compute.kernel_occupancy import launch_of
from hwprofiles.compute.profile_file import load_profile
from planner.graph.computation_graph import ComputationGraph
from planner.lowering.program import KINDS, Program
from studies.streams.decomposition import Decomposed, with_measured
from studies.streams.delayed_memory import held_bytes
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
    share = _occupancies(work_of(graph, profile, occupancy_model=request.occupancy))
    first = with_measured(lowered, {})
    network = SubTaskNetwork(
        first.program, seed=request.seed, optimizer=OptimizerSpec(), device=request.device, keep=True
    )
    alone = _alone(network, schedule(first, "one-stream", launch), rounds=3)
    work = _with_occupancies(with_measured(lowered, alone), share)
    plans = [schedule(work, name, launch, options=options) for name in request.schedules]
    runners = [CudaRunner(work.program, plan, network, graph=request.graphs) for plan in plans]
    times, losses = in_turns(network, runners, request.rounds, warm_up=3, progress=progress)
    plain_s = [step.step_s for step in times[0]]
    results = [_result(work, plan, rows, plain_s, loss) for plan, rows, loss in zip(plans, times, losses, strict=True)]
    return MeasuredStreams(model=graph.name, batch=graph.batch, cores=1, rounds=request.rounds, results=tuple(results))


def _result(
    work: Decomposed, plan: StreamPlan, steps_times: Sequence[StepTimes], plain_s: Sequence[float], loss: float
) -> MeasuredSchedule:
    steps = np.array([times.step_s for times in steps_times])
    low, median, high = np.quantile(steps, [0.25, 0.5, 0.75]).tolist()
    middle = steps_times[int(np.argsort(steps)[(len(steps) - 1) // 2])]
    predicted_s = replay_streams(work, plan, iterations=1).schedule.makespan_s
    return MeasuredSchedule(
        name=plan.name,
        step_s=median,
        quartiles_s=(low, high),
        gains=tuple((np.array(plain_s) / steps).tolist()),
        predicted_s=predicted_s,
        errors=tuple((predicted_s / steps - 1).tolist()),
        threads=(1, 1),
        held_bytes=held_bytes(work.program, middle.end_s),
        loss=loss,
        times=middle,
        work=work,
        plan=plan,
    )


def _occupancies(work: Decomposed) -> dict[tuple[int, int], float]:
    """Return the shares of the device that tasks occupy, by layer and kind."""
    program = work.program
    keys = zip(program.layer.tolist(), program.kind.tolist(), strict=True)
    return dict(zip(keys, work.occupancy.tolist(), strict=True))


def _with_occupancies(work: Decomposed, share: dict[tuple[int, int], float]) -> Decomposed:
    keys = zip(work.program.layer.tolist(), work.program.kind.tolist(), strict=True)
    return replace(work, occupancy=np.array([share.get(key, 1.0) for key in keys]))


def _alone(network: SubTaskNetwork, plan: StreamPlan, *, rounds: int) -> dict[tuple[str, str], float]:
    """Return the median seconds of sub-tasks on one stream, by layer and kind; the first step is not counted."""
    program: Program = network.program
    runner, durations_s = CudaRunner(program, plan, network), []
    for number in range(rounds + 1):
        network.begin(number)
        times = runner.step()
        durations_s.append(times.end_s - times.start_s)
    names = [layer.name for layer in program.graph.layers]
    keys = [(names[layer], KINDS[kind]) for layer, kind in zip(program.layer, program.kind, strict=True)]
    return dict(zip(keys, np.median(np.array(durations_s[1:]), axis=0).tolist(), strict=True))
