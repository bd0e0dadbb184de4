"""Layout of a timeline: its rows, lanes within a row, simulated rows above measured ones."""

from collections.abc import Mapping, Sequence
from heapq import heappop, heappush
from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd

from groundwork.array_types import Ints


def with_members(timeline: pd.DataFrame, collective_devices: Mapping[int, Sequence[int]]) -> pd.DataFrame:
    """Return a timeline with a column ``members``: the devices of each collective, nothing for other tasks."""
    members: list[Any] = [tuple(collective_devices.get(task, ())) for task in timeline["id"].tolist()]
    return timeline.assign(members=members)


def side_by_side(
    simulated: pd.DataFrame, measured: pd.DataFrame, devices: Sequence[str]
) -> tuple[pd.DataFrame, list[str]]:
    """Join the simulated and the measured timeline of a program, with rows for each device and origin.

    Returns:
        Tasks of both timelines whose times are known, and the names that their devices index: those of ``devices`` in
        order, each once per origin, such as ``gpu0 simulated``, ``gpu0 measured``, ``gpu1 simulated``.
    """
    both = pd.concat([_doubled(each, at) for at, each in enumerate((simulated, measured))], ignore_index=True)
    known = both[both["start_s"].notna() & both["end_s"].notna()]
    return known, [f"{name} {origin}" for name in devices for origin in ("simulated", "measured")]


def _doubled(timeline: pd.DataFrame, at: int) -> pd.DataFrame:
    """Return a timeline with two devices for each one, the first for what is simulated, and such streams."""
    origin = str(timeline["origin"].iloc[0])
    columns: dict[str, Any] = {
        key: np.where(timeline[key] >= 0, 2 * timeline[key] + at, -1) for key in ("device", "peer") if key in timeline
    }
    if "members" in timeline:
        columns["members"] = [tuple(2 * device + at for device in group) for group in timeline["members"]]
    streams = timeline["stream"].where(timeline["device"] >= 0, timeline["stream"] + f" {origin}")
    return timeline.assign(stream=streams, **columns)


def timeline_rows(timeline: pd.DataFrame, devices: Sequence[str]) -> tuple[list[str], Ints]:
    """Return the rows of a timeline: the streams of each device, computation first, then tasks without a device.

    Returns:
        Labels of the rows from top to bottom, and the row of every task, shape (T,).
    """
    keys = pd.MultiIndex.from_frame(timeline[["device", "stream"]].astype(object).fillna(""))
    codes, distinct = keys.factorize()
    rows = list[tuple[int, bool, str, str]]()
    for device, stream in distinct:
        words = f"stream {stream}" if isinstance(stream, int | np.integer) else str(stream)
        name, place = (devices[device], int(device)) if device >= 0 else ("", len(devices))
        rows.append((place, words not in ("compute", "stream 0"), words, f"{name} {words}".strip() or "network"))
    order = sorted(range(len(rows)), key=rows.__getitem__)
    position = np.empty(len(rows), dtype=np.int64)
    position[order] = np.arange(len(rows))
    return [rows[i][-1] for i in order], position[codes]


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
    lane, count = list[int](), 0
    free, taken = list[int](), list[tuple[int, int]]()  # heaps: free lanes, and ends with the lanes taken until then
    for begins, ends in zip(start.tolist(), end.tolist(), strict=True):
        while taken and taken[0][0] <= begins:
            heappush(free, heappop(taken)[1])
        if not free:
            heappush(free, count)
            count += 1
        lane.append(heappop(free))
        heappush(taken, (ends, lane[-1]))
    return lane, count
