"""Lowering of divided storage: replicas gather parameters that they share, and each keeps its share of the gradients.

Where parameters are divided, those of a unit are gathered before it computes, while the unit before computes, and once
more for its backward pass; two replicas, units a, b, c (time runs to the right)::

    messages     gather a  gather b   gather c             gather b    sum c, gather a  sum b      sum a
    arithmetic             forward a  forward b  forward c  backward c  backward b       backward a  updates

Of the units of ``planner.layouts.storage_units`` the first stays gathered, and the last one until its backward pass.
At most one unit is gathered ahead of the one that computes.  Where parameters are whole, their updated shards are
gathered behind the updates, while the next iteration begins.

Source:
    Zhao et al., "PyTorch FSDP", VLDB 2023, Sec. 3.3 and 4.2: overlap, prefetching and the limit of gathers ahead.
"""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

import numpy as np

from groundwork.array_types import Ints
from planner.cost.compressed_sync import groups_of
from planner.graph.computation_graph import Edge
from planner.layouts.configurations import ConfigSpace
from planner.layouts.parameter_shards import shard_elements
from planner.layouts.shared_regions import shared_gradient_regions
from planner.layouts.storage_units import storage_units
from planner.lowering.batched_model import BatchedModel, LoweredUnit
from planner.lowering.gradient_sync_tasks import GradientSyncTasks
from planner.lowering.task_builder import NO_PAIRS, TaskPairs

_AHEAD = 2
"""Units that are gathered at most, the one that computes among them."""


@dataclass(eq=False)
class _Shared:
    """The layers of a unit that have the same replicas."""

    unit: int
    layers: tuple[int, ...]
    groups: Ints
    """Shape (groups, replicas): devices."""
    size_bytes: float
    """Bytes of the parameters that each replica computes with."""
    ready: dict[int, TaskPairs] = field(default_factory=dict)
    """Pairs (device, task after which gradients are there), by layer."""


class _Pass(NamedTuple):
    """A unit's share in one direction."""

    key: bytes
    """Its replicas."""
    backward: bool


