"""Four schedules of the same sub-tasks, from one stream to critical-path priorities.

Source: "TurboDL", Secs. 2.2 to 2.4, 3.1 and 3.3.
"""

from collections.abc import Callable

import numpy as np

from groundwork.errors import ConfigError
from hwprofiles.compute.launch import Launch
from planner.lowering.program import KINDS
from studies.streams.critical_paths import SUB_TASK_TYPES, Paths, numbered_streams, path_streams, paths_of, update_waits
from studies.streams.decomposition import Decomposed
from studies.streams.priority_methods import critical_path_plan
from studies.streams.stream_plan import StreamPlan, pairs_of
from studies.streams.stream_request import SCHEDULES, PathOptions


def schedule(
    work: Decomposed, name: str, launch: Launch, *, sync_s: float = 0.0, options: PathOptions | None = None
) -> StreamPlan:
    """Return one of ``SCHEDULES`` of a decomposed program.

    Args:
        work: One iteration.
        name: ``one-stream``: everything in program order.  ``layers``: the gradients of a layer side by side, and a
            barrier between layers.  ``asynchronous``: streams of Algorithm 1, with dependencies only.
            ``critical-path``: with its priorities too.
        launch: Streams and priorities of the device.
        sync_s: Time of a barrier, in the schedule that has barriers.
        options: Parameters of Algorithm 1; a method other than ``auto`` has an effect in ``critical-path`` alone.

    Raises:
        ConfigError: The schedule or the method is unknown, ``options`` are out of range, or there are more streams
            than the device has.
    """
    makers: dict[str, Callable[[], StreamPlan]] = {
        "one-stream": lambda: StreamPlan.of("one-stream", np.where(work.kernels, 0, -1), ("all",)),
        "layers": lambda: _layers(work, sync_s),
        "asynchronous": lambda: _asynchronous(work, paths_of(work.program, options)),
        "critical-path": lambda: critical_path_plan(work, launch, options or PathOptions()),
    }
    if name not in makers:
        raise ConfigError(f"schedule must be one of {', '.join(SCHEDULES)}, got {name!r}")
    plan = makers[name]()
    check_streams(plan, launch)
    return plan


def check_streams(plan: StreamPlan, launch: Launch) -> None:
    """Refuse more streams than the device has.

    Raises:
        ConfigError: There are more.
    """
    if plan.streams > launch.streams:
        raise ConfigError(
            f"streams of {plan.name} must be <= {launch.streams}, what the device runs, got {plan.streams}"
        )


def _layers(work: Decomposed, sync_s: float) -> StreamPlan:
    """Return the schedule with barriers between layers, forward and backward.

    Updates follow in order, on the first stream.
    """
    program = work.program
    types = np.maximum(paths_of(program).type, 0)
    stream, labels = numbered_streams(np.where(work.kernels, types, -1), SUB_TASK_TYPES)
    wait_s, order = np.zeros(program.size), []
    for device in range(len(program.cluster.devices)):
        before: list[int] = []
        for step in _steps(work, device):
            order += [(late, early) for late in step for early in before]
            if len(before) > 1:  # a step that follows several streams waits for all of them
                wait_s[step] = sync_s
            before = step
    return StreamPlan.of("layers", stream, labels, wait_s=wait_s, order=pairs_of(sorted(set(order))))


def _steps(work: Decomposed, device: int) -> list[list[int]]:
    """Return the tasks of a device between barriers: layer by layer forward, backward, then each update."""
    program = work.program
    steps: list[list[int]] = []
    last: tuple[object, ...] = ()
    for task in np.flatnonzero(work.kernels & (program.device == device)).tolist():
        kind = KINDS[program.kind[task]]
        key = (int(program.layer[task]), int(program.micro_batch[task]), kind if "gradient" not in kind else "backward")
        if key != last:
            steps.append([])
        steps[-1].append(task)
        last = key
    return steps


def _asynchronous(work: Decomposed, paths: Paths) -> StreamPlan:
    """Return the schedule with the streams of Algorithm 1 and no priorities."""
    stream, labels = path_streams(work.program, paths)
    return StreamPlan.of("asynchronous", stream, labels, order=update_waits(work.program))
