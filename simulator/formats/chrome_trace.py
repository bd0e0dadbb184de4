"""Timelines as Chrome trace events, for Perfetto and chrome://tracing.

One process is a device or a node, one thread a serial resource.  Viewers drop events that overlap on
one thread, so a stream whose tasks overlap is drawn in as many lanes as it takes.  Times are whole
nanoseconds, written as the microseconds that the format asks for.

Source:
    "Trace Event Format", Google, 2016: complete (X), flow (s, f), counter (C) and metadata (M) events.
"""

import heapq
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from hwprofiles import ConfigError, Ints
from simulator.formats.whole_files import whole_file

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["check_trace", "write_trace"]

Event = dict[str, Any]
Counter = tuple[Sequence[float], Sequence[float]]

_COLUMNS = ("name", "kind", "process", "stream", "start_s", "end_s")
_NS_PER_S, _NS_PER_US = 1e9, 1e3


def write_trace(
    path: Path,
    rows: "pd.DataFrame",
    *,
    dependencies: Sequence[tuple[int, int]] | Ints = (),
    counters: Mapping[tuple[str, str], Counter] | None = None,
) -> None:
    """Write a timeline; an interruption leaves no partial file.

    Args:
        path: The JSON file.
        rows: One task a row: name, kind, process (device or link), stream (its lanes stay together),
            start_s, end_s; any other column is shown as an argument of the task.
        dependencies: Pairs (row before, row after), drawn as arrows.
        counters: For (process, counter) the times in seconds and the values from then on.

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
    lane, threads = _lanes(pid, rows["stream"].tolist(), start_ns, end_ns)
    encoder = msgspec.json.Encoder()
    with whole_file(path) as file:
        file.write(b'{"displayTimeUnit":"ms","traceEvents":[\n')
        separator = b""
        for events in (
            _names(number, threads),
            _tasks(rows, pid, lane, start_ns, end_ns),
            _arrows(dependencies, pid, lane, start_ns, end_ns),
            _counts(counters, number),
        ):
            for event in events:
                file.write(separator + encoder.encode(event))
                separator = b",\n"
        file.write(b"\n]}\n")


def _lanes(pid: Ints, stream: list[Any], start_ns: Ints, end_ns: Ints) -> tuple[Ints, dict[tuple[int, int], str]]:
    """Thread of each task, and the name of each (process, thread)."""
    lane = np.zeros(len(pid), dtype=np.int64)
    free: dict[tuple[int, Any], list[tuple[int, int]]] = {}
    lanes_of: dict[tuple[int, Any], int] = {}
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
    for process, name in sorted(lanes_of, key=lambda group: (group[0], str(group[1]))):
        first[process, name] = start = next_thread.get(process, 0)
        for extra in range(lanes_of[process, name] + 1):
            threads[process, start + extra] = str(name) if extra == 0 else f"{name} ({extra + 1})"
        next_thread[process] = start + lanes_of[process, name] + 1
    lane += np.array([first[int(process), name] for process, name in zip(pid, stream, strict=True)], dtype=np.int64)
    return lane, threads


def _names(number: Mapping[str, int], threads: Mapping[tuple[int, int], str]) -> Iterator[Event]:
    for process, pid in number.items():
        yield {"ph": "M", "name": "process_name", "pid": pid, "args": {"name": str(process)}}
        yield {"ph": "M", "name": "process_sort_index", "pid": pid, "args": {"sort_index": pid}}
    for (pid, tid), name in threads.items():
        yield {"ph": "M", "name": "thread_name", "pid": pid, "tid": tid, "args": {"name": name}}
        yield {"ph": "M", "name": "thread_sort_index", "pid": pid, "tid": tid, "args": {"sort_index": tid}}


def _tasks(rows: "pd.DataFrame", pid: Ints, lane: Ints, start_ns: Ints, end_ns: Ints) -> Iterator[Event]:
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


def _arrows(
    dependencies: Sequence[tuple[int, int]] | Ints, pid: Ints, lane: Ints, start_ns: Ints, end_ns: Ints
) -> Iterator[Event]:
    for arrow, (before, after) in enumerate(dependencies):
        # An arrow hangs on the task that covers its time, so it leaves just before the end.
        leaves_ns = max(start_ns[before], end_ns[before] - 1)
        for phase, row, time_ns in (("s", before, leaves_ns), ("f", after, start_ns[after])):
            event = {"ph": phase, "name": "after", "cat": "dependency", "id": arrow}
            event |= {"pid": int(pid[row]), "tid": int(lane[row]), "ts": float(time_ns / _NS_PER_US)}
            yield event | ({"bp": "e"} if phase == "f" else {})


def _counts(counters: Mapping[tuple[str, str], Counter], number: Mapping[str, int]) -> Iterator[Event]:
    for (process, name), (times_s, values) in counters.items():
        for time_s, value in zip(times_s, values, strict=True):
            time_us = round(time_s * _NS_PER_S) / _NS_PER_US
            yield {"ph": "C", "name": name, "pid": number[process], "ts": time_us, "args": {name: float(value)}}


def check_trace(path: Path) -> int:
    """Check what viewers demand of a trace, and return its number of tasks.

    Raises:
        ConfigError: Two tasks overlap on one thread, or a time is no whole number of nanoseconds.
    """
    threads: dict[tuple[int, int], list[tuple[int, int, str]]] = {}
    for event in msgspec.json.decode(Path(path).read_bytes())["traceEvents"]:
        times_us = [event[key] for key in ("ts", "dur") if key in event]
        times_ns = [round(time_us * _NS_PER_US) for time_us in times_us]
        if any(time_ns / _NS_PER_US != time_us for time_ns, time_us in zip(times_ns, times_us, strict=True)):
            raise ConfigError(f"times of {event['name']!r} must be whole nanoseconds, got {times_us} us")
        if event["ph"] == "X":
            row = (times_ns[0], times_ns[0] + times_ns[1], event["name"])
            threads.setdefault((event["pid"], event["tid"]), []).append(row)
    for thread, rows in threads.items():
        rows.sort()
        for before, after in pairwise(rows):
            if after[0] < before[1]:
                raise ConfigError(f"tasks on one thread must not overlap, got {before} and {after} on {thread}")
    return sum(len(rows) for rows in threads.values())
