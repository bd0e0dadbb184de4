"""Compact columns of a timeline for a page: tasks, the rows that show them, and devices that look alike."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from groundwork.array_types import Floats, Ints
from reports.drawings.timeline_layout import assign_lanes
from reports.style.packing import pack_array, pack_json, pack_signed, pack_steps

_COMMUNICATION = ("transfer", "gather", "collective", "coordinate", "push", "fetch", "send", "receive")
"""Kinds that are drawn in the row of communication of every device that takes part."""
_TALK = "communication"
"""Row of a device in which these are drawn."""
_FIRST = ("compute", "coding")
"""Rows of a device in order; others follow, communication comes last."""
Words = tuple[Ints, list[str]]
"""Codes of a column, and the words that they stand for."""
_NUMBER = re.compile(r"\[(\d{1,9})\]")
_SAME = 1e-6
"""Largest difference of the times of equal devices, as a share of the timeline's length."""


def pack_timeline(timeline: pd.DataFrame, devices: Sequence[str], *, ids: bool = False) -> dict[str, Any]:
    """Pack every task of a timeline; nothing is merged or left out.

    Args:
        timeline: One row for each task, with the columns of ``StrategyResult.timeline``; those of waiting and
            ``peer`` may be missing.  A column ``members`` holds the devices of collectives (``with_members``).
        devices: Names of the devices, which the column ``device`` indexes.
        ids: Whether to pack the column ``id`` too, for pages that join tasks with other data.

    Returns:
        ``count``, ``tick_s`` (unit of all times), and ``columns`` with packed arrays.  The columns ``names``,
        ``layers``, ``phases``, ``kinds``, ``devices`` and ``rows`` hold the words that integers in other columns refer
        to; ``[#]`` in a name stands for its ``part``, ``(@)`` for its devices, ``origins`` times as many as there are.
        A row holds ``row_count`` entries, each with its task (``item``) and lane; a transfer has an entry in the
        row of communication of both its devices.  ``alike`` names for each device the first one that looks the same.
    """
    # By device, so that the columns of equal devices repeat each other and compress well; tasks without one come last.
    device = timeline["device"].where(timeline["device"] >= 0, len(devices)).to_numpy()
    tasks = timeline.iloc[np.lexsort([timeline["start_s"].to_numpy(), timeline["kind"].to_numpy(), device])]
    tick_s = _tick(float(tasks["end_s"].max()) if len(tasks) else 0.0)
    numbers, (texts, part) = _numbers(tasks, tick_s), _words(tasks)
    rows, columns = _rows(tasks, devices, numbers, texts)
    packed = {"item": pack_steps(columns.pop("item")), "before": pack_signed(numbers.pop("before"))}
    packed |= {key: pack_array(values) for key, values in (numbers | columns).items()}
    packed["part"] = pack_array(part)
    packed["bytes"] = pack_array(np.nan_to_num(tasks["bytes"].to_numpy(dtype=np.float64)))
    if ids:
        packed["id"] = pack_steps(tasks["id"].to_numpy())
    for key, (codes, words) in texts.items():
        packed |= {key: pack_array(codes), f"{key}s": pack_json(words)}
    return {
        "count": len(tasks),
        "tick_s": tick_s,
        "origins": int(max(timeline["origin"].nunique(), 1)),
        "columns": packed | {"devices": pack_json(list(devices)), "rows": pack_json(rows)},
    }


def _numbers(tasks: pd.DataFrame, tick_s: float) -> dict[str, Ints]:
    """Return times in ticks; devices, from 1 on; and the task that each one waited for."""
    start, end = (
        np.rint(tasks[key].to_numpy(dtype=np.float64) / tick_s).astype(np.int64) for key in ("start_s", "end_s")
    )
    start_s = tasks["start_s"].to_numpy(dtype=np.float64)
    ready_s = np.fmin(_column(tasks, "ready_s", np.nan), start_s)
    lead = np.rint((start_s - np.where(np.isnan(ready_s), start_s, ready_s)) / tick_s).astype(np.int64)
    latency = np.rint(np.nan_to_num(_column(tasks, "latency_s", 0.0)) / tick_s).astype(np.int64)
    return {
        "start": start,
        "duration": end - start,
        "lead": lead,
        "latency": np.minimum(latency, lead),
        "device": _column(tasks, "device", -1).astype(np.int64) + 1,
        "peer": _column(tasks, "peer", -1).astype(np.int64) + 1,
        "before": _before(tasks),
    }


