"""Four schedules of the same sub-tasks, from one stream to critical-path priorities.

Source: "TurboDL", Secs. 2.2 to 2.4, 3.1 and 3.3.
"""

import heapq
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hwprofiles import ConfigError, Floats, Ints
from hwprofiles.compute import Launch
from planner.graph import Block, dependency_distances, layer_blocks
from planner.lowering import KINDS, Program
from studies.streams.decomposition import Decomposed
from studies.streams.stream_plan import StreamPlan, pairs_of

__all__ = ["METHODS", "SCHEDULES", "PathOptions", "Paths", "check_streams", "paths_of", "schedule"]


SCHEDULES = ("one-stream", "layers", "asynchronous", "critical-path")
METHODS = ("levels", "queue", "synchronisation")
"""How priorities reach the hardware: each its own level; or two levels, and among critical sub-tasks the order of one
queue, or waits between streams."""
_CRITICAL = [KINDS.index(kind) for kind in ("forward", "epilogue_gradient", "activation_gradient")]
_TYPES = ("activation", "weight", "bias")


@dataclass(frozen=True, slots=True, kw_only=True)
class PathOptions:
    """What Algorithm 1 can be told."""

    alpha: int | None = None
    """How far weight gradients stand behind their layer path; None: one more than paths part from one another."""
    beta: int | None = None
    """The same of bias gradients."""
    method: str = "auto"
    """One of ``METHODS``; ``auto``: levels where the device has enough, else whichever of the others is faster."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Paths:
    """Algorithm 1 for one program; arrays have shape (T,)."""

    blocks: tuple[Block, ...]
    rank: Ints
    """By layer: place of its path in its block, 0 for the critical one."""
    type: Ints
    """Index into activation, weight, bias of the stream that runs a task; -1 for what no stream runs."""
    priority: Ints
    critical: NDArray[np.bool_]
    """Tasks whose results are used at once."""

    @property
    def layer_paths(self) -> int:
        """Most paths of a block."""
        return int(self.rank.max()) + 1


def paths_of(program: Program, options: PathOptions | None = None) -> Paths:
    """Paths and priorities of the sub-tasks of a decomposed program.

    Activation gradients, and what they start from, have the priority of their layer path: 0 for the longest of a
    block, -1 for the next.  Weight gradients stand alpha below, bias gradients beta.  A sub-task whose result is used
    in the very next step is critical, whatever its kind.

    Raises:
        ConfigError: alpha or beta would put a weight or bias gradient before an activation gradient.
    """
    options = options or PathOptions()
    graph, kind = program.graph, program.kind
    gradient = np.isin(kind, [KINDS.index("epilogue_gradient"), KINDS.index("activation_gradient")])
    seconds = np.bincount(program.layer[gradient], program.work_s[gradient], minlength=len(graph.layers))
    gradient_s = seconds.astype(np.float64)
    blocks = layer_blocks(graph, gradient_s)
    rank_of = np.zeros(len(graph.layers), dtype=np.int64)
    for block in blocks:
        for number, path in enumerate(block.paths):
            rank_of[list(path.layers)] = number
    below = _below(int(rank_of.max()) + 1, options)
    soon = np.array(dependency_distances(graph)) == 1
    types = np.full(program.size, -1)
    types[np.isin(kind, _CRITICAL)] = 0
    types[kind == KINDS.index("weight_gradient")] = 1
    types[kind == KINDS.index("bias_gradient")] = 2
    critical = (types == 0) | ((types > 0) & soon[program.layer])
    shift = np.where(types == 2, below["beta"], np.where(types == 1, below["alpha"], 0))
    shift = np.where(kind == KINDS.index("update"), np.where(soon[program.layer], 0, below["alpha"]), shift)
    priority = np.where(critical & (types > 0), 0, -rank_of[program.layer] - shift)
    priority[~program.is_compute] = 0
    return Paths(blocks=blocks, rank=rank_of, type=types, priority=priority, critical=critical)


def _below(layer_paths: int, options: PathOptions) -> dict[str, int]:
    given = {"alpha": options.alpha, "beta": options.beta}
    for name, value in given.items():
        if value is not None and value < layer_paths:
            raise ConfigError(
                f"{name} must be >= {layer_paths}, the layer paths of a block, or a parameter's gradient would go "
                f"before an activation gradient, got {value}"
            )
    return {name: layer_paths if value is None else value for name, value in given.items()}


def schedule(
    work: Decomposed, name: str, launch: Launch, *, sync_s: float = 0.0, options: PathOptions | None = None
) -> StreamPlan:
    """One of ``SCHEDULES`` of a decomposed program.

    Args:
        work: One iteration.
        name: ``one-stream``: everything in program order.  ``layers``: the gradients of a layer side by side, and a
            barrier between layers.  ``asynchronous``: streams of Algorithm 1, dependencies only.  ``critical-path``:
            its priorities too.
        launch: What the device can do.
        sync_s: What a barrier takes; the schedule without one has none.
        options: Of Algorithm 1; a method other than ``auto`` where the name is ``critical-path``.

    Raises:
        ConfigError: No such schedule or method, bad ``options``, or more streams than the device has.
    """
    made: dict[str, Callable[[], StreamPlan]] = {
        "one-stream": lambda: _one_stream(work),
        "layers": lambda: _layers(work, sync_s),
        "asynchronous": lambda: _streams(work, "asynchronous", paths_of(work.program, options)),
        "critical-path": lambda: _prioritised(work, launch, options or PathOptions()),
    }
    if name not in made:
        raise ConfigError(f"schedule must be one of {', '.join(SCHEDULES)}, got {name!r}")
    plan = made[name]()
    check_streams(plan, launch)
    return plan


def check_streams(plan: StreamPlan, launch: Launch) -> None:
    """Refuse more streams than the device has.

    Raises:
        ConfigError: As said.
    """
    if plan.streams > launch.streams:
        raise ConfigError(
            f"streams of {plan.name} must be <= {launch.streams}, what the device runs, got {plan.streams}"
        )


def _plan(
    work: Decomposed, name: str, stream: Ints, labels: tuple[str, ...], *, priority: Ints | None = None,
    wait_s: Floats | None = None, order: Ints | None = None,
) -> StreamPlan:  # fmt: skip
    size = work.program.size
    return StreamPlan(
        name=name,
        stream=stream,
        labels=labels,
        shown=stream,
        priority=np.zeros(size, dtype=np.int64) if priority is None else priority,
        wait_s=np.zeros(size) if wait_s is None else wait_s,
        order=pairs_of([]) if order is None else order,
        carried=pairs_of([]),
    )


def _one_stream(work: Decomposed) -> StreamPlan:
    return _plan(work, "one-stream", np.where(_kernels(work.program), 0, -1), ("all",))


def _kernels(program: Program) -> NDArray[np.bool_]:
    return np.asarray(program.is_compute & ~program.is_codec)


def _layers(work: Decomposed, sync_s: float) -> StreamPlan:
    """Barriers between layers, forward and backward; updates follow in order, on the first stream."""
    program = work.program
    types = np.maximum(paths_of(program).type, 0)
    stream, labels = _numbered(np.where(_kernels(program), types, -1), _TYPES)
    wait_s, order = np.zeros(program.size), []
    for device in range(len(program.cluster.devices)):
        before: list[int] = []
        for step in _steps(program, device):
            order += [(late, early) for late in step for early in before]
            if len(before) > 1:
                wait_s[step] = sync_s
            before = step
    kept = _between(program, order)
    return _plan(work, "layers", stream, labels, wait_s=wait_s, order=kept)


def _steps(program: Program, device: int) -> list[list[int]]:
    """Tasks of a device between barriers: layer by layer forward, backward, then each update."""
    steps: list[list[int]] = []
    last: tuple[object, ...] = ()
    for task in np.flatnonzero(_kernels(program) & (program.device == device)).tolist():
        kind = KINDS[program.kind[task]]
        key = (int(program.layer[task]), int(program.sub_batch[task]), kind if "gradient" not in kind else "backward")
        if key != last:
            steps.append([])
        steps[-1].append(task)
        last = key
    return steps


def _between(program: Program, order: list[tuple[int, int]]) -> Ints:
    """Pairs as an array, without those that are there already."""
    return np.unique(pairs_of(order), axis=0) if order else pairs_of([])


def _numbered(keys: Ints, labels: tuple[str, ...]) -> tuple[Ints, tuple[str, ...]]:
    """Streams counted from 0 without gaps, and their labels."""
    used = np.unique(keys[keys >= 0])
    stream = np.where(keys >= 0, np.searchsorted(used, keys), -1)
    return stream, tuple(labels[key] for key in used.tolist())


def _path_streams(program: Program, paths: Paths) -> tuple[Ints, tuple[str, ...]]:
    """A stream for every layer path of a block and type of sub-task, used again by every block."""
    rank, types = paths.rank[program.layer], paths.type
    types = np.where(paths.critical & (types > 0), 0, types)
    rank = np.where(paths.critical & (paths.type > 0), 0, rank)
    keys = np.where(types >= 0, rank * len(_TYPES) + types, -1)
    names = tuple(f"path {r + 1}, {kind}" for r in range(paths.layer_paths) for kind in _TYPES)
    return _numbered(keys, names)


def _streams(work: Decomposed, name: str, paths: Paths) -> StreamPlan:
    stream, labels = _path_streams(work.program, paths)
    return _plan(work, name, stream, labels, order=_updates_last(work.program))


def _updates_last(program: Program) -> Ints:
    """An update overwrites what the layer's activation gradient reads, so it waits for that too."""
    back, update = (KINDS.index(kind) for kind in ("activation_gradient", "update"))
    unit = np.column_stack([program.layer, program.part, program.device])
    rows = {tuple(unit[task].tolist()): task for task in np.flatnonzero(program.kind == update).tolist()}
    gradients = [(rows.get(tuple(unit[task].tolist())), task) for task in np.flatnonzero(program.kind == back).tolist()]
    return pairs_of([(late, early) for late, early in gradients if late is not None])


