"""Four schedules of the same sub-tasks, from one stream to critical-path priorities.

Three ways give the priorities of Algorithm 1 to a device, which may have fewer levels than the algorithm needs.

Source: "TurboDL", Secs. 2.2 to 2.4, 3.1 and 3.3; the last names ``queue`` method one and ``synchronisation`` method
two.
"""

from collections.abc import Callable

import numpy as np

from groundwork.array_types import Bools, Ints
from groundwork.errors import ConfigError
from hwprofiles.compute.launch import Launch
from planner.lowering.program import KINDS, Program
from studies.streams.critical_paths import SUB_TASK_TYPES, Paths, numbered_streams, path_streams, paths_of, update_waits
from studies.streams.decomposition import Decomposed
from studies.streams.stream_plan import StreamPlan, pairs_of, run_order
from studies.streams.stream_request import METHODS, SCHEDULES, PathOptions

_NAME = "critical-path"


def critical_path_plan(work: Decomposed, launch: Launch, options: PathOptions) -> StreamPlan:
    """Return the schedule of Algorithm 1 with its priorities, by levels where the device has enough of them.

    Raises:
        ConfigError: The method is unknown, or it is ``levels`` and the device has too few.

    Source:
        "TurboDL", Algorithm 1, and Sec. 3.3, Some Implement Issues.
    """
    program, paths = work.program, paths_of(work.program, options)
    levels = len(np.unique(paths.priority[work.kernels]))
    method = options.method
    if method == "auto":
        method = "levels" if levels <= launch.priorities else "queue"
    if method not in METHODS:
        raise ConfigError(f"method must be one of auto, {', '.join(METHODS)}, got {method!r}")
    stream, labels = path_streams(program, paths)
    if method == "levels":
        if levels > launch.priorities:
            raise ConfigError(
                f"method levels needs {levels} priorities of the device, which has {launch.priorities}; "
                "choose queue or synchronisation"
            )
        return StreamPlan.of(_NAME, stream, labels, priority=paths.priority, order=update_waits(program))
    two = _two_levels(work, paths, launch)
    position = np.empty(program.size, dtype=np.int64)
    position[run_order(program.waiting, program.after, paths.priority)] = np.arange(program.size)
    if method == "queue":
        return _queued(work, paths, two, position)
    order = np.concatenate([pairs_of(_synchronised(program, paths, position)), update_waits(program)])
    return StreamPlan.of(_NAME, stream, labels, priority=two, order=order)


def _two_levels(work: Decomposed, paths: Paths, launch: Launch) -> Ints:
    """Return priority 1 for sub-tasks on layer paths and 0 for gradients of parameters; all 0 on one level."""
    if launch.priorities < 2:
        return np.zeros(work.program.size, dtype=np.int64)
    low = work.kernels & (paths.priority <= -paths.layer_paths)
    return np.where(work.kernels, np.where(low, 0, 1), 0)


def _queued(work: Decomposed, paths: Paths, two: Ints, position: Ints) -> StreamPlan:
    """Return the plan of method one: the critical sub-tasks in one queue, in the order of their priorities."""
    program = work.program
    stream, labels = path_streams(program, paths)
    queued = work.kernels & paths.critical
    keys = np.where(queued, 0, np.where(stream >= 0, stream + 1, -1))
    stream, labels = numbered_streams(keys, ("critical", *labels))
    queues = _by_device(program, queued, position)
    # The queue's order need not be the program's.  So each task waits for the one before it in the queue, and the
    # first for the last of the previous iteration, in place of a stream that keeps program order.
    order = [pair for tasks in queues for pair in zip(tasks[1:].tolist(), tasks[:-1].tolist(), strict=True)]
    carried = [(int(tasks[0]), int(tasks[-1])) for tasks in queues if len(tasks) > 1]
    return StreamPlan(
        name=_NAME,
        stream=np.where(queued, -1, stream),
        labels=labels,
        shown=stream,
        priority=two,
        wait_s=np.zeros(program.size),
        order=np.concatenate([pairs_of(order), update_waits(program)]),
        carried=pairs_of(carried),
    )


def _by_device(program: Program, chosen: Bools, position: Ints) -> list[Ints]:
    """Return the chosen tasks of each device that has some, in the order of their positions."""
    rows = (np.flatnonzero(chosen & (program.device == device)) for device in range(len(program.cluster.devices)))
    return [tasks[np.argsort(position[tasks])] for tasks in rows if len(tasks)]


def _synchronised(program: Program, paths: Paths, position: Ints) -> list[tuple[int, int]]:
    """Return the waits of method two.

    The first sub-task of a path, forward and backward, waits for the first one of the next longer path.
    """
    order = []
    for block in paths.blocks:
        for backward in (False, True):
            first = [_first(program, paths, path.layers, position, backward=backward) for path in block.paths]
            for late_by_device, early_by_device in zip(first[1:], first, strict=False):
                for device, late in late_by_device.items():
                    early = early_by_device.get(device)
                    if early is not None and position[early] < position[late]:
                        order.append((late, early))
    return order


def _first(
    program: Program, paths: Paths, layers: tuple[int, ...], position: Ints, *, backward: bool
) -> dict[int, int]:
    """Return by device the first critical sub-task of some layers, in one direction."""
    rows = np.flatnonzero((paths.type == 0) & np.isin(program.layer, layers) & (program.backward == backward))
    rows = rows[np.argsort(-position[rows], kind="stable")]  # the last entry of a device wins
    return {int(program.device[task]): int(task) for task in rows.tolist()}


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

    def asynchronous() -> StreamPlan:
        stream, labels = path_streams(work.program, paths_of(work.program, options))
        return StreamPlan.of("asynchronous", stream, labels, order=update_waits(work.program))

    makers: dict[str, Callable[[], StreamPlan]] = {
        "one-stream": lambda: StreamPlan.of("one-stream", np.where(work.kernels, 0, -1), ("all",)),
        "layers": lambda: _layers(work, sync_s),
        "asynchronous": asynchronous,
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
