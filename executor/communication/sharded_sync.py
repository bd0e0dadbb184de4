"""Gradients of divided storage: summed into the shards that replicas keep, unit by unit, once they are computed."""

from collections.abc import Mapping, Sequence
from functools import partial

import torch
from torch import Tensor
from typing_extensions import override

from executor.communication.gradient_sync import GradientSync, views_of
from executor.communication.shard_collectives import ShardCollectives
from executor.program.rank_program import RankProgram
from executor.program.recorder import Recorder
from executor.runtime.devices import ComputeDevice, Handle, torch_type
from executor.runtime.run_options import RunOptions


class ShardedSync(GradientSync):
    """Sums the gradients of a unit into shards as soon as those of all its layers are computed.

    Where gradients are divided they are whole while their unit goes back, and until the next but one does; those of
    what lies in no block all the time.  Shards of the sums lie in memory from a unit's first gradient to its last
    update.  Arguments as for ``GradientSync``.
    """

    def __init__(self, view: RankProgram, device: ComputeDevice, recorder: Recorder, options: RunOptions) -> None:
        super().__init__(view, device, recorder, options)
        program, self._units = view.program, view.storage.units
        self._carrier = self._collectives = ShardCollectives(
            view, device, recorder, "gradients", program.syncs_gradients
        )
        self._lanes.append(device.lane("gradients"))
        self._unit_of = view.storage.unit_of
        self._whole: dict[int, Tensor] = {}
        """Buffers in which gradients are whole now, by unit."""
        self._kept = {k for k, unit in enumerate(self._units) if view.storage.keeps_gradients(unit)}
        """Units whose gradients are whole all the time."""
        self._divides, self._kept_type = view.storage.divides_gradients, torch_type(program.types.accumulation)
        self._shards: dict[int, Tensor] = {}
        """Sums that the rank keeps now, by unit, where gradients are divided."""
        self._not_updated = [set(unit.layers) for unit in self._units]
        """Layers of each unit whose updates are still to come."""
        self._most_bytes = 0
        for index in sorted(self._kept):
            self._allocate_unit(index)
        self._missing = [len(unit.layers) for unit in self._units]
        """Number of each unit's layers whose gradients of the next sum are not computed yet."""
        self._turn = [0] * len(self._units)
        """Index of each unit's next sum in this iteration."""
        self._handles: dict[int, Handle] = {}
        """The last sum of each unit."""
        self._travelling: list[int] = []
        """Units whose sums have begun, and whose buffers are not free for others yet, in order."""

    @property
    @override
    def held_bytes(self) -> float:
        """Most bytes so far of buffers and shards."""
        return float(self._most_bytes)

    @override
    def sums_each(self, layer: int) -> bool:
        unit = self._unit_of.get(layer)
        return unit is not None and len(self._units[unit].sums) > 1

    @override
    def buffers_of(self, layer: int) -> Mapping[str, Tensor]:
        if layer in self._unit_of:
            self._enter(self._unit_of[layer])
        return super().buffers_of(layer)

    def _enter(self, index: int) -> None:
        """Make room for the gradients of a unit: of those whose sums have begun, only the last one's stay."""
        if index not in self._whole or index in self._travelling:
            while index in self._travelling or (index not in self._kept and self._crowded()):
                self._arrive(keep=index)
            if index not in self._whole:
                self._allocate_unit(index)
        if self._divides and index not in self._shards:
            low, high = self._units[index].own
            self._shards[index] = torch.empty(high - low, dtype=self._kept_type, device=self._device.torch_device)
            self._count()

    def _crowded(self) -> bool:
        """Return whether more than one buffer that is not kept waits for the end of a sum."""
        return sum(index not in self._kept for index in self._travelling) > 1

    def _arrive(self, *, keep: int = -1) -> None:
        """Wait for the first sum under way, and free its buffer, unless that is to be kept."""
        index = self._travelling.pop(0)
        self._handles[index].wait(self._timeout_s)
        if index not in self._kept and index != keep:
            del self._whole[index]
            for layer in self._units[index].layers:
                del self._buffers[layer]

    def _allocate_unit(self, index: int) -> None:
        """Allocate a buffer for the gradients of a unit."""
        unit = self._units[index]
        self._whole[index] = flat = self._empty(unit.elements)
        shapes: dict[int, dict[str, Sequence[int]]] = {layer: {} for layer in unit.layers}
        for (layer, name), shape in unit.shapes.items():
            shapes[layer][name] = shape
        self._buffers |= views_of(flat, shapes)
        self._count()

    def _count(self) -> None:
        """Note the bytes of buffers and shards if they are the most so far."""
        held = sum(each.nbytes for row in (self._whole, self._shards) for each in row.values())
        self._most_bytes = max(self._most_bytes, held)

    def _empty(self, size: int) -> Tensor:
        return torch.zeros(size, dtype=self._dtype, device=self._device.torch_device)

    def _pieces_of(self, layer: int) -> dict[str, Tensor]:
        """Return what the rank keeps of the gradients of a layer, by parameter: rows of elements, some empty."""
        index, pieces = self._unit_of[layer], dict[str, Tensor]()
        unit = self._units[index]
        for key in (key for key in unit.places if key[0] == layer):
            kept, origin = (self._shards[index], unit.own[0]) if self._divides else (self._whole[index], 0)
            (low, high), first = unit.piece(key), unit.places[key][0] - origin
            pieces[key[1]] = kept[first + low : first + high] if low < high else kept[:0]
        return pieces

    @override
    def _begin(self, layer: int) -> Sequence[Handle]:
        index = self._unit_of[layer]
        self._missing[index] -= 1
        if self._missing[index]:
            return ()
        unit, turn = self._units[index], self._turn[index]
        self._missing[index], self._turn[index] = len(unit.layers), (turn + 1) % len(unit.sums)
        flat = self._whole[index]
        work = partial(self._sum, index, flat, turn, self._recorder.iteration)
        self._handles[index] = handle = self._lanes[0].submit(work)
        self._lanes[0].keep(flat)
        self._travelling.append(index)
        return (handle,)

    def _sum(self, index: int, flat: Tensor, turn: int, iteration: int) -> None:
        """Sum the gradients of a unit into the shard that the rank keeps."""
        unit = self._units[index]
        own = flat[slice(*unit.own)]
        for each in unit.sums[turn]:
            summed = own if each.kind == "all-reduce" else flat
            self._collectives.run(each, summed, unit.shards, iteration=iteration)
        if self._divides and turn:
            self._shards[index] += own
        elif self._divides:
            self._shards[index].copy_(own)

    @override
    def wait(self, layer: int) -> dict[str, Tensor]:
        """Return the rank's pieces of a layer's gradients, as rows of elements, once they are summed."""
        index = self._unit_of[layer]
        while index in self._travelling:
            self._arrive()
        return self._pieces_of(layer)

    @override
    def release(self, layer: int) -> None:
        index = self._unit_of.get(layer)
        if index is not None and self._divides:
            self._not_updated[index].discard(layer)
            if not self._not_updated[index]:
                del self._shards[index]
                self._not_updated[index] = set(self._units[index].layers)

    @override
    def _last(self, layer: int) -> Handle:
        return self._handles[self._unit_of[layer]]
