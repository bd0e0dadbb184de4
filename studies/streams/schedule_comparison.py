"""Schedules of one network on one device, replayed and compared."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from groundwork.array_types import Floats
from groundwork.progress import Progress
from hwprofiles.compute.compute_profile import ComputeProfile
from hwprofiles.compute.kernel_occupancy import launch_of
from hwprofiles.compute.launch import Launch
from hwprofiles.compute.profile_file import load_profile
from hwprofiles.devices.device import Device
from hwprofiles.devices.device_graph import DeviceGraph
from planner.cost.cost_model import CostModel
from planner.graph.computation_graph import ComputationGraph
from planner.lowering.lower_strategy import lower
from planner.lowering.program import KINDS, Program
from planner.simulation.execution_models import ITERATIONS
from planner.simulation.program_replay import Replay
from planner.strategies.named_strategies import named_strategy, spaces_of
from simulator.timelines.timeline import lower_bound, resource_use
from studies.streams.critical_paths import paths_of
from studies.streams.decomposition import Decomposed, decompose
from studies.streams.delayed_memory import bounded, held_bytes
from studies.streams.stream_plan import StreamPlan, replay_streams
from studies.streams.stream_request import METHODS, StreamRequest
from studies.streams.stream_schedules import schedule

BINS = 400
"""Bins of the curve of occupancy over an iteration."""


@dataclass(frozen=True, kw_only=True)
class ScheduleResult:
    """One schedule, replayed."""

    name: str
    method: str
    """Way to give priorities to the hardware; empty where there are none."""
    iteration_s: float
    streams: int
    labels: tuple[str, ...]
    occupancy: float
    """Mean share of the device in use."""
    gradient_end_s: float
    """Time from the start of the iteration shown to the end of its last activation gradient."""
    held_bytes: float
    """Most bytes that delayed weight gradients hold at once."""
    bound_s: float
    """Iteration that no schedule with these streams can beat: busiest resource or longest path."""
    timeline: pd.DataFrame
    """One row a task of a steady iteration, in the columns of ``Replay.timeline``."""
    edges_s: Floats
    """Edges of the bins of ``use``, from the start of the iteration shown, shape (BINS + 1,)."""
    use: Floats
    """Share of the device in use in each bin, shape (BINS,)."""


@dataclass(frozen=True, kw_only=True)
class StreamComparison:
    """Schedules of a network on a device, the plainest first."""

    model: str
    batch: int
    device: str
    occupancy_model: str
    layer_paths: int
    blocks: int
    results: tuple[ScheduleResult, ...]
    notes: tuple[str, ...]

    def gain(self, result: ScheduleResult) -> float:
        """Return the speedup over the first schedule."""
        return self.results[0].iteration_s / result.iteration_s

    def result(self, name: str) -> ScheduleResult:
        """Return the result of the schedule with a name."""
        return next(row for row in self.results if row.name == name)


def one_device(profile: ComputeProfile, name: str) -> DeviceGraph:
    """Return a machine with one device of a profile, and no link."""
    device = Device(name="device", node=0, profile=name, memory_bytes=profile.memory_bytes)
    return DeviceGraph(profile.name, [device], [], [])


def work_of(graph: ComputationGraph, device: str, *, occupancy_model: str = "geometry") -> Decomposed:
    """Return the sub-tasks of a whole network on one device.

    Raises:
        ConfigError: The profile has no ``launch`` section, or there is no such profile or model of occupancy.
    """
    program, model = whole_program(graph, device)
    return decompose(program, model, occupancy_model=occupancy_model)


def whole_program(graph: ComputationGraph, device: str) -> tuple[Program, CostModel]:
    """Return a network lowered for one device, and its prices."""
    model = CostModel(graph, one_device(load_profile(device), device))
    return lower(model, spaces_of(graph, named_strategy("data", graph, 1), 1)), model


def compare_schedules(
    graph: ComputationGraph, request: StreamRequest, progress: Progress | None = None
) -> StreamComparison:
    """Replay the schedules of a network on a device.

    Args:
        graph: The network.
        request: Device and schedules.
        progress: Called as ``progress(label, done, total)``.

    Raises:
        ConfigError: The profile has no ``launch`` section; alpha or beta would invert priorities; or the schedules
            need more streams or priorities than the device has.
    """
    profile = load_profile(request.device)
    launch = launch_of(profile)
    if request.max_streams is not None:
        launch = replace(launch, streams=request.max_streams)
    work = work_of(graph, request.device, occupancy_model=request.occupancy_model)
    results: list[ScheduleResult] = []
    for done, name in enumerate(request.schedules):
        if progress:
            progress(name, done, len(request.schedules))
        replayed = [
            (method, plan, replay_streams(work, plan, iterations=ITERATIONS))
            for method, plan in _plans(work, name, launch, profile.launch_overhead_s, request)
        ]
        results.append(_result(*min(replayed, key=lambda row: row[2].iteration_s)))
    paths = paths_of(work.program, request.paths)
    return StreamComparison(
        model=graph.name,
        batch=graph.batch,
        device=profile.name,
        occupancy_model=request.occupancy_model,
        layer_paths=paths.layer_paths,
        blocks=len(paths.blocks),
        results=tuple(results),
        notes=_notes(profile, request),
    )


def _plans(
    work: Decomposed, name: str, launch: Launch, sync_s: float, request: StreamRequest
) -> Iterator[tuple[str, StreamPlan]]:
    """Yield the ways to give a schedule's priorities to the hardware that are tried, each with its plan."""
    for method in _methods(work, name, launch.priorities, request):
        options = replace(request.paths, method=method) if method else request.paths
        plan = schedule(work, name, launch, sync_s=sync_s, options=options)
        if request.hold_bytes is not None and name in ("asynchronous", "critical-path"):
            plan = bounded(work.program, plan, request.hold_bytes)
        yield method, plan