def _prioritised(work: Decomposed, launch: Launch, options: PathOptions) -> StreamPlan:
    """Algorithm 1 with its priorities, by levels where the device has enough of them."""
    program, paths = work.program, paths_of(work.program, options)
    stream, labels = _path_streams(program, paths)
    levels = len(np.unique(paths.priority[_kernels(program)]))
    method = options.method
    if method == "auto":
        method = "levels" if levels <= launch.priorities else "queue"
    if method not in METHODS:
        raise ConfigError(f"method must be one of auto, {', '.join(METHODS)}, got {method!r}")
    if method == "levels":
        if levels > launch.priorities:
            raise ConfigError(
                f"method levels needs {levels} priorities of the device, which has {launch.priorities}; "
                "choose queue or synchronisation"
            )
        return _plan(work, "critical-path", stream, labels, priority=paths.priority, order=_updates_last(program))
    two = np.where(_kernels(program) & (paths.priority <= -paths.layer_paths), 0, 1) if launch.priorities > 1 else None
    two = np.zeros(program.size, dtype=np.int64) if two is None else np.where(_kernels(program), two, 0)
    place = _places(program, paths)
    if method == "queue":
        return _queued(work, paths, two, place)
    order = np.concatenate([pairs_of(_synchronised(program, paths, place)), _updates_last(program)])
    return _plan(work, "critical-path", stream, labels, priority=two, order=order)


