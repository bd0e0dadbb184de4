"""Compact lists of devices: ``0-31`` instead of 32 numbers."""

from collections.abc import Sequence
from functools import lru_cache

import numpy as np


def compact_devices(devices: Sequence[int]) -> str:
    """Return devices in their order as text, with runs of equal steps written as ranges.

    Part i of a layer lies on the i-th device, so the order is kept: packed devices give ``0-31``, devices spread over
    nodes ``0-12 by 4, 1-13 by 4``.
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
    return ", ".join(runs)


def _run_text(run: Sequence[int]) -> str:
    if len(run) == 1:
        return str(run[0])
    step = run[1] - run[0]
    return f"{run[0]}-{run[-1]}" + (f" by {step}" if step > 1 else "")
