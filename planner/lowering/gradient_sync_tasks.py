"""Lowering of sums over replicas, of gradients and of statistics: all-reduces, compressed or not.

A gradient of two replicas, first as one activity a round, then message by message (``expand``), for a ring:

    ready on 0, 1  ->  round 1 (all links of 0 and 1)  ->  round 2  ->  update on 0, update on 1
    ready on 0  ->  0 to 1, first half   ->  1 to 0, the sum of it   ->  update on 0
    ready on 1  ->  1 to 0, second half  ->  0 to 1, the sum of it   ->  update on 1

Compressed gradients are compressed before the messages and decompressed, and summed, after them.
"""

from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from typing import Any

import numpy as np

from groundwork.array_types import Floats, Ints
from groundwork.sparse_rows import row_owners
from planner.compression.data_types import Compression
from planner.compression.settings import CompressionSettings
from planner.cost.all_reduce import SyncChoice, choose_all_reduce, group_rounds
from planner.cost.codec_time import GRADIENTS, CodecWork, codec_s
from planner.cost.compressed_sync import compressed_all_reduce, compressed_choice, groups_of
from planner.cost.cost_model import CostModel
from planner.graph.computation_graph import Edge
from planner.graph.shapes import Shape
from planner.layouts.configurations import CHANNELS, ConfigSpace
from planner.layouts.device_classes import DeviceClasses
from planner.layouts.mesh import Mesh
from planner.layouts.parameter_shards import shard_elements
from planner.layouts.redistribution import RedistributionStep, group_elements, row_gathers
from planner.layouts.regions import completed_sums
from planner.lowering.chosen_rounds import ChosenRounds
from planner.lowering.program import Collective
from planner.lowering.task_builder import TaskPairs, TaskRows, Tasks
from simulator.collectives.messages import Messages, messages_of
from simulator.collectives.rounds import Round
from simulator.collectives.schemes import ALL_REDUCES
from simulator.graph.memory_need import check_replay_memory

_TASK_BYTES = 400
"""Bytes of a message with its dependencies, while tasks are put in order."""
_Add = Callable[..., Ints]
"""``Tasks.add`` for one layer, micro-batch and pass."""
_Bytes = Floats | float
"""Bytes of each group's buffer, shape (groups,), or of the buffers of all groups."""


