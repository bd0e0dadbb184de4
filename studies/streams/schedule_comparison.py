"""The four schedules of one network on one device, replayed and set side by side."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import pandas as pd

from hwprofiles import ConfigError, Floats
from hwprofiles.compute import ComputeProfile, launch_of, load_profile
from hwprofiles.devices import Device, DeviceGraph
from planner.cost import CostModel
from planner.graph import ComputationGraph
from planner.lowering import KINDS, Program, lower
from planner.parallel import named_strategy, spaces_of
from planner.simulation import ITERATIONS, Replay
from simulator.timelines import lower_bound, resource_use
from studies.streams.decomposition import Decomposed, decompose
from studies.streams.delayed_memory import bounded, held_bytes
from studies.streams.stream_plan import StreamPlan, replay_streams
from studies.streams.stream_schedules import METHODS, SCHEDULES, PathOptions, paths_of, schedule

__all__ = [
    "ScheduleResult",
    "StreamComparison",
    "StreamRequest",
    "compare_schedules",
    "one_device",
    "whole_program",
    "work_of",
]

BINS = 400
"""Of the curve of occupancy over an iteration."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamRequest:
    """What is compared."""

    graph: ComputationGraph
    device: str
    """Name of a compute profile, or its file."""
    schedules: tuple[str, ...] = SCHEDULES
    reading: str = "geometry"
    """How occupancies are had that were not measured."""
    options: PathOptions = field(default_factory=PathOptions)
    hold_bytes: float | None = None
    """Bound on what delayed weight gradients hold; None for none."""
    max_streams: int | None = None
    """Streams that may be used; None for what the device has."""


@dataclass(frozen=True, kw_only=True)
class ScheduleResult:
    """One schedule, replayed."""

    name: str
    method: str
    """How priorities reach the hardware; empty where there are none."""
    iteration_s: float
    streams: int
    labels: tuple[str, ...]
    occupancy: float
    """Mean share of the device in use."""
    gradient_end_s: float
    """From the start of the iteration shown to the end of its last activation gradient."""
    held_bytes: float
    """Most that delayed weight gradients hold at once."""
    bound_s: float
    """No schedule with these streams can be faster: busiest resource or longest path, an iteration."""
    timeline: pd.DataFrame
    """One row a task of a steady iteration, in the columns of ``Replay.timeline``."""
    edges_s: Floats
    use: Floats
    """Share of the device in use between these times, shape (BINS,), from the start of the iteration shown."""


@dataclass(frozen=True, kw_only=True)
class StreamComparison:
    """Schedules of a network on a device, the plainest first."""

    model: str
    batch: int
    device: str
    reading: str
    layer_paths: int
    blocks: int
    results: tuple[ScheduleResult, ...]
    notes: tuple[str, ...]

    def gain(self, result: ScheduleResult) -> float:
        """Speedup over the first schedule."""
        return self.results[0].iteration_s / result.iteration_s

    def result(self, name: str) -> ScheduleResult:
        """The one of a name."""
        return next(row for row in self.results if row.name == name)


def one_device(profile: ComputeProfile, name: str) -> DeviceGraph:
    """A machine with one device of a profile, and no link."""
    device = Device(name="device", node=0, profile=name, memory_bytes=profile.memory_bytes)
    return DeviceGraph(profile.name, [device], [], [])


def work_of(graph: ComputationGraph, device: str, *, reading: str = "geometry") -> Decomposed:
    """Sub-tasks of a whole network on one device.

    Args:
        graph: The network.
        device: Name of a compute profile, or its file.
        reading: How occupancies are had.

    Raises:
        ConfigError: The profile says nothing of launches, or there is no such profile or reading.
    """
    program, model = whole_program(graph, device)
    return decompose(program, model, reading=reading)


def whole_program(graph: ComputationGraph, device: str) -> tuple[Program, CostModel]:
    """A network lowered for one device, and its prices."""
    model = CostModel(graph, one_device(load_profile(device), device))
    return lower(model, spaces_of(graph, named_strategy("data", graph, 1), 1)), model


