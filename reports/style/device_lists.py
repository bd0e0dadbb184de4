"""Compact lists of devices: ``0-31`` instead of 32 numbers."""

from collections.abc import Sequence
from functools import lru_cache

import numpy as np

_MOST_RUNS = 2
"""Runs that read better than one range with several steps."""


def compact_devices(devices: Sequence[int]) -> str:
    """Return devices in their order as text, with runs of equal steps written as ranges.

    Part i of a layer lies on the i-th device, so the order is kept: packed devices give ``0-31``, devices spread over
    nodes ``0-12 by 4, 1-13 by 4``.  Devices of a mesh whose axes have another order than its parts would be many short
    runs; they are counted by all of their steps, from the first to the last device: ``0-7 by 4, then 1`` are devices
    0, 4, 1, 5, 2, 6, 3 and 7.
    """
    return _compact(tuple(devices))


@lru_cache(maxsize=64)
def _compact(devices: tuple[int, ...]) -> str:
    """Return the text of devices: all layers of a network may lie on the same thousands."""
    steps = np.diff(np.array(devices, dtype=np.int64))
    turns = np.flatnonzero(np.diff(steps)) + 1  # places of steps that differ from the one before
    runs, i = [], 0
    while i < len(devices):
        turn = int(np.searchsorted(turns, i, side="right"))
        end = int(turns[turn]) if turn < len(turns) else len(devices) - 1
        step = int(steps[i]) if i < len(steps) else 0
        length = end - i + 1 if step > 0 else 1
        length = length if length >= 3 or step == 1 else 1  # fewer than three with a gap are no run
        runs.append(_run_text(devices[i : i + length]))
        i += length
    return (_nested_text(devices) if len(runs) > _MOST_RUNS else "") or ", ".join(runs)


def _nested_text(devices: tuple[int, ...]) -> str:
    """Return devices that are counted by nested steps as one range, or nothing where they are not.

    Each step, from the smallest on, is larger than all that the smaller ones count, so the ends tell how often each
    of them is made.
    """
    left, counts = np.array(devices, dtype=np.int64), dict[int, int]()  # how far each step reaches
    while len(left) > 1:
        step = int(left[1] - left[0])
        turns = np.flatnonzero(np.diff(left) != step)
        length = int(turns[0]) + 1 if len(turns) else len(left)
        if step <= 0 or step in counts or len(left) % length:
            return ""
        blocks = left.reshape(-1, length)
        if (blocks - blocks[:, :1] != blocks[0] - blocks[0, 0]).any():
            return ""
        counts[step], left = step * (length - 1), blocks[:, 0]
    counted = 0
    for step, reach in sorted(counts.items()):
        if step <= counted:
            return ""
        counted += reach
    return f"{devices[0]}-{devices[-1]} by {', then '.join(map(str, counts))}"


def _run_text(run: Sequence[int]) -> str:
    if len(run) == 1:
        return str(run[0])
    step = run[1] - run[0]
    return f"{run[0]}-{run[-1]}" + (f" by {step}" if step > 1 else "")