class GradientSyncTasks:
    """Appends the tasks of sums over the replicas of layers.

    Args:
        model: Graph, cluster and all-reduce algorithm, with their costs.
        tasks: Tasks under construction.
        compressed: Gradients that travel compressed.
        expand: Whether messages are tasks of their own; else each round is one task.
        classes: What the devices that are lowered stand for, without compression and not message by message.
    """

    def __init__(
        self,
        model: CostModel,
        tasks: Tasks,
        compressed: CompressionSettings,
        *,
        expand: bool,
        classes: DeviceClasses | None = None,
    ) -> None:
        self.model, self.tasks, self.compressed, self._classes = model, tasks, compressed, classes
        self.collectives: dict[int, Collective] = {}
        """Rounds that are one task, by task."""
        self.bucket_choices: dict[int, SyncChoice] = {}
        """Algorithm that was chosen for the bucket of a layer, where it was not given."""
        self._send = self._messages if expand else self._rounds

    def redistribute(
        self,
        edge: Edge,
        step: RedistributionStep,
        mesh: Mesh,
        source: Shape,
        ready: TaskPairs,
        *,
        backward: bool,
        recomputed: bool,
    ) -> TaskPairs:
        """Bring a tensor, or its gradient, from one layout on a mesh into another.

        Args:
            edge: The tensor and its first consumer in the layout.
            step: The collective.
            mesh: The mesh.
            source: Shape of the tensor.
            ready: Pairs (device, task after which it has what it sends, or a share of it).
            backward: Whether the gradient of the tensor is moved.
            recomputed: Whether the step is repeated in a recomputation.

        Returns:
            Pairs (device, task that brings its result).
        """
        columns = {"layer": edge.producer, "consumer": edge.consumer, "slot": edge.slot}
        add = partial(self.tasks.add, "collective", **columns, backward=backward, recomputed=recomputed)
        sizes = group_elements(step.buffer, step.axis, mesh, source) * float(self.model.graph.element_bytes)
        return self.run(add, step.collective, *self._in_all(mesh.groups(step.axis), sizes), ready, dim=step.dim)

    def _in_all(self, groups: Ints, sizes: Floats) -> tuple[Ints, Floats]:
        """Return groups of devices, those of all replicas, with the sizes of their buffers."""
        if self._classes is None:
            return groups, sizes
        images, of = self._classes.images(groups)
        return images, np.broadcast_to(sizes, len(groups))[of]

    def complete(
        self, layer: int, space: ConfigSpace, ready: TaskPairs, *, backward: bool, recomputed: bool = False
    ) -> TaskPairs:
        """Complete the sums of a layer: each part gets a share of their channels; or bring it their whole gradient.

        Args:
            layer: The layer.
            space: Its configuration for the samples that it takes at once.
            ready: Pairs (part, task after which it has its partial sums, or the gradient of its share).
            backward: Whether the gradient is brought.
            recomputed: Whether the sums are repeated in a recomputation.

        Returns:
            Pairs (part, task that brings its result); ``ready`` where the layer has no partial sums.
        """
        if space.completed[0] == 1:
            return ready
        add = partial(self.tasks.add, "collective", layer=layer, consumer=layer, backward=backward)
        collective, (devices, elements) = "all-gather" if backward else "reduce-scatter", completed_sums(space)
        groups = self._in_all(devices, elements * self.model.graph.element_bytes)
        add, on_device = partial(add, recomputed=recomputed), (space.devices[ready[0]], ready[1])
        return self._by_part(space, self.run(add, collective, *groups, on_device, dim=1))

    def run(
        self, add: _Add, collective: str, groups: Ints, size_bytes: _Bytes, ready: TaskPairs, *, dim: int = -1
    ) -> TaskPairs:
        """Append a collective among groups of devices, as the cluster's library runs it.

        Args:
            add: Appends its tasks.
            collective: ``all-gather``, ``reduce-scatter``, ``all-reduce`` or ``all-to-all``.
            groups: Shape (groups, p): devices.
            size_bytes: Bytes of the whole buffer of each group, or of each device of an all-to-all, shape (groups,), or
                of all; the library takes for all what it takes for the largest.
            ready: Pairs (device, task after which it has what it sends, or a share of it).
            dim: Dimension of a tensor that is gathered or scattered.

        Returns:
            Pairs (device, task that brings its result).
        """
        chosen = ChosenRounds.of(collective, groups, float(np.max(size_bytes)))
        return self._chosen(add, chosen, groups, ready, size_bytes, dim=dim)

    def gradients(self, layer: int, micro_batch: int, space: ConfigSpace, ready: TaskPairs) -> TaskPairs:
        """Synchronise a layer's gradients.

        Args:
            layer: The layer.
            micro_batch: The micro-batch whose gradients they are, or the last of several.
            space: The layer's configuration.
            ready: Pairs (part, task after which its gradients, or a share of them, are there).

        Returns:
            Pairs (part, task that its update waits for).
        """
        graph, parts, tasks = self.model.graph, [ready[0]], [ready[1]]
        kind = self.compressed.gradient(graph, layer)
        for split in graph.layers[layer].splits_of_parameters:
            elements = shard_elements([p for p in graph.layers[layer].parameters if p.split == split], space)
            add = partial(self.tasks.add, layer=layer, micro_batch=micro_batch, backward=True)
            on_device = space.devices[ready[0]], ready[1]
            size = elements * self.model.message_bytes
            part, task = self._by_part(space, self._all_reduce(add, space, size, split, on_device, kind))
            parts.append(part)
            tasks.append(task)
        return np.concatenate(parts), np.concatenate(tasks)

    def gradient_bytes(self, layer: int, space: ConfigSpace) -> float:
        """Return the bytes of the gradients of the parameters that each part of a layer holds."""
        return shard_elements(self.model.graph.layers[layer].parameters, space) * self.model.message_bytes

    def bucket(self, add: _Add, layers: Sequence[int], space: ConfigSpace, size: float, ready: TaskPairs) -> TaskPairs:
        """Sum the gradients of several layers in one buffer.

        Args:
            add: Appends tasks of the bucket.
            layers: The layers.
            space: Configuration of one of the layers; all have the same replicas.
            size: Bytes of the buffer of one replica.
            ready: Pairs (device, task after which its share of the sum is there).

        Returns:
            Pairs (device, task that brings the sums).
        """
        model, split = self.model, self.model.graph.layers[layers[-1]].split
        if model.gradient_sync not in ALL_REDUCES:
            whole = size * int(space.shards(split)[0])
            choice = choose_all_reduce(model.network, model.gradient_sync, space.in_all, whole, split=split)
            self.bucket_choices.update(dict.fromkeys(layers, choice))
        return self._all_reduce(add, space, size, split, ready, None)

    def statistics(self, layer: int, space: ConfigSpace, ready: TaskPairs, *, backward: bool) -> TaskPairs:
        """Sum the statistics of a normalisation over replicas; arguments as for ``gradients``.

        Returns:
            Pairs (part, task that brings the sums), without those of ``ready``.
        """
        add = partial(self.tasks.add, layer=layer, backward=backward, statistics=True)
        size = self.model.sync_times.statistics_bytes(layer) / int(space.shards(CHANNELS)[0])
        on_device = (space.devices[ready[0]], ready[1])
        return self._by_part(space, self._all_reduce(add, space, size, CHANNELS, on_device, None))

    def row_statistics(self, layer: int, space: ConfigSpace, ready: TaskPairs) -> TaskPairs:
        """Gather the statistics that parts of the channels have of each row; arguments as for ``gradients``.

        Returns:
            Pairs (part, task that brings those of the others), without those of ``ready``; none where no axis splits
            the channels.
        """
        arrived = np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64)
        row_bytes = self.model.row_bytes(layer)
        on_device = space.devices[ready[0]], ready[1]
        add = partial(self.tasks.add, "collective", layer=layer, statistics=True)
        for groups, rows in row_gathers(space) if row_bytes else ():
            arrived = on_device = self.run(add, "all-gather", *self._in_all(groups, rows * row_bytes), on_device, dim=1)
        return self._by_part(space, arrived) if len(arrived[0]) else arrived

    def _by_part(self, space: ConfigSpace, arrived: TaskPairs) -> TaskPairs:
        """Return pairs (part, task) for pairs (device, task)."""
        return space.part_on(self.model.network.device_count)[arrived[0]], arrived[1]

    def _all_reduce(
        self,
        add: _Add,
        space: ConfigSpace,
        size: float,
        split: tuple[str, ...],
        ready: TaskPairs,
        kind: Compression | None,
    ) -> TaskPairs:
        """Sum a buffer over a layer's replicas.

        Args:
            add: Appends tasks of the layer.
            space: The layer's configuration.
            size: Bytes of the buffer of one replica.
            split: Dimensions of the layer's output that split the buffer.
            ready: Pairs (device, task after which its share of the sum is there).
            kind: Compression of the messages, if any.

        Returns:
            Pairs (device, task that brings its result); none where no part has a replica.
        """
        model = self.model
        groups = groups_of(model, space, split=split)
        if not size or groups.shape[1] == 1:
            return np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64)
        shards = int(space.shards(split)[0])
        if kind is None:
            chosen = ChosenRounds.of("all-reduce", groups, size * shards, space.in_all, split=split)
            return self._chosen(partial(add, "collective"), chosen, groups, ready, size)
        elements = round(size * shards) // model.message_bytes
        scheme = compressed_choice(model, kind, space, elements, split=split).scheme
        return self._compressed(add, groups, kind, scheme, elements // shards, ready)

    def _chosen(
        self, add: _Add, chosen: ChosenRounds, groups: Ints, ready: TaskPairs, buffer_bytes: _Bytes, *, dim: int = -1
    ) -> TaskPairs:
        """Append the rounds of a collective, and note what they follow from; arguments as for ``_rounds``."""
        plans = chosen.rounds(self.model.network, self.model.gradient_sync)
        return self._send(add, groups, plans, ready, buffer_bytes, kind=chosen.collective, dim=dim, chosen=chosen)

    def _compressed(
        self, add: _Add, groups: Ints, kind: Compression, scheme: str, elements: int, ready: TaskPairs
    ) -> TaskPairs:
        """Compress, send and decompress; between the two rounds of servers also decompress, sum and compress.

        Args:
            add: Appends tasks of the layer.
            groups: Shape (groups, p): devices.
            kind: Compression of the messages.
            scheme: The all-reduce algorithm.
            elements: Elements of one replica's buffer.
            ready: Pairs (device, task).

        Returns:
            Pairs (device, task that brings its result).
        """
        total = compressed_all_reduce(kind, scheme, elements, groups.shape[1])
        plans = group_rounds(self.model.network, scheme, groups)
        stages = [plans] if total.middle is None else [[plan[k : k + 1] for plan in plans] for k in range(2)]
        ready = self._codec(partial(add, "compress"), groups, kind, total.before, ready)
        for k, stage in enumerate(stages):
            came = self._send(partial(add, "collective"), groups, stage, ready, total.buffer_bytes)
            ready = np.concatenate([ready[0], came[0]]), np.concatenate([ready[1], came[1]])
            if k + 1 < len(stages) and total.middle is not None:
                served = np.arange(groups.shape[1])
                ready = self._codec(partial(add, "compress"), groups, kind, total.middle, ready, served)
        return self._codec(partial(add, "decompress"), groups, kind, total.after, ready)

    def _codec(
        self, add: _Add, groups: Ints, kind: Compression, work: CodecWork, ready: TaskPairs, served: Ints | int = -1
    ) -> TaskPairs:
        """Append one task for every device that has something to compress or decompress.

        Args:
            add: Appends tasks.
            groups: Shape (groups, p): devices.
            kind: The data type.
            work: Shape (p,), by rank.
            ready: Pairs (device, task).
            served: Column ``part`` of the tasks, by rank: the shard that a server sums.

        Returns:
            Pairs (device, task): the new tasks in place of those that they wait for, and the others of ``ready``.
        """
        busy = np.tile(work.works, len(groups))  # ranks with work, the same in every group
        devices, work = groups.ravel()[busy], work.tiled(len(groups)).take(busy)
        self.tasks.group += 1
        tasks = add(
            count=len(devices),
            device=devices,
            work_s=codec_s(self.model, kind, GRADIENTS, devices, work),
            compressed_bytes=work.compressed_bytes,
            decompressed_bytes=work.decompressed_bytes - work.own_bytes,
            part=np.broadcast_to(served, groups.shape).ravel()[busy],
        )
        # A device's new task waits for its old ones and takes their place; devices without work keep theirs.
        task_on = np.full(self.model.network.device_count, -1, dtype=np.int64)
        task_on[devices] = tasks
        waits = task_on[ready[0]] >= 0
        self.tasks.wait(task_on[ready[0][waits]], ready[1][waits])
        return np.concatenate([ready[0][~waits], devices]), np.concatenate([ready[1][~waits], tasks])

    def _rounds(
        self,
        add: _Add,
        groups: Ints,
        plans: Sequence[tuple[Round, ...]],
        ready: TaskPairs,
        buffer_bytes: Floats | float,
        **said: Any,
    ) -> TaskPairs:
        """Append one task for each round and group.

        Args:
            add: Appends tasks.
            groups: Shape (groups, p): devices.
            plans: Rounds of each group.
            ready: Pairs (device, task).
            buffer_bytes: Bytes of one replica's buffer, of each group or of all.
            said: Fields of ``Collective`` that all have.

        Returns:
            Pairs (device, task that brings its result).
        """
        alike, members = self._alike(groups)
        # The first round waits for what its devices made, each further round for the round before.
        owner, devices = np.repeat(np.arange(len(members)), [len(row) for row in members]), np.concatenate(members)
        place, after = TaskRows.of(*ready, self.model.network.device_count).take(devices)
        row, firsts = owner[place], [first for first, *_ in alike]  # group of each task, and the first of each kind
        buffers = np.broadcast_to(buffer_bytes, len(groups))[firsts]
        rounds = list(zip(*plans, strict=True))
        for number, steps in enumerate(rounds):
            self.tasks.group += 1
            sizes = buffers * [_sent(steps[first]) for first in firsts]
            tasks = add(count=len(alike), size_bytes=sizes)
            rows = zip(tasks.tolist(), alike, members, buffers.tolist(), strict=True)
            for task, same, lowered, size in rows:
                among, *others = [round_among(steps[g], tuple(groups[g].tolist())) for g in same]
                self.collectives[task] = Collective(
                    tuple(lowered.tolist()),
                    among,
                    size,
                    groups.shape[1],
                    others=tuple(others),
                    place=(number, len(rounds), *same),
                    **said,
                )
            self.tasks.wait(tasks[row], after)
            row, after = np.arange(len(alike)), tasks
        return devices, after[owner]

    def _alike(self, groups: Ints) -> tuple[list[list[int]], list[Ints]]:
        """Return the groups that do the same, and of each kind the devices that are lowered for its members, in order.

        Args:
            groups: Shape (groups, p): devices.
        """
        if self._classes is None:
            return [[g] for g in range(len(groups))], list(groups)
        like = self._classes.device_like
        kinds: dict[bytes, list[int]] = {}
        for g, row in enumerate(np.sort(like[groups], axis=1)):
            kinds.setdefault(row.tobytes(), []).append(g)
        members = [like[groups[first]] for first, *_ in kinds.values()]
        return list(kinds.values()), [row[np.sort(np.unique(row, return_index=True)[1])] for row in members]

    def _messages(
        self,
        add: _Add,
        groups: Ints,
        plans: Sequence[tuple[Round, ...]],
        ready: TaskPairs,
        buffer_bytes: Floats | float,
        **_: Any,
    ) -> TaskPairs:
        """Append one task for each message; arguments as for ``_rounds``.

        Returns:
            Pairs (device, task that brings it a shard of its result).
        """
        expanded = [_expanded(plan, groups.shape[1]) for plan in plans]
        # What a library's protocol adds is in the messages; its latencies and copies are in whole rounds only.
        sent, taken = (np.array([_in_steps(plan, which) for plan in plans]) for which in (0, 1))
        count = self.tasks.program_size + len(groups) * len(expanded[0].share) * self.tasks.copies
        check_replay_memory(count * _TASK_BYTES, f"lowering {count:,} tasks")
        rows = [(group, messages.source, messages.target) for group, messages in zip(groups, expanded, strict=True)]
        source = np.array([group[sender] for group, sender, _ in rows])
        target = np.array([group[receiver] for group, _, receiver in rows])
        # Groups run in step: the first step of every group, group by group, then the second step of every group.  With
        # two groups, a and b, and steps of 2 and 1 messages:
        #     messages of a    a0 a1 | a2      place 0 1 | 4
        #     messages of b    b0 b1 | b2      place 2 3 | 5
        step_start, counts, count = expanded[0].step_start, np.diff(expanded[0].step_start), len(groups)
        shift = (count - 1) * step_start[:-1] + np.arange(count)[:, None] * counts
        place = np.arange(source.shape[1]) + np.repeat(shift, counts, axis=1)
        order = np.argsort(place, axis=None)
        tasks = add(
            count=place.size,
            device=source.ravel()[order],
            peer=target.ravel()[order],
            part=np.array([messages.first_chunk for messages in expanded]).ravel()[order],
            size_bytes=(sent * np.broadcast_to(buffer_bytes, len(groups))[:, None]).ravel()[order],
            link_use=(taken / sent).ravel()[order],
            group=self.tasks.group + 1 + np.tile(row_owners(step_start), count)[order],
        )
        self.tasks.group += len(counts)
        device, arrived, ready_rows = [], [], TaskRows.of(*ready, self.model.network.device_count)
        for group, messages, ids in zip(groups, expanded, tasks[place], strict=True):
            self.tasks.wait(ids[messages.waits[0]], ids[messages.waits[1]])
            # A sender's own share of a sum must be there before the first message that carries it.
            own, after = ready_rows.take(group[messages.source[messages.own]])
            self.tasks.wait(ids[messages.own][own], after)
            device.append(group[messages.last[0]])
            arrived.append(ids[messages.last[1]])
        return np.concatenate(device), np.concatenate(arrived)


@lru_cache(maxsize=4096)
def round_among(step: Round, devices: tuple[int, ...]) -> Round:
    """Return a round between devices instead of ranks; layers with equal replicas share it."""
    return step.among(np.array(devices))


@lru_cache(maxsize=4096)
def _sent(step: Round) -> float:
    """Return the bytes of all messages of a round, by byte of the buffer."""
    return float(step.traffic.sent.sum())


def _in_steps(plan: tuple[Round, ...], which: int) -> Floats:
    """Return bytes sent (0) or taken of links (1) by each message of an expanded plan, by byte of the buffer."""
    return np.concatenate([np.tile(step.sent_at_once[which], step.repeats) for step in plan])


@lru_cache(maxsize=64)
def _expanded(plan: tuple[Round, ...], count: int) -> Messages:
    """Return the messages of an all-reduce of ``count`` replicas."""
    return messages_of(plan, count)