def compare_schedules(
    question: StreamRequest, progress: Callable[[str, int, int], None] | None = None
) -> StreamComparison:
    """Replay the schedules of a question.

    Args:
        question: What is asked.
        progress: Called as ``progress(label, done, total)``.

    Raises:
        ConfigError: The profile says nothing of launches; an unknown schedule, method or reading; alpha or beta that
            would invert priorities; more streams than the device has; a negative bound.
    """
    _check(question.schedules)
    profile = load_profile(question.device)
    launch = launch_of(profile)
    if question.max_streams is not None:
        launch = type(launch)(**{f: getattr(launch, f) for f in launch.__slots__} | {"streams": question.max_streams})
    work = work_of(question.graph, question.device, reading=question.reading)
    found: list[ScheduleResult] = []
    for done, name in enumerate(question.schedules):
        if progress:
            progress(name, done, len(question.schedules))
        tried = [
            (method, _bounded(work, schedule(
                work, name, launch, sync_s=profile.launch_overhead_s, options=_with(question.options, method)
            ), question))
            for method in _methods(work, name, launch.priorities, question.options)
        ]  # fmt: skip
        replayed = [(method, plan, replay_streams(work, plan, iterations=ITERATIONS)) for method, plan in tried]
        found.append(_result(*min(replayed, key=lambda row: row[2].iteration_s)))
    paths = paths_of(work.program, question.options)
    return StreamComparison(
        model=question.graph.name, batch=question.graph.batch, device=profile.name, reading=question.reading,
        layer_paths=paths.layer_paths, blocks=len(paths.blocks), results=tuple(found), notes=_notes(profile, question),
    )  # fmt: skip


def _check(names: Sequence[str]) -> None:
    if not names or len(set(names)) < len(names):
        raise ConfigError(f"schedules must be different names of {', '.join(SCHEDULES)}, got {', '.join(names)!r}")
    for name in names:
        if name not in SCHEDULES:
            raise ConfigError(f"schedules must be of {', '.join(SCHEDULES)}, got {name!r}")


def _with(options: PathOptions, method: str) -> PathOptions:
    return PathOptions(alpha=options.alpha, beta=options.beta, method=method or options.method)


def _methods(work: Decomposed, name: str, priorities: int, options: PathOptions) -> list[str]:
    """Ways to carry priorities to the hardware that are to be tried."""
    if name != "critical-path":
        return [""]
    if options.method != "auto":
        return [options.method]
    compute = work.program.is_compute & ~work.program.is_codec
    levels = len(np.unique(paths_of(work.program, options).priority[compute]))
    return ["levels"] if levels <= priorities else list(METHODS[1:])


def _bounded(work: Decomposed, plan: StreamPlan, question: StreamRequest) -> StreamPlan:
    if question.hold_bytes is None or plan.name not in ("asynchronous", "critical-path"):
        return plan
    return bounded(work.program, plan, question.hold_bytes)


def _result(method: str, plan: StreamPlan, replayed: Replay) -> ScheduleResult:
    program, graph = replayed.program, replayed.program_graph.graph
    begin, end, count = replayed.steady_s
    device = len(program.cluster.links)
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


def _notes(profile: ComputeProfile, question: StreamRequest) -> tuple[str, ...]:
    readings = {
        "geometry": "A kernel takes the room of its blocks, or what its speed asks for: few others fit beside one that "
        "fills the device.",
        "throughput": "A kernel takes only the arithmetic and memory that its speed asks for, as if the blocks of "
        "others always found room: an upper bound of what streams can give.",
    }
    assert profile.launch is not None
    return (
        readings[question.reading],
        f"A launch takes {profile.launch_overhead_s * 1e6:.1f} µs in which its stream waits and others do not; so does "
        "a barrier between layers.",
        f"{profile.name} reports {profile.launch.priorities} stream priorities and runs {profile.launch.streams} "
        "streams at once.",
    )