def _column(tasks: pd.DataFrame, key: str, otherwise: float) -> np.ndarray[Any, Any]:
    return tasks[key].to_numpy() if key in tasks else np.full(len(tasks), otherwise)


def _before(tasks: pd.DataFrame) -> Ints:
    """Return how far before each task the one is that it waited for, of the same origin; 0 for none."""
    cause = _column(tasks, "waited_for", -1).astype(np.int64)
    if not (cause >= 0).any():
        return np.zeros(len(tasks), dtype=np.int64)
    tasks_of = pd.MultiIndex.from_arrays([tasks["origin"], tasks["id"]])
    found = tasks_of.get_indexer(pd.MultiIndex.from_arrays([tasks["origin"], cause]))
    at = np.arange(len(tasks))
    return at - np.where(found >= 0, found, at)


def _words(tasks: pd.DataFrame) -> tuple[dict[str, Words], Ints]:
    """Return codes and words of the columns that hold words, and the numbers that were taken out of names.

    Names of a layer's parts differ in one number, and those of transfers in their devices, which are packed already:
    ``fc1 forward [3]`` becomes ``fc1 forward [#]`` and 3, ``fc1 to fc2 (0 to 1)`` becomes ``fc1 to fc2 (@)``.
    """
    part, names = np.zeros(len(tasks), dtype=np.int64), tasks["name"].astype(str).tolist()
    origins = max(tasks["origin"].nunique(), 1)
    ends = zip(*((_column(tasks, key, -1) // origins).tolist() for key in ("device", "peer")), strict=True)
    for at, (name, (a, b)) in enumerate(zip(names, ends, strict=True)):
        if "[" in name and (number := _NUMBER.search(name)):
            part[at] = int(number[1])
            names[at] = name[: number.start()] + "[#]" + name[number.end() :]
        elif a >= 0 and b >= 0:
            names[at] = name.replace(f"({a} to {b})", "(@)")
    found = {}
    for key in ("name", "layer", "phase", "kind"):
        column = pd.Series(names) if key == "name" else tasks[key]
        codes, words = pd.factorize(column.astype(object).where(column.notna(), "").astype(str))
        found[key] = np.asarray(codes, dtype=np.int64), list(words)
    return found, part


def _rows(
    tasks: pd.DataFrame, devices: Sequence[str], numbers: Mapping[str, Ints], texts: Mapping[str, Words]
) -> tuple[list[dict[str, Any]], dict[str, Ints]]:
    """Return the rows from top to bottom, and the columns of their entries and of devices alike."""
    device, (part, words), item = _entries(tasks, numbers, texts["kind"])
    parts = sorted(words, key=lambda word: (word == _TALK, *(word != each for each in _FIRST), word))
    rank = np.array([parts.index(word) for word in words], dtype=np.int64)[part]
    place = np.where(device >= 0, device, len(devices))  # tasks without device come last
    begin, end = numbers["start"] - numbers["lead"], numbers["start"] + numbers["duration"]
    order = np.lexsort((begin[item], rank, place))
    item, place, rank = item[order], place[order], rank[order]
    keys, row = np.unique(place * max(len(parts), 1) + rank, return_inverse=True)
    lane, lanes = assign_lanes(row, begin[item], end[item])
    columns = {"row_count": np.bincount(row, minlength=len(keys)), "item": item, "lane": lane, "lanes": lanes}
    columns["alike"] = _alike(place, rank, item, numbers, texts, len(devices))
    return [_row(int(key) // len(parts), parts[int(key) % len(parts)], devices) for key in keys], columns


def _row(device: int, part: str, devices: Sequence[str]) -> dict[str, Any]:
    """Return a row: its label, its device (-1 for none) and what it shows of it."""
    if device == len(devices):
        return {"label": part, "device": -1, "stream": part}
    return {"label": f"{devices[device]} {part}", "device": device, "stream": part}


def _entries(tasks: pd.DataFrame, numbers: Mapping[str, Ints], kinds: Words) -> tuple[Ints, Words, Ints]:
    """Return device (-1 for none), part of a device, and task of every entry of a row, in order of tasks."""
    sender, receiver = numbers["device"] - 1, numbers["peer"] - 1
    groups = tasks["members"].tolist() if "members" in tasks else [()] * len(tasks)
    talks = np.isin(kinds[0], [code for code, word in enumerate(kinds[1]) if word in _COMMUNICATION])
    streams, words = pd.factorize(tasks["stream"].astype(object).where(tasks["stream"].notna(), ""))
    names = [f"stream {each}" if isinstance(each, int) else str(each) for each in words]
    alone = np.flatnonzero(~talks)
    joined = np.array([bool(each) for each in groups], dtype=bool)
    # most messages have two ends and no other members: one entry in the row of each
    pairs = talks & (sender >= 0) & (receiver >= 0) & (sender != receiver) & ~joined
    two = np.flatnonzero(pairs)
    low, high = np.minimum(sender[two], receiver[two]), np.maximum(sender[two], receiver[two])
    others: list[tuple[int, str, int]] = []
    for at in np.flatnonzero(talks & ~pairs).tolist():
        places = {int(each) for each in (sender[at], receiver[at], *groups[at]) if each >= 0}
        silent = [(-1, names[streams[at]] or "network", at)]
        others += [(place, _TALK, at) for place in sorted(places)] or silent
    known = sorted({_TALK} | {names[code] for code in np.unique(streams[alone])} | {part for _, part, _ in others})
    code_of = {word: code for code, word in enumerate(known)}
    device = np.concatenate([sender[alone], low, high, [place for place, _, _ in others]]).astype(np.int64)
    part = np.concatenate(
        [
            np.array([code_of.get(name, -1) for name in names], dtype=np.int64)[streams[alone]],
            np.full(2 * len(two), code_of[_TALK]),
            np.array([code_of[part] for _, part, _ in others], dtype=np.int64),
        ]
    )
    item = np.concatenate([alone, two, two, [at for _, _, at in others]]).astype(np.int64)
    order = np.argsort(item, kind="stable")
    return device[order], (part[order], known), item[order]


def _alike(
    place: Ints, rank: Ints, item: Ints, numbers: Mapping[str, Ints], texts: Mapping[str, Words], devices: int
) -> Ints:
    """Return for each device the first one with the same tasks at the same times, whatever their partners are."""
    mine = place < devices
    item = item[mine]
    what = np.stack([rank[mine], *(texts[key][0][item] for key in ("kind", "layer", "phase"))], axis=1)
    code = np.unique(what, axis=0, return_inverse=True)[1].reshape(-1)
    values = np.stack([numbers[key][item] for key in ("start", "duration", "lead")], axis=1).astype(np.float64)
    longest = float((numbers["start"] + numbers["duration"]).max(initial=0))
    return alike_owners(place[mine], code, values, np.full(3, max(2.0, _SAME * longest)), devices)


def _tick(end_s: float) -> float:
    """Return 1 ns, or the next power of ten of it with which the end still fits in 32 bits."""
    tick_s = 1e-9
    while end_s / tick_s >= 2**32 - 1:
        tick_s *= 10
    return tick_s


def alike_owners(owner: Ints, code: Ints, values: Floats, slack: Floats, count: int) -> Ints:
    """Return for each owner the first owner that has the same entries.

    Entries are the same where their codes are, and no value differs by more than its slack: times of equal ranks differ
    by the rounding of floating-point numbers.

    Args:
        owner: Owner of each entry, shape (E,), from 0 to ``count`` - 1.
        code: What an entry is, shape (E,).
        values: Numbers of each entry, such as start and duration, shape (E, V).
        slack: Largest difference of each number, shape (V,).
        count: Number of owners.

    Returns:
        First owner alike, shape (count,); owners without entries are alike.
    """
    order = np.lexsort((*values.T[::-1], code, owner))
    bounds = np.searchsorted(owner[order], np.arange(count + 1))
    sums = np.bincount(owner, values[:, 0], minlength=count)
    code, values = code[order], values[order]
    first, known = np.arange(count), dict[bytes, list[int]]()
    empty = np.flatnonzero(np.diff(bounds) == 0)
    first[empty] = empty[:1]
    for i in np.flatnonzero(np.diff(bounds)).tolist():
        rows = slice(bounds[i], bounds[i + 1])
        others = known.setdefault(code[rows].tobytes(), [])
        near = np.abs(sums[others] - sums[i]) <= slack[0] * max(rows.stop - rows.start, 1)
        for other in np.array(others, dtype=np.int64)[near].tolist():
            theirs = values[bounds[other] : bounds[other + 1]]
            if (np.abs(values[rows] - theirs) <= slack).all():
                first[i] = other
                break
        else:
            others.append(i)
    return first
