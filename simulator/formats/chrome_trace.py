"""Timelines as Chrome trace events, for Perfetto and chrome://tracing.

A process is a device or a node, a thread is a serial resource.  Viewers drop events that overlap on
one thread, so a stream whose tasks overlap is drawn in several lanes, as many as needed.  The start-up latency of a
task is a slice of its own before it.  Times are whole nanoseconds, written as microseconds, which the format requires.

Source:
    "Trace Event Format", Google, 2016: complete (X), flow (s, f), counter (C) and metadata (M) events.
"""

import heapq
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from groundwork.array_types import Ints
from groundwork.errors import ConfigError
from groundwork.input_files import AnyPath
from simulator.formats.whole_files import whole_file

if TYPE_CHECKING:
    import pandas as pd


Event = dict[str, Any]
"""One entry of ``traceEvents``."""
Counter = tuple[Sequence[float], Sequence[float]]
"""Times in seconds, and the values from then on."""

_COLUMNS = ("name", "kind", "process", "stream", "start_s", "end_s")
_NS_PER_S, _NS_PER_US = 1e9, 1e3


def write_trace(
    path: AnyPath,
    rows: "pd.DataFrame",
    *,
    dependencies: Sequence[tuple[int, int]] | Ints = (),
    counters: Mapping[tuple[str, str], Counter] | None = None,
) -> None:
    """Write a timeline; an interruption leaves no partial file.

    Args:
        path: The JSON file.
        rows: One row for each task: name, kind, process (device or link), stream (its lanes stay together),
            start_s, end_s; any other column is shown as an argument of the task.  With ``ready_s`` and ``latency_s``,
            a task that takes a latency from its ready time on has a slice before it that shows that.
        dependencies: Pairs (row before, row after), drawn as arrows.
        counters: Times in seconds and values from then on, by (process, counter).

    Raises:
        ConfigError: A column is missing, a task ends before it starts, or the folder cannot be written.
    """
    missing = [column for column in _COLUMNS if column not in rows]
    if missing:
        raise ConfigError(f"rows of a trace must have the columns {', '.join(_COLUMNS)}; {', '.join(missing)} missing")
    start_ns, end_ns = (np.rint(rows[key].to_numpy(float) * _NS_PER_S).astype(np.int64) for key in ("start_s", "end_s"))
    if np.any(end_ns < start_ns):
        at = int(np.argmax(end_ns < start_ns))
        raise ConfigError(f"row {at} of a trace must end after it starts, got {start_ns[at]} to {end_ns[at]} ns")
    counters = counters or {}
    processes = dict.fromkeys([*rows["process"], *(process for process, _ in counters)])
    number = {process: at for at, process in enumerate(processes)}
    pid = rows["process"].map(number).to_numpy(np.int64)
    waits_ns, latency_ns = _latencies(rows, start_ns)
    lane, threads = _lanes(pid, rows["stream"].tolist(), waits_ns, end_ns)
    encoder = msgspec.json.Encoder()
    with whole_file(path) as file:
        file.write(b'{"displayTimeUnit":"ms","traceEvents":[\n')
        separator = b""
        for events in (
            _names(number, threads),
            _tasks(rows, pid, lane, start_ns, end_ns),
            _waits(rows, pid, lane, waits_ns, latency_ns),
            _arrows(dependencies, pid, lane, start_ns, end_ns),
            _counts(counters, number),
        ):
            for event in events:
                file.write(separator + encoder.encode(event))
                separator = b",\n"
        file.write(b"\n]}\n")


def _latencies(rows: "pd.DataFrame", start_ns: Ints) -> tuple[Ints, Ints]:
    """Return when the latency of each task begins, its start where it has none, and how long it is, in nanoseconds."""
    if "ready_s" not in rows or "latency_s" not in rows:
        return start_ns, np.zeros_like(start_ns)
    ready_ns, latency_ns = (
        np.rint(np.nan_to_num(rows[key].to_numpy(float)) * _NS_PER_S).astype(np.int64)
        for key in ("ready_s", "latency_s")
    )
    latency_ns = np.clip(np.minimum(latency_ns, start_ns - ready_ns), 0, None)
    return np.where(latency_ns > 0, ready_ns, start_ns), latency_ns