class ShardedParameters:
    """Appends the collectives of parameters and gradients that replicas divide, and collects the updates.

    Args:
        batched: Costs and configurations.
        syncs: Appends collectives.
    """

    def __init__(self, batched: BatchedModel, syncs: GradientSyncTasks) -> None:
        self._batched, self._syncs, self.storage = batched, syncs, batched.model.conditions.storage
        self.layers: dict[int, tuple[int, ...]] = {}
        """Layers whose gradients are summed together, by the last of them."""
        self._shared: dict[int, _Shared] = {}  # by layer
        units = storage_units(batched.graph, whole=self.storage.zero < 3)
        self._last_unit = len(units) - 1
        apart = {way.producer for way in batched.graph.shared if self._returns_by_messages(way)}
        self._once = {i for layers in units if not apart.isdisjoint(layers) for i in layers}
        """Layers whose gradients are summed once an iteration, as those are that other devices send back."""
        for unit, layers in enumerate(units):
            self._divide(unit, layers)
        self._updates: list[tuple[LoweredUnit, ConfigSpace, TaskPairs]] = []
        self._summed: dict[bytes, TaskPairs] = {}
        """Pairs (device, task) of the last sum, by replicas."""
        self._gathered: dict[tuple[int, bytes, bool], TaskPairs] = {}
        self._computed: dict[tuple[int, bytes, bool], TaskPairs] = {}
        self._order: dict[_Pass, list[int]] = defaultdict(list)
        self._first: list[tuple[_Shared, TaskPairs]] = []
        """Gathers that wait for updates of the iteration before."""

    def _divide(self, unit: int, layers: Sequence[int]) -> None:
        """Note the layers of a unit by their replicas."""
        graph, spaces = self._batched.graph, self._batched.spaces
        rows: dict[bytes, list[int]] = {}
        groups_by: dict[bytes, Ints] = {}
        for i in layers:
            groups = groups_of(self._batched.model, spaces[i], split=graph.layers[i].split)
            if groups.shape[1] > 1:
                rows.setdefault(groups.tobytes(), []).append(i)
                groups_by[groups.tobytes()] = groups
        for key, members in rows.items():
            elements = sum(shard_elements(graph.layers[i].parameters, spaces[i]) for i in members)
            shared = _Shared(unit, tuple(members), groups_by[key], elements * graph.element_bytes)
            self._shared |= dict.fromkeys(members, shared)

    def _returns_by_messages(self, way: Edge) -> bool:
        """Return whether a device sends back the gradient of a parameter that a layer borrows."""
        graph, (owner, borrower) = self._batched.graph, (self._batched.spaces[layer] for layer in way[:2])
        regions = shared_gradient_regions(owner, borrower, graph.shared[way], self._batched.device_count)
        return graph.returns_gradient(way) and bool((owner.devices[regions.part] != regions.device).any())

    def sums_each(self, layer: int) -> bool:
        """Return whether a layer's gradients are summed for each micro-batch, as those that are divided are."""
        return self.storage.zero > 1 and layer not in self._once

    # Parameters

    def lend(self, layer: int) -> TaskPairs:
        """Gather what devices send to layers that borrow it; returns pairs (part, task that the messages wait for)."""
        shared = self._shared.get(layer)
        if self.storage.zero < 3 or shared is None:
            return NO_PAIRS
        self.before(layer, backward=False)
        device, gathered = self._gathered[shared.unit, shared.groups.tobytes(), False]
        return self._by_part(layer, (device, gathered))

    def before(self, layer: int, *, backward: bool) -> None:
        """Gather the parameters of a layer's unit, the first time that the unit computes in a pass."""
        shared = self._shared.get(layer)
        if self.storage.zero < 3 or shared is None:
            return
        kept = shared.unit in (0, self._last_unit) or not self.storage.gathers_again
        key = shared.groups.tobytes()
        if (shared.unit, key, backward) in self._gathered or (backward and kept):
            return
        order, forward = self._order[_Pass(key, backward)], self._order[_Pass(key, False)]
        waits = [NO_PAIRS]
        if len(order) >= _AHEAD:
            waits.append(self._computed[order[-_AHEAD], key, backward])
        elif backward:
            waits.append(self._computed[forward[-1], key, False])
        if order:
            waits.append(self._gathered[order[-1], key, backward])
        columns = {"layer": shared.layers[0], "backward": backward}
        add = partial(self._syncs.tasks.add, "gather", **columns)
        arrived = self._syncs.run(add, "all-gather", self._divided(shared), shared.size_bytes, _joined(waits))
        if not backward and len(order) < _AHEAD:
            self._first.append((shared, arrived))
        self._gathered[shared.unit, key, backward] = arrived
        order.append(shared.unit)

    def computed(self, layer: int, tasks: Ints, *, backward: bool) -> None:
        """Let the tasks of a layer, one a part, wait for its parameters, and note that its unit computes in them."""
        if self.storage.zero < 3:
            return
        for owner in (edge.producer for edge in self._batched.graph.shared if edge.consumer == layer):
            self._await(owner, layer, tasks, backward=backward)
        shared = self._await(layer, layer, tasks, backward=backward)
        if shared is not None:
            self._computed[shared.unit, shared.groups.tobytes(), backward] = self._batched.spaces[layer].devices, tasks

    def _await(self, owner: int, layer: int, tasks: Ints, *, backward: bool) -> _Shared | None:
        """Let the tasks of a layer, one a part, wait for those parameters of an owner that their devices hold."""
        shared = self._shared.get(owner)
        if shared is None:
            return None
        key = shared.groups.tobytes()
        gathered = self._gathered.get((shared.unit, key, backward)) or self._gathered[shared.unit, key, False]
        part, after = self._by_part(layer, gathered)
        self._syncs.tasks.wait(tasks[part], after)
        return shared

    def _by_part(self, layer: int, arrived: TaskPairs) -> TaskPairs:
        """Return pairs (part of a layer, task) for pairs (device, task), of devices that hold a part."""
        part = self._batched.spaces[layer].part_on(self._batched.device_count)[arrived[0]]
        return part[part >= 0], arrived[1][part >= 0]

    def _divided(self, shared: _Shared) -> Ints:
        """Return the groups of replicas that divide parameters among themselves."""
        return shared.groups.reshape(-1, self.storage.shards(shared.groups.shape[1]))

    # Gradients

    def add(self, unit: LoweredUnit, space: ConfigSpace, ready: TaskPairs, ready_s: float) -> None:
        """Take the gradients of a layer; arguments as for ``GradientBuckets.add``."""
        shared = self._shared.get(unit[0])
        self._updates.append((unit, space, ready))
        if shared is None:
            return
        shared.ready[unit[0]] = space.devices[ready[0]], ready[1]
        if len(shared.ready) == len(shared.layers):
            self._sum(shared, unit)

    def _sum(self, shared: _Shared, unit: LoweredUnit) -> None:
        """Sum the gradients of a unit into shards, and the shards over the groups that hold copies of them."""
        key, (layer, micro_batch) = shared.groups.tobytes(), unit
        if len(shared.layers) > 1:
            self.layers[layer] = (*(i for i in reversed(shared.layers) if i != layer), layer)
        ready = _joined([*shared.ready.values(), self._summed.get(key, NO_PAIRS)])
        shared.ready.clear()
        add = partial(self._syncs.tasks.add, "collective", layer=layer, micro_batch=micro_batch, backward=True)
        model = self._batched.model
        size_bytes = shared.size_bytes * model.message_bytes / model.graph.element_bytes
        arrived = self._syncs.run(add, "reduce-scatter", self._divided(shared), size_bytes, ready)
        replicas, shards = shared.groups.shape[1], self.storage.shards(shared.groups.shape[1])
        if shards < replicas:
            copies = (
                shared.groups.reshape(-1, replicas // shards, shards).swapaxes(1, 2).reshape(-1, replicas // shards)
            )
            arrived = self._syncs.run(add, "all-reduce", copies, size_bytes / shards, arrived)
        self._summed[key] = arrived

    def take_updates(self) -> list[tuple[LoweredUnit, TaskPairs]]:
        """Return updates with pairs (part, task that they wait for): all sums on its device; all of them only once."""
        updates = []
        for unit, _, ready in self._updates:
            rows = [ready, *(self._by_part(unit[0], summed) for summed in self._summed.values())]
            updates.append((unit, _joined(rows)))
        self._updates.clear()
        return updates

    def carried(
        self, forward: Mapping[int, Ints], updates: Mapping[int, Ints], refreshed: Callable[[int, TaskPairs], Ints]
    ) -> list[Ints]:
        """Append the gathers behind the updates, and return pairs (task, task of the iteration before), shape (N, 2).

        Args:
            forward: Forward task of each part, by layer.
            updates: Update task of each part, by layer.
            refreshed: Returns such pairs of the messages with a layer's parameters, for pairs (part, task before).
        """
        rows = list[Ints]()
        if self.storage.zero == 3:
            for shared, gather in self._first:
                for i in shared.layers:
                    part, after = self._by_part(i, gather)
                    rows.append(np.column_stack([after, updates[i][part]]))
            return rows
        before = list[TaskPairs]()
        for shared in dict.fromkeys(self._shared.values()):
            rows_of = [(self._batched.spaces[i].devices, updates[i]) for i in shared.layers]
            ready = _joined(rows_of + before)
            add = partial(self._syncs.tasks.add, "gather", layer=shared.layers[0], backward=True)
            arrived = self._syncs.run(add, "all-gather", self._divided(shared), shared.size_bytes, ready)
            before = [arrived] if self._batched.model.conditions.software.ahead else []
            for i in shared.layers:
                part, after = self._by_part(i, arrived)
                rows += [np.column_stack([forward[i][part], after]), refreshed(i, (part, after))]
        return rows


def _joined(rows: Sequence[TaskPairs]) -> TaskPairs:
    """Return several rows of pairs as one."""
    return np.concatenate([row[0] for row in rows]), np.concatenate([row[1] for row in rows])
