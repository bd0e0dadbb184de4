"""Parameters of divided storage: shards that the rank keeps, and units that are whole while they are used.

A unit's parameters are views of one row of elements.  Where parameters are divided, the row has memory from its gather
to its last reader alone: its storage is emptied, and the views stay as they are, as in PyTorch's FSDP.
"""

from collections import defaultdict
from collections.abc import Mapping
from functools import partial

import torch
from torch import Tensor

from executor.communication.gradient_sync import views_of
from executor.communication.shard_collectives import ShardCollectives
from executor.program.rank_program import RankProgram
from executor.program.rank_storage import Gather, StorageUnit
from executor.program.recorder import Recorder
from executor.runtime.devices import ComputeDevice, Handle, torch_type
from executor.supervision.status_board import RankState, RankStatus
from planner.lowering.program import KINDS


class UnitParameters:
    """The units of parameters of which a rank keeps a shard, and their gathers.

    Args:
        view: Program of the rank.  All ranks must make their ``UnitParameters`` together.
        device: Holds the parameters.
        recorder: Records the start and end of tasks.
        status: The rank's row of the status board.
        timeout_s: Longest time for which a gather may keep the rank waiting.
    """

    def __init__(
        self, view: RankProgram, device: ComputeDevice, recorder: Recorder, status: RankStatus, timeout_s: float
    ) -> None:
        self._storage, self._device, self._recorder = view.storage, device, recorder
        self._status, self._timeout_s = status, timeout_s
        self._divides, self._awaited = view.storage.divides_parameters, view.storage.awaited
        types = view.program.types
        self._dtype = dtype = torch_type(types.activation)
        gathers = view.program.kind == KINDS.index("gather")
        self._collectives = ShardCollectives(view, device, recorder, "parameters", gathers)
        self._lane = device.lane("parameters") if view.storage.gathers else None
        self._flat: list[Tensor] = []
        self._views: dict[int, dict[str, Tensor]] = {}
        """Slices that the rank computes with, by layer and name."""
        self._shards: list[Tensor] = []
        """What the rank keeps of each unit: of its own where parameters are divided, else a part of the row."""
        for unit in view.storage.units:
            flat = torch.empty(unit.elements, dtype=dtype, device=device.torch_device)
            shapes: dict[int, dict[str, tuple[int, ...]]] = {layer: {} for layer in unit.layers}
            for (layer, name), shape in unit.shapes.items():
                shapes[layer][name] = shape
            self._views |= views_of(flat, shapes)
            own = flat[slice(*unit.own)]
            self._shards.append(torch.empty_like(own, dtype=torch_type(types.parameter)) if self._divides else own)
            self._flat.append(flat)
            if self._divides:
                flat.untyped_storage().resize_(0)
        self._held = [0] * len(self._flat)
        """Gathers of each unit that readers are left of, where parameters are divided."""
        self._most_whole_bytes = 0.0
        self._handles: dict[int, Handle] = {}
        """The last of each gather."""
        self._last_readers: dict[int, list[int]] = defaultdict(list)
        """Gathers whose last reader a task is."""
        readers: dict[int, int] = {}
        for task, gathers in view.storage.awaited.items() if self._divides else ():
            if view.program.is_compute[task]:
                readers |= {gather: max(task, readers.get(gather, task)) for gather in gathers}
        for gather, task in readers.items():
            self._last_readers[task].append(gather)

    @property
    def held_bytes(self) -> float:
        """Most bytes so far of shards and of units that were whole."""
        shards = sum(shard.nbytes for shard in self._shards) if self._divides else 0
        return shards + (self._most_whole_bytes if self._divides else sum(flat.nbytes for flat in self._flat))

    def reads(self, task: int) -> bool:
        """Return whether a task waits for a gather."""
        return task in self._awaited

    def take(self, layer: int, values: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Take the initial parameters of a layer, and return those with which it computes from then on.

        Args:
            layer: The layer.
            values: Slices by name, as an optimizer updates them.
        """
        for name, piece in self.pieces(layer).items():
            low, high = self._unit(layer).piece((layer, name))
            piece.copy_(values[name].reshape(-1)[low:high])
            if not self._divides:
                self._views[layer][name].copy_(values[name])
        return {name: each.to(self._dtype) for name, each in values.items()} | self._views.get(layer, {})

    def _unit(self, layer: int) -> StorageUnit:
        return self._storage.units[self._storage.unit_of[layer]]

    def pieces(self, layer: int) -> dict[str, Tensor]:
        """Return what the rank keeps of a layer's parameters, and updates: rows of elements by name, some empty."""
        if layer not in self._storage.unit_of:
            return {}
        unit, shard = self._unit(layer), self._shards[self._storage.unit_of[layer]]
        pieces = {}
        for key in (key for key in unit.places if key[0] == layer):
            (low, high), first = unit.piece(key), unit.places[key][0] - unit.own[0]
            pieces[key[1]] = shard[first + low : first + high] if low < high else shard[:0]
        return pieces

    def piece_of(self, layer: int, name: str, values: Tensor) -> Tensor:
        """Return what the rank keeps of a parameter's slice: all of it, unless replicas divide it."""
        if layer not in self._storage.unit_of:
            return values
        low, high = self._unit(layer).piece((layer, name))
        return values.reshape(-1)[low:high]

    def begin(self, index: int, *, overlap: bool) -> None:
        """Begin a gather, and wait for it without ``overlap``."""
        assert self._lane is not None, "a rank that gathers has a lane for it"
        gather = self._storage.gathers[index]
        flat = self._flat[gather.unit]
        if self._divides:
            if not self._held[gather.unit]:  # others read what is held, and a resize would move it
                flat.untyped_storage().resize_(flat.nbytes)
            self._held[gather.unit] += 1
            whole = sum(each.untyped_storage().nbytes() for each in self._flat)
            self._most_whole_bytes = max(self._most_whole_bytes, float(whole))
        self._handles[index] = self._lane.submit(partial(self._gather, gather, self._recorder.iteration))
        self._lane.keep(flat)
        if not overlap:
            self._wait(index)

    def _gather(self, gather: Gather, iteration: int) -> None:
        """Fill the row of a unit; what derivatives keep of it is the same as before, which autograd need not know."""
        unit, values = self._storage.units[gather.unit], self._flat[gather.unit].data
        if self._divides:
            values[slice(*unit.own)] = self._shards[gather.unit]
        self._collectives.run(gather.collective, values, unit.shards, iteration=iteration)

    def wait(self, task: int) -> None:
        """Wait for the parameters that a task reads."""
        for index in self._awaited.get(task, ()):
            if index in self._handles:  # before the first update nothing is under way
                self._wait(index)

    def _wait(self, index: int) -> None:
        self._status.at(self._storage.gathers[index].collective.tasks[0], RankState.WAITING)
        self._handles[index].wait(self._timeout_s)

    def done(self, task: int) -> None:
        """Free the units whose last reader a task is."""
        for index in self._last_readers.get(task, ()):
            unit = self._storage.gathers[index].unit
            self._held[unit] -= 1
            if not self._held[unit]:
                self._flat[unit].untyped_storage().resize_(0)

    def settle(self) -> None:
        """Wait for all gathers that have begun."""
        for index in self._handles:
            self._wait(index)

    def close(self) -> None:
        """End threads and connections; all ranks must call it together."""
        if self._lane is not None:
            self._lane.close()
        self._collectives.close()