def _places(program: Program, paths: Paths) -> Ints:
    """Place of each task in the order in which one worker would run them, critical ones of longer paths first."""
    waits = np.diff(program.after_start).copy()
    readers: list[list[int]] = [[] for _ in range(program.size)]
    for late, early in zip(np.repeat(np.arange(program.size), waits).tolist(), program.after.tolist(), strict=True):
        readers[early].append(late)
    ready = [(-int(paths.priority[t]), t) for t in np.flatnonzero(waits == 0).tolist()]
    heapq.heapify(ready)
    place = np.empty(program.size, dtype=np.int64)
    for number in range(program.size):
        _, task = heapq.heappop(ready)
        place[task] = number
        for late in readers[task]:
            waits[late] -= 1
            if waits[late] == 0:
                heapq.heappush(ready, (-int(paths.priority[late]), late))
    return place


def _queued(work: Decomposed, paths: Paths, two: Ints, place: Ints) -> StreamPlan:
    """Method one: all critical sub-tasks in one queue, in the order of their priorities."""
    program = work.program
    stream, labels = _path_streams(program, paths)
    mine = _kernels(program) & paths.critical
    keys = np.where(mine, 0, np.where(stream >= 0, stream + 1, -1))
    stream, labels = _numbered(keys, ("critical", *labels))
    order = []
    for device in range(len(program.cluster.devices)):
        tasks = np.flatnonzero(mine & (program.device == device))
        tasks = tasks[np.argsort(place[tasks])]
        order += list(zip(tasks[1:].tolist(), tasks[:-1].tolist(), strict=True))
    # the queue's order need not be the program's: waits stand for it, and for that between iterations
    ends = {int(program.device[late]): late for late, _ in order}
    first = [int(tasks[0]) for tasks in _by_device(program, mine, place)]
    carried = [(begin, ends[int(program.device[begin])]) for begin in first if int(program.device[begin]) in ends]
    return StreamPlan(
        name="critical-path",
        stream=np.where(mine, -1, stream),
        labels=labels,
        shown=stream,
        priority=two,
        wait_s=np.zeros(program.size),
        order=np.concatenate([pairs_of(order), _updates_last(program)]),
        carried=pairs_of(carried),
    )


def _by_device(program: Program, mine: NDArray[np.bool_], place: Ints) -> list[Ints]:
    rows = (np.flatnonzero(mine & (program.device == device)) for device in range(len(program.cluster.devices)))
    return [tasks[np.argsort(place[tasks])] for tasks in rows if len(tasks)]


def _synchronised(program: Program, paths: Paths, place: Ints) -> list[tuple[int, int]]:
    """Method two: the first sub-task of a path, forward and backward, waits for that of the next longer one."""
    order = []
    for block in paths.blocks:
        for backward in (False, True):
            first = [_first(program, paths, path.layers, place, backward=backward) for path in block.paths]
            for late_by_device, early_by_device in zip(first[1:], first, strict=False):
                for device, late in late_by_device.items():
                    early = early_by_device.get(device)
                    if early is not None and place[early] < place[late]:
                        order.append((late, early))
    return order


def _first(program: Program, paths: Paths, layers: tuple[int, ...], place: Ints, *, backward: bool) -> dict[int, int]:
    """By device, the critical sub-task of some layers that comes first."""
    rows = np.flatnonzero((paths.type == 0) & np.isin(program.layer, layers) & (program.backward == backward))
    rows = rows[np.argsort(-place[rows], kind="stable")]
    return {int(program.device[task]): int(task) for task in rows.tolist()}
