"""Times at which every part of every layer computes, by the cell of layer, device and micro-batch."""

from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from groundwork.array_types import Floats, Ints
from groundwork.sparse_rows import row_owners
from planner.layouts.device_classes import MessageClasses
from planner.lowering.program import KINDS, Program


@dataclass(frozen=True, slots=True, eq=False)
class Moments:
    """Begin, two moments within, and end of one task a cell, shape (cells,) each; infinite where there is none.

    A task first assembles its inputs, then prepares them, then computes, in thirds of its time: what it releases on the
    way is gone before what it computes last is allocated.
    """

    begin: Floats
    first: Floats
    """End of the first third: inputs are assembled."""
    second: Floats
    """End of the second third: inputs are prepared."""
    end: Floats


def unit_of(program: Program, layer: Ints, device: Ints, micro_batch: Ints) -> Ints:
    """Return the cells of layers on devices: layer by layer, device by device, micro-batch by micro-batch.

    With two devices and two micro-batches, of which layer 0 takes the whole batch at once, and layer 2 has one part::

        layer 0    device 0: 0        device 1: 1
        layer 1    device 0: 2, 3     device 1: 4, 5
        layer 2                       device 1: 6, 7

    Args:
        program: The program.
        layer: Shape (K,).
        device: Shape (K,).
        micro_batch: Shape (K,); ignored for layers that take the whole batch.

    Returns:
        Shape (K,); the number of cells where a device holds no part of the layer.
    """
    micro_batching, places = program.micro_batching, _places_of(program)
    whole = (layer < micro_batching.first) | (micro_batching.parts == 1)
    key = layer * len(program.cluster.devices) + device
    at = np.searchsorted(places.key, key)
    first = np.where(places.key[at] == key, places.first[at], places.first[-1])
    return np.asarray(first + np.where(whole | (first == places.first[-1]), 0, micro_batch))


class _Places(NamedTuple):
    """First cell of each part."""

    key: Ints
    """Layer and device of each part as one number, in order; last one that is larger than any."""
    first: Ints
    """First cell of each part, and the number of cells, shape (parts + 1,)."""


@lru_cache(maxsize=4)
def _places_of(program: Program) -> _Places:
    """Return the first cell of each part of a program."""
    count, layers = len(program.cluster.devices), range(len(program.spaces))
    key = np.concatenate([i * count + np.sort(program.spaces[i].devices) for i in layers])
    cells = np.repeat(*np.array([(program.micro_batching.of(i), len(program.spaces[i].devices)) for i in layers]).T)
    return _Places(np.append(key, len(layers) * count), np.concatenate([[0], np.cumsum(cells)]))


def _units_like(program: Program) -> Ints | None:
    """Return the cell whose task stands for that of each, shape (cells,); None where each has its own."""
    if not isinstance(program.classes, MessageClasses):
        return None
    places = _places_of(program)
    part = row_owners(places.first)
    device = places.key[part] % len(program.cluster.devices)
    at = np.searchsorted(places.key, places.key[part] - device + program.classes.device_like[device])
    return np.append(places.first[at] + np.arange(len(part)) - places.first[part], len(part))


class UnitTimes:
    """Moments of the tasks of one iteration, by cell.

    Args:
        program: The program.
        start_s: Shape (T,): start of its tasks, in seconds or in any order of time.
        end_s: Shape (T,): their end.
    """

    def __init__(self, program: Program, start_s: Floats, end_s: Floats) -> None:
        self.program, self.start_s, self.end_s = program, start_s, end_s
        self.cells = int(_places_of(program).first[-1]) + 1
        """Number of cells, and one for what is nowhere."""
        self.unit = np.where(
            program.device >= 0, unit_of(program, program.layer, program.device, program.micro_batch), -1
        )
        """Cell of each task; -1 for collectives."""
        self._like = _units_like(program)
        kinds = {name: program.kind == number for number, name in enumerate(KINDS)}
        self.forward = tuple(
            self._moments(np.flatnonzero(kinds["forward"] & (program.recomputed == recomputed)))
            for recomputed in (False, True)
        )
        """Forward tasks: the first time and, where the layer is recomputed, the second time."""
        self.passes = range(2 if program.recomputed.any() else 1)
        """Indices into ``forward`` of those that there are."""
        self.activation = self._moments(np.flatnonzero(kinds["activation_gradient"]))
        """Activation gradients."""
        self.weight = self._moments(np.flatnonzero(kinds["weight_gradient"]))
        """Weight gradients."""
        # Cells without one of the two tasks have an infinite begin there, so the other one is taken.
        earlier = self.activation.begin <= self.weight.begin
        a, w = self.activation, self.weight
        self.backward = Moments(
            np.where(earlier, a.begin, w.begin),
            np.where(earlier, a.first, w.first),
            np.where(earlier, a.second, w.second),
            np.maximum(np.where(np.isfinite(a.end), a.end, -np.inf), np.where(np.isfinite(w.end), w.end, -np.inf)),
        )
        """First backward task of a cell, but the end of its last one; minus infinity where a cell has none."""
        self.kept_until = tuple(np.maximum(moments.end, self.backward.end) for moments in self.forward)
        """End of what a forward task keeps for the backward pass, by cell, for both forward tasks."""

    def _moments(self, tasks: Ints) -> Moments:
        """Return the moments of some tasks, at most one a cell."""
        begin, end = np.full(self.cells, np.inf), np.full(self.cells, np.inf)
        # Each cell has one task at most: nothing is overwritten.
        begin[self.unit[tasks]], end[self.unit[tasks]] = self.start_s[tasks], self.end_s[tasks]
        if self._like is not None:
            begin, end = begin[self._like], end[self._like]
        with np.errstate(invalid="ignore"):  # infinity less infinity, where there is no task
            third = (end - begin) / 3
            return Moments(
                begin,
                np.where(np.isfinite(begin), begin + third, np.inf),
                np.where(np.isfinite(begin), end - third, np.inf),
                end,
            )
