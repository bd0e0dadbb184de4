"""Compact lists of devices: ``0-31`` instead of 32 numbers."""

from collections.abc import Sequence


def compact_devices(devices: Sequence[int]) -> str:
    """Return devices in their order as text, with runs of equal steps written as ranges.

    Part i of a layer lies on the i-th device, so the order is kept: packed devices give ``0-31``, devices spread over
    nodes ``0-12 by 4, 1-13 by 4``.
    """
    runs, i = [], 0
    while i < len(devices):
        length = _run_length(devices, i)
        runs.append(_run_text(devices[i : i + length]))
        i += length
    return ", ".join(runs)


def _run_length(devices: Sequence[int], start: int) -> int:
    """Return the length of the run of one positive step at ``start``; 1 if it has fewer than three devices."""
    step = devices[start + 1] - devices[start] if start + 1 < len(devices) else 0
    if step <= 0:
        return 1
    end = start + 1
    while end + 1 < len(devices) and devices[end + 1] - devices[end] == step:
        end += 1
    length = end - start + 1
    return length if length >= 3 or step == 1 else 1


def _run_text(run: Sequence[int]) -> str:
    if len(run) == 1:
        return str(run[0])
    step = run[1] - run[0]
    return f"{run[0]}-{run[-1]}" + (f" by {step}" if step > 1 else "")
