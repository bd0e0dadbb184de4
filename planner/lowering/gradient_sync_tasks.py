"""Lowering of sums over replicas, of gradients and of statistics: rounds or messages, and what codes need."""

from collections.abc import Callable, Sequence
from functools import lru_cache, partial

import numpy as np

from hwprofiles import Ints
from planner.compression import Compressed, Compression
from planner.cost import (
    GRADIENTS,
    CodecWork,
    CostModel,
    chosen,
    codec_s,
    compressed_all_reduce,
    compressed_choice,
    group_rounds,
    groups_of,
)
from planner.lowering.program import Collective
from planner.lowering.task_builder import Pairs, TaskRows, Tasks
from planner.parallel import ConfigSpace
from simulator.collectives import ALL_REDUCES, Messages, Round, messages_of
from simulator.graph import check_replay_memory

__all__ = ["GradientSyncTasks"]

_TASK_BYTES = 400  # of a message with its dependencies, while they are put in order
_Add = Callable[..., Ints]
"""``Tasks.add`` of one kind and layer."""


class GradientSyncTasks:
    """Appends the tasks of sums over the replicas of layers.

    Args:
        model: Graph, cluster and exchange scheme, with their prices.
        tasks: To which they are added.
        compressed: Which gradients travel as codes.
        expand: Whether messages are tasks of their own.
    """

    def __init__(self, model: CostModel, tasks: Tasks, compressed: Compressed, *, expand: bool) -> None:
        self.model, self.tasks, self.compressed = model, tasks, compressed
        self.collectives: dict[int, Collective] = {}
        """Those that are one activity, by task."""
        self._send = self._messages if expand else self._activities

    def gradients(self, layer: int, micro_batch: int, space: ConfigSpace, made: Pairs) -> Pairs:
        """Exchange a layer's gradients, once the tasks of pairs (part, task) are done.

        Returns:
            Pairs (part, what its update waits for).
        """
        graph, parts, waits = self.model.graph, [made[0]], [made[1]]
        kind = self.compressed.gradient(graph, layer)
        for split in (True, False):
            elements = sum(p.elements for p in graph.layers[layer].parameters if p.split is split)
            add = partial(self.tasks.add, layer=layer, micro_batch=micro_batch, backward=True)
            summed = self._sum(add, space, elements * float(graph.element_bytes), split, made, kind)
            parts.append(summed[0])
            waits.append(summed[1])
        return np.concatenate(parts), np.concatenate(waits)

    def statistics(self, layer: int, micro_batch: int, space: ConfigSpace, made: Pairs, *, backward: bool) -> Pairs:
        """Sum the statistics of a normalisation; as for ``gradients``, without the pairs given."""
        add = partial(self.tasks.add, layer=layer, micro_batch=micro_batch, backward=backward, statistics=True)
        return self._sum(add, space, self.model.sync_times.statistics_bytes(layer), True, made, None)

    def _sum(
        self, add: _Add, space: ConfigSpace, size: float, split: bool, made: Pairs, kind: Compression | None
    ) -> Pairs:
        """Sum a buffer over a layer's replicas.

        Args:
            add: Appends tasks of the layer.
            space: The layer's.
            size: Bytes of all shards of the buffer.
            split: Whether a split of the channel dimension splits it.
            made: Pairs: a part, and a task after which what it adds is there.
            kind: Of the codes that travel, if any.

        Returns:
            Pairs (part, what brings its result); none where no part has a replica.
        """
        model, network = self.model, self.model.network
        groups = groups_of(model, space, split=split)
        if not size or groups.shape[1] == 1:
            return np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64)
        ready, shards = (space.devices[made[0]], made[1]), int(space.shards[0, 1]) if split else 1
        if kind is None:
            scheme = model.gradient_sync
            if scheme not in ALL_REDUCES:  # to be chosen, or unknown
                scheme = chosen(network, scheme, space, size, split=split).scheme
            plans = group_rounds(network, scheme, groups)
            device, arrived = self._send(partial(add, "collective"), groups, plans, ready, size / shards)
        else:
            elements = round(size) // model.graph.element_bytes
            scheme = compressed_choice(model, kind, space, elements, split=split).scheme
            device, arrived = self._coded(add, groups, kind, scheme, elements // shards, ready)
        part = np.empty(network.device_count, dtype=np.int64)
        part[space.devices] = np.arange(len(space.devices))
        return part[device], arrived

    def _coded(self, add: _Add, groups: Ints, kind: Compression, scheme: str, elements: int, ready: Pairs) -> Pairs:
        """Encode, send and decode; between the rounds of servers, decode, sum and encode."""
        total = compressed_all_reduce(kind, scheme, elements, groups.shape[1])
        plans = group_rounds(self.model.network, scheme, groups)
        rounds = [plans] if total.middle is None else [[plan[k : k + 1] for plan in plans] for k in range(2)]
        ready = self._code(partial(add, "compress"), groups, kind, total.before, ready)
        for k, steps in enumerate(rounds):
            came = self._send(partial(add, "collective"), groups, steps, ready, total.buffer_bytes)
            ready = np.concatenate([ready[0], came[0]]), np.concatenate([ready[1], came[1]])
            if k + 1 < len(rounds) and total.middle is not None:
                served = np.arange(groups.shape[1])
                ready = self._code(partial(add, "compress"), groups, kind, total.middle, ready, served)
        return self._code(partial(add, "decompress"), groups, kind, total.after, ready)

    def _code(
        self, add: _Add, groups: Ints, kind: Compression, work: CodecWork, ready: Pairs, served: Ints | int = -1
    ) -> Pairs:
        """One task for every device that has something to encode or decode, which stands for what it waits for.

        Args:
            add: Appends tasks.
            groups: Shape (groups, p): devices.
            kind: The data type.
            work: Shape (p,), by rank.
            ready: Pairs (device, task).
            served: Part of the tasks by rank.
        """
        busy = np.tile(work.works, len(groups))
        devices, work = groups.ravel()[busy], work.tiled(len(groups)).take(busy)
        self.tasks.group += 1
        tasks = add(
            count=len(devices), device=devices, work_s=codec_s(self.model, kind, GRADIENTS, devices, work),
            compressed_bytes=work.compressed_bytes, decompressed_bytes=work.read_bytes - work.own_bytes,
            part=np.broadcast_to(served, groups.shape).ravel()[busy],
        )  # fmt: skip
        table = np.full(self.model.network.device_count, -1, dtype=np.int64)
        table[devices] = tasks
        codes = table[ready[0]] >= 0
        self.tasks.wait(table[ready[0][codes]], ready[1][codes])
        return np.concatenate([ready[0][~codes], devices]), np.concatenate([ready[1][~codes], tasks])

    def _activities(
        self, add: _Add, groups: Ints, plans: Sequence[tuple[Round, ...]], ready: Pairs, buffer_bytes: float
    ) -> Pairs:
        """One task a round and group; returns pairs (device, what brings its result)."""
        place, after = TaskRows.of(*ready, self.model.network.device_count).take(groups.ravel())
        row = place // groups.shape[1]
        for steps in zip(*plans, strict=True):
            self.tasks.group += 1
            sizes = np.array([buffer_bytes * step.share * step.repeats * len(step.source) for step in steps])
            tasks = add(count=len(groups), size_bytes=sizes)
            for task, group, step in zip(tasks.tolist(), groups, steps, strict=True):
                devices = tuple(group.tolist())
                self.collectives[task] = Collective(devices, _among(step, devices), buffer_bytes)
            self.tasks.wait(tasks[row], after)
            row, after = np.arange(len(groups)), tasks
        return groups.ravel(), np.repeat(after, groups.shape[1])

    def _messages(
        self, add: _Add, groups: Ints, plans: Sequence[tuple[Round, ...]], ready: Pairs, buffer_bytes: float
    ) -> Pairs:
        """One task a message; returns pairs (device, what brings it a part of its result)."""
        expanded = [_expanded(plan, groups.shape[1]) for plan in plans]
        made = len(groups) * len(expanded[0].share)
        check_replay_memory((self.tasks.size + made) * _TASK_BYTES, f"lowering {self.tasks.size + made:,} tasks")
        rows = [(group, messages.source, messages.target) for group, messages in zip(groups, expanded, strict=True)]
        source = np.array([group[sender] for group, sender, _ in rows])
        target = np.array([group[taker] for group, _, taker in rows])
        counts = np.diff(expanded[0].step_start)
        step, count = np.repeat(np.arange(len(counts)), counts), len(groups)
        # the groups run in step: first everyone's first step, group by group, then everyone's second
        shift = (count - 1) * expanded[0].step_start[:-1] + np.arange(count)[:, None] * counts
        place = np.arange(source.shape[1]) + np.repeat(shift, counts, axis=1)
        order = np.argsort(place, axis=None)
        tasks = add(
            count=place.size, device=source.ravel()[order], peer=target.ravel()[order],
            part=np.array([messages.first_chunk for messages in expanded]).ravel()[order],
            size_bytes=np.array([messages.share for messages in expanded]).ravel()[order] * buffer_bytes,
            group=self.tasks.group + 1 + np.tile(step, count)[order],
        )  # fmt: skip
        self.tasks.group += len(counts)
        device, arrived, rows_of = [], [], TaskRows.of(*ready, self.model.network.device_count)
        for group, messages, ids in zip(groups, expanded, tasks[place], strict=True):
            self.tasks.wait(ids[messages.waits[0]], ids[messages.waits[1]])
            own, after = rows_of.take(group[messages.source[messages.own]])
            self.tasks.wait(ids[messages.own][own], after)
            device.append(group[messages.last[0]])
            arrived.append(ids[messages.last[1]])
        return np.concatenate(device), np.concatenate(arrived)


@lru_cache(maxsize=256)
def _among(step: Round, devices: tuple[int, ...]) -> Round:
    """A round between devices; layers that exchange alike share it."""
    return step.among(np.array(devices))


@lru_cache(maxsize=64)
def _expanded(plan: tuple[Round, ...], count: int) -> Messages:
    return messages_of(plan, count)
