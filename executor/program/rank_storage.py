"""Divided storage on a rank: units of parameters of which it keeps a shard, their gathers, and sums of their gradients.

A unit is one row of elements: the slices that the rank computes with, layer by layer.  Three devices divide ten::

    parameters    weight of conv 0 1 2 3 4 5    bias of conv 6 7    bias of fc 8 9
    shards        device 0: 0 1 2               device 1: 3 4 5     device 2: 6 7 8 9
"""

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise

import numpy as np

from executor.program.rank_parts import RankParts
from executor.runtime.boxes import Box
from groundwork.array_types import Bools
from planner.layouts.configurations import part_bounds
from planner.layouts.storage_units import storage_units
from planner.lowering.program import KINDS, Program

_GATHER = KINDS.index("gather")

ParameterKey = tuple[int, str]
"""A layer and the name of one of its parameters."""
Span = tuple[int, int]
"""First element of a unit, and the one behind the last."""


@dataclass(frozen=True, slots=True)
class UnitCollective:
    """A collective of a unit's parameters or gradients."""

    kind: str
    """``all-gather``, ``reduce-scatter`` or ``all-reduce``."""
    devices: tuple[int, ...]
    """In the order of their shards."""
    tasks: tuple[int, ...]
    """Tasks of the program that it is."""


@dataclass(frozen=True, slots=True)
class StorageUnit:
    """Layers whose parameters are gathered, and whose gradients are summed, together."""

    layers: tuple[int, ...]
    places: Mapping[ParameterKey, Span]
    """Elements of the slice of each parameter that the rank computes with."""
    shapes: Mapping[ParameterKey, tuple[int, ...]]
    """Sizes of these slices."""
    shards: tuple[Span, ...]
    """Elements that each device keeps, in the order of ``UnitCollective.devices``."""
    own: Span
    """Elements that the rank keeps."""
    sums: tuple[tuple[UnitCollective, ...], ...]
    """Collectives that sum its gradients, one after another, for each time that they do so in an iteration."""

    @property
    def elements(self) -> int:
        """Number of elements of all parameters."""
        return self.shards[-1][1]

    def piece(self, key: ParameterKey) -> Span:
        """Return the elements of a parameter's slice that the rank keeps, counted from the first of the slice."""
        low, high = self.places[key]
        first = min(max(self.own[0], low), high)
        return first - low, max(min(self.own[1], high), first) - low


@dataclass(frozen=True, slots=True)
class Gather:
    """A gather of a unit's parameters."""

    unit: int
    """Index of the unit in ``RankStorage.units``."""
    collective: UnitCollective
    phase: int
    """Group of tasks after which it begins."""


