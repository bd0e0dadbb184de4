"""The rules that a task graph must satisfy before an engine replays it."""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from groundwork.array_types import Bools, Floats, Ints
from groundwork.errors import ConfigError
from simulator.graph.task_graph import TaskGraph

_NAMED_TASKS = 12
"""Most tasks of a cycle that a message names."""


def check_task_graph(graph: TaskGraph, *, task_name: Callable[[int], str] = str) -> None:
    """Check a task graph, but for tasks that wait for each other: see ``check_all_ended``.

    Args:
        graph: Graph to check.
        task_name: Returns the name of a task in error messages, given its number.

    Raises:
        ConfigError: An array has the wrong shape; a work, latency, start, weight, capacity or rate limit
            is out of range; or a row names a task or resource that does not exist, or one resource twice.
    """
    tasks, resources = graph.size, len(graph.capacity)
    _check_shapes(graph)

    def row_of(start: Ints) -> Callable[[int], str]:
        """Return a function that names the task of an entry of compressed sparse rows."""
        return lambda entry: f" (task {task_name(int(np.searchsorted(start, entry, side='right')) - 1)})"

    def resource_name(number: int) -> str:
        """Return a note that names a resource."""
        return f" ({graph.resource_names[number]})"

    good, rule = np.isfinite(graph.capacity) & (graph.capacity > 0), "finite and > 0"
    _check(good, "capacity of resource", graph.capacity, rule, note=resource_name)
    for name in ("work", "latency_s", "start_s"):
        values = getattr(graph, name)
        _check(np.isfinite(values) & (values >= 0), f"{name} of task", values, "finite and >= 0", name=task_name)
    never = "> 0, or the task can never run"
    _check(graph.rate_limit > 0, "rate_limit of task", graph.rate_limit, never, name=task_name)
    weight, owner, waits = graph.use_weight, row_of(graph.use_start), row_of(graph.after_start)
    _check(np.isfinite(weight) & (weight > 0), "use_weight of use", weight, rule, note=owner)
    used, within = graph.use_resource, f"in 0..{resources - 1}"
    _check(_within(used, resources), "use_resource of use", used, within, note=owner)
    _check(_within(graph.after, tasks), "after of dependency", graph.after, f"in 0..{tasks - 1}", note=waits)
    _check_uses(graph, task_name)
    _check_durations(graph, task_name)


def _within(index: Ints, size: int) -> Bools:
    """Return where indices lie in 0 .. ``size`` - 1."""
    return (index >= 0) & (index < size)


def _check(
    good: Bools,
    what: str,
    values: NDArray[np.generic],
    rule: str,
    *,
    name: Callable[[int], str] = str,
    note: Callable[[int], str] = lambda _: "",
) -> None:
    """Raise at the first entry that breaks a rule.

    Args:
        good: Flags of the entries that satisfy the rule.
        what: Subject of the message, such as ``work of task``.
        values: Values of the entries.
        rule: Rule in words, after "must be".
        name: Returns the name of an entry, given its index.
        note: Returns a note about an entry for the end of the message, given its index.

    Raises:
        ConfigError: An entry breaks the rule.
    """
    if not good.all():
        at = int(np.argmin(good))
        raise ConfigError(f"{what} {name(at)} must be {rule}, got {values[at]}{note(at)}")


def _check_durations(graph: TaskGraph, task_name: Callable[[int], str]) -> None:
    """Raise where the time of a task, or the sum of all times, is out of the range of floating-point numbers."""
    with np.errstate(over="ignore", divide="ignore"):
        rate = graph.alone_rates
        alone_s = graph.work / rate
        all_s = graph.start_s.max(initial=0.0) + graph.latency_s.sum() + alone_s.sum()
    good = (rate > 0) & np.isfinite(rate) & np.isfinite(alone_s)
    _check(good, "seconds of work of task", alone_s, "a number, alone on its resources", name=task_name)
    if not np.isfinite(all_s):
        raise ConfigError(f"start_s, latency_s and work must add up to a finite time, got {all_s}")


def _check_uses(graph: TaskGraph, task_name: Callable[[int], str]) -> None:
    """Raise where a task names a resource twice."""
    resources = len(graph.capacity)
    owner = graph.use_owners
    pairs = np.sort(owner * resources + graph.use_resource)
    repeated = np.flatnonzero(pairs[1:] == pairs[:-1])
    if len(repeated):
        task, resource = divmod(int(pairs[repeated[0]]), resources)
        got = graph.resource_names[resource]
        raise ConfigError(f"task {task_name(task)} must name a resource once, got {got!r} twice")


def _check_shapes(graph: TaskGraph) -> None:
    """Raise where an array has the wrong length, or offsets do not rise."""
    tasks, resources = graph.size, len(graph.capacity)
    for name in ("latency_s", "start_s", "rate_limit", "priority", "stream"):
        _check_length(name, len(getattr(graph, name)), tasks)
    for name in ("exclusive", "resource_names"):
        _check_length(name, len(getattr(graph, name)), resources)
    _check_length("use_weight", len(graph.use_weight), len(graph.use_resource))
    for name, rows in (("use_start", graph.use_resource), ("after_start", graph.after)):
        start = getattr(graph, name)
        _check_length(name, len(start), tasks + 1)
        if start[0] != 0 or start[-1] != len(rows) or np.any(np.diff(start) < 0):
            raise ConfigError(f"{name} must rise from 0 to {len(rows)}, got {start[0]} to {start[-1]}")


def _check_length(name: str, got: int, required: int) -> None:
    """Raise where an array has another length than required."""
    if got != required:
        raise ConfigError(f"{name} must have {required} entries, got {got}")


def check_all_ended(graph: TaskGraph, end_s: Floats, *, task_name: Callable[[int], str] = str) -> None:
    """Raise where tasks of a checked graph never ended in a replay.

    Every task that can begin also ends, so what is left waits for each other: no search for cycles is needed before.

    Args:
        graph: Graph that was replayed.
        end_s: Ends of its tasks, shape (T,); NaN of those that never began.
        task_name: Returns the name of a task in error messages, given its number.

    Raises:
        ConfigError: Tasks wait for each other, by dependencies and streams.
    """
    stuck = set(np.flatnonzero(np.isnan(end_s)).tolist())
    if stuck:
        cycle = _cycle(_waits_for(graph), stuck, task_name)
        raise ConfigError(f"tasks must not wait for each other, got the cycle {cycle}")


def _waits_for(graph: TaskGraph) -> list[list[int]]:
    """Return for each task its dependencies and the task before it in its stream."""
    bounds = graph.after_start.tolist()
    after = graph.after.tolist()
    before: list[list[int]] = [after[bounds[task] : bounds[task + 1]] for task in range(graph.size)]
    latest: dict[int, int] = {}
    for task, stream in enumerate(graph.stream.tolist()):
        if stream >= 0:
            if stream in latest:
                before[task].append(latest[stream])
            latest[stream] = task
    return before


def _cycle(before: list[list[int]], stuck: set[int], task_name: Callable[[int], str]) -> str:
    """Return the names of the tasks of one cycle, each waiting for the next: a stuck task waits for a stuck one."""
    path: dict[int, int] = {}
    task = min(stuck)
    while task not in path:
        path[task] = len(path)
        task = next(other for other in before[task] if other in stuck)
    cycle = [*list(path)[path[task] :], task]
    names = [task_name(member) for member in cycle]
    if len(names) > _NAMED_TASKS:
        names = [*names[: _NAMED_TASKS - 1], f"({len(names) - _NAMED_TASKS} more)", names[-1]]
    return " -> ".join(names)
