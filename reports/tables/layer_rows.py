"""Rows of the tables of layers: configurations, bytes and times, as pages show them."""

import re
from collections.abc import Hashable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from groundwork.array_types import Ints
from planner.layouts.configurations import LETTERS
from planner.plan.comparison import LayerResult
from reports.style.device_lists import compact_devices
from reports.style.units import byte_unit, time_unit

_READABLE = 40
"""Rows that a reader sees at once: tables of as many have nothing folded."""
_LONGEST = 512
"""Rows of the longest block that is looked for."""
_FEWEST_FOLDED = 3
"""A line in place of fewer rows than these saves too little."""


class RepeatedBlock(NamedTuple):
    """Like blocks of rows that follow one another."""

    first: int
    rows: int
    blocks: int
    """Number of blocks, at least 2."""

    @property
    def folded(self) -> slice:
        """Rows of all blocks but the first."""
        return slice(self.first + self.rows, self.first + self.rows * self.blocks)

    @property
    def words(self) -> str:
        """Words of the line that stands for all blocks but the first."""
        return f"{self.blocks - 1} more like the {f'{self.rows} rows' if self.rows > 1 else 'row'} above"


def repeated_blocks(rows: Sequence[tuple[str, Hashable]]) -> tuple[RepeatedBlock, ...]:
    """Return the repeated blocks of a table of more than 40 rows, in its order; none overlap.

    Rows repeat where they are alike and their names differ in one number, which is the same for all rows of the
    blocks: ``h.0.mlp`` and ``h.1.mlp``.  A block begins where the name up to this number does, so that it holds whole
    modules of the network.  At each row, from the first, the block is taken whose repetitions fold away most rows, and
    the shortest of those.

    Args:
        rows: For each row its name and what it shows besides; equal for rows that are alike.
    """
    if len(rows) <= _READABLE:
        return ()
    parts = [re.split(r"(\d+)", name) for name, _ in rows]
    numbers = np.full(
        (len(rows), max(map(len, parts)) // 2 or 1), "", dtype=object
    )  # in words, as they may be of any size
    begins = np.ones(numbers.shape, dtype=bool)
    codes, known = np.zeros(len(rows), dtype=np.int64), dict[Hashable, int]()
    for i, part in enumerate(parts):
        numbers[i, : len(part) // 2] = part[1::2]
        codes[i] = known.setdefault((*part[::2], rows[i][1]), len(known))
        for k in range(len(part) // 2) if i else ():
            begins[i, k] = parts[i - 1][: 2 * k + 2] != part[: 2 * k + 2]
    numbers = np.unique(numbers, return_inverse=True)[1].reshape(numbers.shape)
    most, length = np.zeros(len(rows), dtype=np.int64), np.zeros(len(rows), dtype=np.int64)
    for period in range(1, min(_LONGEST, len(rows) // 2) + 1):
        differ = numbers[:-period] != numbers[period:]
        number = np.where((codes[:-period] == codes[period:]) & (differ.sum(axis=1) == 1), differ.argmax(axis=1), -1)
        at = np.flatnonzero(number >= 0)
        at = at[begins[at, number[at]] & begins[at + period, number[at]]]
        folded = _run_lengths(number)[at] // period * period
        better = folded > most[at]
        most[at[better]], length[at[better]] = folded[better], period
    found, row = list[RepeatedBlock](), 0
    while row < len(rows):
        if most[row] < _FEWEST_FOLDED:
            row += 1
            continue
        found.append(RepeatedBlock(row, int(length[row]), int(most[row] // length[row]) + 1))
        row = found[-1].folded.stop
    return tuple(found)


def _run_lengths(values: Ints) -> Ints:
    """Return for each value how many from it on are equal."""
    ends = np.append(np.flatnonzero(np.diff(values)), len(values) - 1) + 1
    return np.asarray(ends[np.searchsorted(ends, np.arange(len(values)), side="right")] - np.arange(len(values)))


def layer_table(layers: Sequence[LayerResult]) -> dict[str, Any]:
    """Return the rows of the table of layers; all bars of time are scaled to the longest one.

    Of blocks that repeat in a long network the first has its rows; those of the others, which pages fold into one
    line, have the block as their ``run``.
    """
    keys = ("compute_s", "gradient_sync_s", "transfer_s")
    times = [getattr(layer, key) for layer in layers for key in keys]
    time, moved = time_unit(times), byte_unit([layer.moved_bytes for layer in layers])
    longest_s, most_bytes = max(times, default=0.0), max((layer.moved_bytes for layer in layers), default=0.0)
    rows: list[dict[str, Any]] = [
        {
            "layer": layer,
            "degrees": degrees_text(layer),
            "devices": compact_devices(layer.devices),
            "bars": [
                (getattr(layer, key), time.text(getattr(layer, key)), _share(getattr(layer, key), longest_s))
                for key in keys
            ]
            + [(layer.moved_bytes, moved.text(layer.moved_bytes), _share(layer.moved_bytes, most_bytes))],
            "gradient_sync": layer.gradient_sync.partition(", "),
            "run": None,
        }
        for layer in layers
    ]
    for block in repeated_blocks([(layer.name, _alike(layer)) for layer in layers]):
        for row in rows[block.folded]:
            row["run"] = block
    return {"time": time.name, "moved": moved.name, "rows": rows}


def degrees_text(layer: LayerResult) -> str:
    """Return how a layer is split in words."""
    return " × ".join(f"{dim} {degree}" for dim, degree in layer.degrees.items() if degree > 1) or "whole"


def degrees_letters(degrees: Mapping[str, int]) -> str:
    """Return how a layer is split with one letter for each dimension, as in ``n=2 c=4``."""
    return " ".join(f"{LETTERS[dim]}={degree}" for dim, degree in degrees.items() if degree > 1) or "whole"


def _alike(layer: LayerResult) -> tuple[object, ...]:
    """Return what a layer has in common with those at its place in like blocks.

    That is all but its name, times and channels: blocks of a densely connected network differ in channels.
    """
    sizes = layer.output.split(" x ")
    scheme = layer.gradient_sync.partition(", ")[0]
    return layer.kind, *sizes[:1], *sizes[2:], *layer.degrees.items(), layer.devices, scheme


def _share(value: float, largest: float) -> str:
    return f"{100 * value / largest:.1f}" if largest > 0 else "0"
