"""Buckets of gradients: the layers whose gradients a framework sums in one buffer, and their tasks, in order.

Two devices and three layers c, b, a, whose gradients are computed in this order; the first bucket is full with c:

    c ready on 0, 1  ->  sum of c
    b, a ready on 0, 1, and sum of c  ->  sum of b, a  ->  updates of c, b, a on 0 and on 1

Layers join a bucket if the same devices hold the same shards of their parameters.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial

import numpy as np

from groundwork.array_types import Ints
from planner.cost.compressed_sync import groups_of
from planner.cost.framework import Framework
from planner.layouts.configurations import ConfigSpace
from planner.lowering.batched_model import LoweredUnit
from planner.lowering.gradient_sync_tasks import GradientSyncTasks
from planner.lowering.task_builder import NO_PAIRS, TaskPairs


@dataclass(frozen=True, slots=True, eq=False)
class _Member:
    """The gradients of a layer that are computed."""

    unit: LoweredUnit
    space: ConfigSpace
    ready: TaskPairs
    """Pairs (part, task after which its gradients, or a share of them, are there)."""


@dataclass(slots=True, eq=False)
class _Queue:
    """Buckets of one set of replica groups, one after another."""

    groups: Ints
    """Shape (groups, replicas): devices."""
    members: list[_Member] = field(default_factory=list)
    """Layers of the bucket that is open."""
    held_bytes: float = 0.0
    full: int = 0
    """Number of buckets that were closed."""
    tick: int = 0
    """Cycle at whose end the open bucket is looked at."""
    last: TaskPairs = NO_PAIRS
    """Pairs (device, task that brings the bucket before)."""


class GradientBuckets:
    """Synchronises gradients as a framework does, and collects the updates that wait for them.

    Args:
        framework: The rules.
        syncs: Appends tasks of gradient synchronisation.
    """

    def __init__(self, framework: Framework, syncs: GradientSyncTasks) -> None:
        self.framework, self._syncs = framework, syncs
        self.layers: dict[int, tuple[int, ...]] = {}
        """Layers of each bucket that has several, by the last of them."""
        self._queues: dict[tuple[tuple[int, ...], bytes], _Queue] = {}
        self._updates: list[tuple[LoweredUnit, ConfigSpace, TaskPairs]] = []

    def add(self, unit: LoweredUnit, space: ConfigSpace, ready: TaskPairs, ready_s: float) -> None:
        """Take the gradients of a layer.

        Args:
            unit: The layer, with the micro-batch whose gradients they are, or the last of several.
            space: Its configuration.
            ready: Pairs (part, task after which its gradients, or a share of them, are there).
            ready_s: Time of the arithmetic until then.
        """
        if not self.framework.is_synchronous:
            self._updates.append((unit, space, self._syncs.gradients(*unit, space, ready)))
            return
        groups = groups_of(self._syncs.model, space, split=self._syncs.model.graph.layers[unit[0]].split)
        if groups.shape[1] == 1:
            self._updates.append((unit, space, ready))
            return
        queue = self._queues.setdefault((groups.shape, groups.tobytes()), _Queue(groups))
        self._join(queue, _Member(unit, space, ready), self._tick(ready_s))

    def take_updates(self) -> list[tuple[LoweredUnit, TaskPairs]]:
        """Close all buckets, and return updates with pairs (part, task that they wait for); all of them only once."""
        for queue in self._queues.values():
            self._close(queue)
        updates = [(unit, self._awaited(space, ready)) for unit, space, ready in self._updates]
        self._updates.clear()
        return updates

    def _tick(self, ready_s: float) -> int:
        """Return the number of the cycle after which gradients are looked at that are ready at a time."""
        return int(np.ceil(ready_s / self.framework.cycle_s)) if self.framework.cycle_s else 0

    def _join(self, queue: _Queue, member: _Member, tick: int) -> None:
        """Add a layer to what is open, which is closed before if its cycle is over, and after if it is full."""
        if tick != queue.tick:
            self._close(queue)
        queue.members.append(member)
        queue.held_bytes, queue.tick = queue.held_bytes + self._size(member), tick
        if self.framework.is_full(queue.held_bytes, queue.full):
            self._close(queue)

    def _size(self, member: _Member) -> float:
        """Return the bytes of the gradients of a layer that one replica holds."""
        return self._syncs.gradient_bytes(member.unit[0], member.space)

    def _close(self, queue: _Queue) -> None:
        """Append the tasks of all that is open: the agreement on it, and its buckets behind those before."""
        if not queue.members:
            return
        agreed = self._coordinated(queue) if self.framework.coordinates else NO_PAIRS
        for members in self._buckets(queue):
            layer, micro_batch = members[-1].unit
            layers = tuple(member.unit[0] for member in members)
            if len(layers) > 1:
                self.layers[layer] = layers
            ready = _joined([*(_on_devices(member) for member in members), agreed, queue.last])
            add = partial(self._syncs.tasks.add, layer=layer, micro_batch=micro_batch, backward=True)
            size = sum(self._size(member) for member in members)
            queue.last = self._syncs.bucket(add, layers, members[-1].space, size, ready)
            queue.full += 1
        self._updates += [(member.unit, member.space, member.ready) for member in queue.members]
        queue.members, queue.held_bytes = [], 0.0

    def _buckets(self, queue: _Queue) -> list[list[_Member]]:
        """Return the layers of all that is open, in buckets of the size that the framework allows."""
        buckets, held_bytes = list[list[_Member]](), 0.0
        for member in queue.members:
            if not buckets or not self.framework.takes(held_bytes, self._size(member), queue.full + len(buckets) - 1):
                buckets.append([])
                held_bytes = 0.0
            buckets[-1].append(member)
            held_bytes += self._size(member)
        return buckets

    def _coordinated(self, queue: _Queue) -> TaskPairs:
        """Append the task in which all ranks agree on what is open, which waits for all of its gradients.

        Of n gradients that are ready at any moments of a cycle, the last waits for 1 / (n + 1) of it on average.

        Returns:
            Pairs (device, the task), for all devices.
        """
        framework, tasks, devices, last = self.framework, self._syncs.tasks, queue.groups.ravel(), queue.members[-1]
        tasks.group += 1
        wait_s = framework.cycle_s / (len(queue.members) + 1) + framework.negotiation_s * len(devices)
        task = tasks.add("coordinate", last.unit[0], 1, micro_batch=last.unit[1], backward=True, work_s=wait_s)
        gradients = np.concatenate([member.ready[1] for member in queue.members])
        tasks.wait(np.repeat(task, len(gradients)), gradients)
        return devices, np.repeat(task, len(devices))

    def _awaited(self, space: ConfigSpace, ready: TaskPairs) -> TaskPairs:
        """Return the pairs (part, task) that an update waits for: with buckets also the last of each on its device."""
        part_on = space.part_on(self._syncs.model.network.device_count)
        rows = [ready]
        for queue in self._queues.values():
            device, task = queue.last
            here = part_on[device] >= 0
            rows.append((part_on[device[here]], task[here]))
        return _joined(rows) if self._queues else ready


def _joined(rows: Sequence[TaskPairs]) -> TaskPairs:
    """Return several rows of pairs as one."""
    return np.concatenate([row[0] for row in rows]), np.concatenate([row[1] for row in rows])


def _on_devices(member: _Member) -> TaskPairs:
    """Return pairs (device, task) of a layer's gradients."""
    return member.space.devices[member.ready[0]], member.ready[1]