def _methods(work: Decomposed, name: str, priorities: int, request: StreamRequest) -> list[str]:
    """Return the methods to try for a schedule; an empty one where it has no priorities."""
    if name != "critical-path":
        return [""]
    if request.method != "auto":
        return [request.method]
    levels = len(np.unique(paths_of(work.program, request.paths).priority[work.kernels]))
    return ["levels"] if levels <= priorities else list(METHODS[1:])


def _result(method: str, plan: StreamPlan, replayed: Replay) -> ScheduleResult:
    program, graph = replayed.program, replayed.program_graph.graph
    begin, end, count = replayed.steady_s
    device = len(program.cluster.links)  # resources are the links, then the device
    whole = np.array([begin, end])
    use = float(resource_use(graph, replayed.schedule, whole)[device, 0])
    origin_s = replayed.shown[1]
    timeline = replayed.timeline()
    words = np.array([*plan.labels, "updates"])
    timeline["stream"] = words[plan.shown]
    span = np.linspace(0.0, float(timeline["end_s"].max()), BINS + 1)
    back = program.kind == KINDS.index("activation_gradient")
    return ScheduleResult(
        name=plan.name,
        method=method,
        iteration_s=(end - begin) / count,
        streams=plan.streams,
        labels=plan.labels,
        occupancy=use,
        gradient_end_s=float(timeline["end_s"].to_numpy()[back].max(initial=0.0)),
        held_bytes=held_bytes(program, replayed.schedule.end_s[replayed.program_graph.task_of[-1]]),
        bound_s=lower_bound(graph).seconds / ITERATIONS,
        timeline=timeline,
        edges_s=span,
        use=resource_use(graph, replayed.schedule, span + origin_s)[device].clip(0.0, 1.0),
    )


def _notes(profile: ComputeProfile, request: StreamRequest) -> tuple[str, ...]:
    """Return notes on the model of occupancy, on launches and on the device's streams."""
    occupancy_notes = {
        "geometry": "Occupancy by geometry: a kernel takes the room of its blocks, or what its speed needs, whichever "
        "is more; few others fit beside one that fills the device.",
        "throughput": "Occupancy by throughput: a kernel takes only the arithmetic and memory that its speed needs, as "
        "if the blocks of others always found room: an upper bound of what streams can give.",
    }
    assert profile.launch is not None
    return (
        occupancy_notes[request.occupancy_model],
        f"A launch takes {profile.launch_overhead_s * 1e6:.1f} µs in which its stream waits and others do not; so does "
        "a barrier between layers.",
        f"{profile.name} reports {profile.launch.priorities} stream priorities and runs {profile.launch.streams} "
        "streams at once.",
    )
