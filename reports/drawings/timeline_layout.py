"""Layout of a timeline: rows, lanes within a row, and compact columns for the page."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd

from hwprofiles import Ints
from reports.style import pack_array, pack_json

__all__ = ["TimelineRow", "assign_lanes", "pack_timeline", "side_by_side", "timeline_rows"]


def pack_timeline(timeline: pd.DataFrame, devices: Sequence[str], *, ids: bool = False) -> dict[str, Any]:
    """Pack every task of a timeline; nothing is merged or left out.

    Args:
        timeline: One row for each task, with the columns of ``StrategyResult.timeline``.
        devices: Names of the devices; an integer in the column ``device`` indexes them.
        ids: Whether to pack the column ``id`` too, for pages that join tasks with other data.

    Returns:
        ``count``, ``tick_s`` (unit of start and duration), and ``columns`` with packed arrays.  The columns ``names``,
        ``layers``, ``phases``, ``kinds`` and ``rows`` hold the words that integers in other columns refer to.
    """
    rows, row = timeline_rows(timeline, devices)
    order = np.lexsort((timeline["start_s"].to_numpy(dtype=np.float64), row))
    tasks, row = timeline.iloc[order], row[order]
    start_s, end_s = (tasks[key].to_numpy(dtype=np.float64) for key in ("start_s", "end_s"))
    tick_s = _tick(float(end_s.max(initial=0.0)))
    start, end = (np.rint(time_s / tick_s).astype(np.int64) for time_s in (start_s, end_s))
    lane, lanes = assign_lanes(row, start, end)
    numbers = {"start": start, "duration": end - start, "row": row, "lane": lane, "lanes": lanes}
    columns = {key: pack_array(values) for key, values in numbers.items()}
    columns["bytes"] = pack_array(np.nan_to_num(tasks["bytes"].to_numpy(dtype=np.float64)))
    if ids:
        columns["id"] = pack_array(tasks["id"].to_numpy())
    for key in ("name", "layer", "phase", "kind"):
        codes, words = pd.factorize(tasks[key].astype(object).where(tasks[key].notna(), "").astype(str))
        columns[key] = pack_array(codes)
        columns[f"{key}s"] = pack_json(list(words))
    columns["rows"] = pack_json([{"label": row.label, "device": row.device, "stream": row.stream} for row in rows])
    return {"count": len(tasks), "tick_s": tick_s, "columns": columns}


def side_by_side(
    simulated: pd.DataFrame, measured: pd.DataFrame, devices: Sequence[str]
) -> tuple[pd.DataFrame, list[str]]:
    """Join the simulated and the measured timeline of a program, with one row for each device and origin.

    Args:
        simulated: Simulated timeline.
        measured: Measured timeline of the same program.
        devices: Names of the devices.

    Returns:
        Tasks of both timelines whose times are known, and the names of the rows in the order of the devices, such as
        ``gpu0 simulated``, ``gpu0 measured``, ``gpu1 simulated``.
    """
    both = pd.concat([_named(each, devices) for each in (simulated, measured)], ignore_index=True)
    known = both[both["start_s"].notna() & both["end_s"].notna()]
    return known, [f"{name} {origin}" for name in devices for origin in ("simulated", "measured")]


def _named(timeline: pd.DataFrame, names: Sequence[str]) -> pd.DataFrame:
    """Return a timeline whose devices and collectives carry its origin, simulated or measured, in their names."""
    origin = str(timeline["origin"].iloc[0])
    label = [f"{name} {origin}" for name in names]
    streams = timeline["stream"].where(timeline["device"] >= 0, f"collective {origin}")
    devices = [label[device] if device >= 0 else "" for device in timeline["device"]]
    return timeline.assign(device=devices, stream=streams)


@dataclass(frozen=True, slots=True)
class TimelineRow:
    """One row of a timeline."""

    label: str
    device: str
    """Name of the device; empty for tasks that belong to no device."""
    stream: str
    order: tuple[int, bool, bool, str]

    @classmethod
    def of(cls, device: object, stream: object, devices: Sequence[str]) -> "TimelineRow":
        """Return the row of a stream: in the order of devices, computation first; tasks without device come last."""
        words = f"stream {stream}" if isinstance(stream, int | np.integer) else str(stream)
        if isinstance(device, int | np.integer):
            index = int(device)
            name = devices[index] if 0 <= index < len(devices) else ""
        else:
            name = str(device)
            index = devices.index(name) if name in devices else -1
        order = (
            index if index >= 0 else len(devices),
            words not in ("compute", "stream 0"),
            words.endswith(" measured"),
            words,
        )
        return cls(f"{name} {words}".strip() or "network", name, words or "network", order)


def timeline_rows(timeline: pd.DataFrame, devices: Sequence[str]) -> tuple[list[TimelineRow], Ints]:
    """Return the rows of a timeline: the streams of each device, then tasks that belong to no device.

    Args:
        timeline: One row for each task, with the columns ``device`` and ``stream``.
        devices: Names of the devices.

    Returns:
        Rows from top to bottom, and the row of every task, shape (T,).
    """
    keys = pd.MultiIndex.from_frame(timeline[["device", "stream"]].astype(object).fillna(""))
    codes, distinct = keys.factorize()
    rows = [TimelineRow.of(device, stream, devices) for device, stream in distinct]
    order = sorted(range(len(rows)), key=lambda i: rows[i].order)
    position = np.empty(len(rows), dtype=np.int64)
    position[order] = np.arange(len(rows))
    return [rows[i] for i in order], position[codes]


def assign_lanes(row: Ints, start: Ints, end: Ints) -> tuple[Ints, Ints]:
    """Divide the height of a row into lanes for the tasks that overlap in it.

    Three tasks of one row, of which the second overlaps both others, need two lanes:

        lane 0  [  1  ]  [  3  ]
        lane 1      [  2  ]

    Args:
        row: Row of every task, shape (T,), ascending.
        start: Start of every task in ticks, shape (T,), ascending within a row.
        end: End of every task in ticks, shape (T,).

    Returns:
        Lane of every task, and the number of lanes of the group of overlapping tasks that it belongs to.
    """
    lane, lanes = np.zeros(len(row), dtype=np.int64), np.ones(len(row), dtype=np.int64)
    if not len(row):
        return lane, lanes
    # A group ends where a task starts after all earlier tasks of its row have ended.  Rows are laid end to end on one
    # axis of time, so that a single running maximum finds the latest end in every row.
    shifted = end + row * (int(end.max()) + 1)
    latest = np.maximum.accumulate(shifted)
    fresh = np.r_[True, (row[1:] != row[:-1]) | (start[1:] + row[1:] * (int(end.max()) + 1) >= latest[:-1])]
    bounds = np.r_[np.flatnonzero(fresh), len(row)]
    for first, last in pairwise(bounds.tolist()):
        if last - first > 1:
            lane[first:last], lanes[first:last] = _group_lanes(start[first:last], end[first:last])
    return lane, lanes


def _group_lanes(start: Ints, end: Ints) -> tuple[list[int], int]:
    """Return the first free lane for each task in order of start, and the number of lanes."""
    free_at: list[int] = []
    lane = []
    for begins, ends in zip(start.tolist(), end.tolist(), strict=True):
        chosen = next((i for i, time in enumerate(free_at) if time <= begins), len(free_at))
        free_at[chosen : chosen + 1] = [ends]
        lane.append(chosen)
    return lane, len(free_at)


def _tick(end_s: float) -> float:
    """Return 1 ns, or the next power of ten of it with which the end still fits in 32 bits."""
    tick_s = 1e-9
    while end_s / tick_s >= 2**32 - 1:
        tick_s *= 10
    return tick_s