def _lanes(pid: Ints, stream: list[Any], start_ns: Ints, end_ns: Ints) -> tuple[Ints, dict[tuple[int, int], str]]:
    """Assign tasks to lanes so that no two tasks in a lane overlap.

    Returns:
        The thread of each task, and the name of each (process, thread).
    """
    lane = np.zeros(len(pid), dtype=np.int64)
    free: dict[tuple[int, Any], list[tuple[int, int]]] = {}
    lanes_of: dict[tuple[int, Any], int] = {}
    # In order of start, each task takes the lane of its stream that is free first, or a new one.
    for task in np.lexsort((end_ns, start_ns)):
        group = (int(pid[task]), stream[task])
        lanes = free.setdefault(group, [])
        if lanes and lanes[0][0] <= start_ns[task]:
            lane[task] = heapq.heappop(lanes)[1]
        else:
            lane[task] = lanes_of[group] = lanes_of.get(group, -1) + 1
        heapq.heappush(lanes, (int(end_ns[task]), int(lane[task])))
    first: dict[tuple[int, Any], int] = {}
    threads: dict[tuple[int, int], str] = {}
    next_thread: dict[int, int] = {}
    # Lanes become threads: those of one stream stay together.
    for process, name in sorted(lanes_of, key=lambda group: (group[0], str(group[1]))):
        first[process, name] = start = next_thread.get(process, 0)
        for extra in range(lanes_of[process, name] + 1):
            threads[process, start + extra] = str(name) if extra == 0 else f"{name} ({extra + 1})"
        next_thread[process] = start + lanes_of[process, name] + 1
    lane += np.array([first[int(process), name] for process, name in zip(pid, stream, strict=True)], dtype=np.int64)
    return lane, threads


def _names(number: Mapping[str, int], threads: Mapping[tuple[int, int], str]) -> Iterator[Event]:
    """Yield the events that name and order processes and threads."""
    for process, pid in number.items():
        yield {"ph": "M", "name": "process_name", "pid": pid, "args": {"name": str(process)}}
        yield {"ph": "M", "name": "process_sort_index", "pid": pid, "args": {"sort_index": pid}}
    for (pid, tid), name in threads.items():
        yield {"ph": "M", "name": "thread_name", "pid": pid, "tid": tid, "args": {"name": name}}
        yield {"ph": "M", "name": "thread_sort_index", "pid": pid, "tid": tid, "args": {"sort_index": tid}}


def _tasks(rows: "pd.DataFrame", pid: Ints, lane: Ints, start_ns: Ints, end_ns: Ints) -> Iterator[Event]:
    """Yield one complete event for each task."""
    extra = [column for column in rows if column not in _COLUMNS]
    values = [rows[column].tolist() for column in extra]
    for at, (name, kind) in enumerate(zip(rows["name"], rows["kind"], strict=True)):
        yield {
            "ph": "X",
            "name": str(name),
            "cat": str(kind),
            "pid": int(pid[at]),
            "tid": int(lane[at]),
            "ts": float(start_ns[at] / _NS_PER_US),
            "dur": float((end_ns[at] - start_ns[at]) / _NS_PER_US),
            "args": {str(column): value[at] for column, value in zip(extra, values, strict=True)},
        }


def _waits(rows: "pd.DataFrame", pid: Ints, lane: Ints, begin_ns: Ints, latency_ns: Ints) -> Iterator[Event]:
    """Yield a complete event for each start-up latency."""
    names = rows["name"].tolist()
    for at in np.flatnonzero(latency_ns).tolist():
        yield {
            "ph": "X",
            "name": "start-up latency",
            "cat": "latency",
            "pid": int(pid[at]),
            "tid": int(lane[at]),
            "ts": float(begin_ns[at] / _NS_PER_US),
            "dur": float(latency_ns[at] / _NS_PER_US),
            "args": {"of": str(names[at])},
        }


def _arrows(
    dependencies: Sequence[tuple[int, int]] | Ints, pid: Ints, lane: Ints, start_ns: Ints, end_ns: Ints
) -> Iterator[Event]:
    """Yield the two flow events of each dependency."""
    for arrow, (before, after) in enumerate(dependencies):
        # Viewers attach an arrow to the task that covers its time, so it leaves just before the end.
        leaves_ns = max(start_ns[before], end_ns[before] - 1)
        for phase, row, time_ns in (("s", before, leaves_ns), ("f", after, start_ns[after])):
            event = {"ph": phase, "name": "after", "cat": "dependency", "id": arrow}
            event |= {"pid": int(pid[row]), "tid": int(lane[row]), "ts": float(time_ns / _NS_PER_US)}
            yield event | ({"bp": "e"} if phase == "f" else {})


def _counts(counters: Mapping[tuple[str, str], Counter], number: Mapping[str, int]) -> Iterator[Event]:
    """Yield one counter event for each change of a value."""
    for (process, name), (times_s, values) in counters.items():
        for time_s, value in zip(times_s, values, strict=True):
            time_us = round(time_s * _NS_PER_S) / _NS_PER_US
            yield {"ph": "C", "name": name, "pid": number[process], "ts": time_us, "args": {name: float(value)}}