@dataclass(frozen=True)
class RankStorage:
    """The units of which a rank keeps a shard; none where replicas keep all."""

    program: Program
    rank: int
    parts: RankParts

    @cached_property
    def units(self) -> tuple[StorageUnit, ...]:
        """Units in the order in which their gradients are summed."""
        sums: dict[tuple[int, ...], list[tuple[UnitCollective, ...]]] = defaultdict(list)
        if self.program.conditions.storage.divides:
            for (layers, *_), row in self._collectives(self.program.syncs_gradients).items():
                sums[layers].append(tuple(row))
        return tuple(self._unit(layers, tuple(rows)) for layers, rows in sums.items())

    @cached_property
    def unit_of(self) -> dict[int, int]:
        """Index of a layer's unit; missing where no replicas divide its parameters."""
        return {layer: index for index, unit in enumerate(self.units) for layer in unit.layers}

    @cached_property
    def gathers(self) -> tuple[Gather, ...]:
        """Gathers of parameters, in the order in which all ranks begin them.

        One begins when all is done that it waits for, and where parameters are divided, not before the one before is to
        be used: then no more is gathered at once than the unit that computes and the next one.
        """
        program, gathers, before = self.program, list[Gather](), -1
        for (layers, *_), row in self._collectives(program.kind == _GATHER).items():
            (collective,) = row
            first = collective.tasks[0]
            after = program.after[program.after_start[first] : program.after_start[first + 1]]
            phase = int(max(program.group[after].max(initial=-1), before))
            gathers.append(Gather(self.unit_of[layers[0]], collective, phase))
            before = int(program.group[first]) if self.divides_parameters else before
        return tuple(gathers)

    @property
    def divides_parameters(self) -> bool:
        """True if the rank keeps a shard of its parameters between their uses."""
        return self.program.conditions.storage.zero > 2

    @property
    def divides_gradients(self) -> bool:
        """True if the rank keeps a shard of the gradients once they are summed."""
        return self.program.conditions.storage.zero > 1

    @cached_property
    def _in_no_block(self) -> frozenset[int]:
        """Layers of the unit that stays gathered."""
        return frozenset(storage_units(self.program.graph, whole=False)[0]) if self.divides_parameters else frozenset()

    def keeps_gradients(self, unit: StorageUnit) -> bool:
        """Return whether the gradients of a unit are whole all the time, as those of what lies in no block are."""
        return not self.divides_gradients or not self._in_no_block.isdisjoint(unit.layers)

    @cached_property
    def awaited(self) -> dict[int, list[int]]:
        """Gathers, as indices into ``gathers``, that tasks of the rank wait for, of this iteration or of the last."""
        program, found = self.program, defaultdict[int, list[int]](list)
        index = {task: k for k, gather in enumerate(self.gathers) for task in gather.collective.tasks}
        pairs = np.concatenate([np.column_stack([program.waiting, program.after]), program.carried])
        mine = (program.device[pairs[:, 0]] == self.rank) & np.isin(pairs[:, 1], list(index))
        for task, gathered in pairs[mine].tolist():
            if index[gathered] not in found[task]:
                found[task].append(index[gathered])
        return dict(found)

    def _collectives(self, tasks: Bools) -> dict[tuple[tuple[int, ...], int, bool], list[UnitCollective]]:
        """Return the collectives of some tasks that the rank takes part in, by layers, micro-batch and pass."""
        program = self.program
        rows: dict[tuple[tuple[int, ...], int, bool], list[UnitCollective]] = defaultdict(list)
        for task in np.flatnonzero(tasks).tolist():
            each = program.collectives.get(task)
            if each is None or self.rank not in each.devices:
                continue
            row = rows[program.layers_of(task), int(program.micro_batch[task]), bool(program.backward[task])]
            if row and (row[-1].kind, row[-1].devices) == (
                each.kind,
                each.devices,
            ):  # a further round of the same collective
                row[-1] = replace(row[-1], tasks=(*row[-1].tasks, task))
            else:
                row.append(UnitCollective(each.kind, each.devices, (task,)))
        return rows

    def _unit(self, layers: tuple[int, ...], sums: tuple[tuple[UnitCollective, ...], ...]) -> StorageUnit:
        """Return a unit with the places of its parameters."""
        shapes: dict[ParameterKey, tuple[int, ...]] = {}
        for layer in layers:
            boxes = self.parts.parameters(layer)
            trained = [each.name for each in self.program.graph.layers[layer].parameters if each.elements]
            shapes |= {(layer, name): boxes[name].shape for name in trained}
        bounds = np.cumsum([0, *map(math.prod, shapes.values())]).tolist()
        devices = sums[0][0].devices
        shards = tuple(pairwise(part_bounds(bounds[-1], len(devices)).tolist()))
        return StorageUnit(
            layers=layers,
            places=dict(zip(shapes, pairwise(bounds), strict=True)),
            shapes=shapes,
            shards=shards,
            own=shards[devices.index(self.rank)],
            sums=sums,
        )


def boxes_of(shape: Sequence[int], interval: Span) -> Iterator[tuple[Box, Span]]:
    """Yield boxes that together hold an interval of a tensor's elements, each with the elements that it holds.

    Elements 5 to 13 of a tensor of sizes (4, 4) are the boxes ``[1:2, 1:4]``, ``[2:3, 0:4]`` and ``[3:4, 0:2]``.

    Args:
        shape: Sizes of the tensor.
        interval: Elements, in C order.
    """
    low, high = interval
    if low >= high:
        return
    if not shape:
        yield Box((), ()), interval
        return
    row = math.prod(shape[1:])
    first, last = -(-low // row), high // row  # whole rows
    if first < last:
        pieces = [(low, first * row), (first * row, last * row), (last * row, high)]
    else:
        pieces = [(low, min(first * row, high)), (min(first * row, high), high)]
    for begin, end in pieces:
        if begin == end:
            continue
        if begin % row == 0 and end % row == 0:
            inside = (0,) * (len(shape) - 1), tuple(shape[1:])
            yield Box((begin // row, *inside[0]), (end // row, *inside[1])), (begin, end)
            continue
        place = begin // row
        for box, (a, b) in boxes_of(shape[1:], (begin - place * row, end - place * row)):
            yield Box((place, *box.low), (place + 1, *box.high)), (a + place * row, b + place * row)
