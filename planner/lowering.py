"""Lowering: from a strategy to the program of one iteration, region by region.

Tasks are made a layer at a time, as arrays: a program of millions of tasks takes no longer than its replay.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache, partial

import numpy as np
from numpy.typing import NDArray

from hwprofiles.errors import ConfigError
from planner.configurations import ConfigSpace
from planner.costs import CostModel, part_times
from planner.cut import WHOLE, Cut, sub_spaces
from planner.exchange import chosen, group_rounds, replica_groups
from planner.graph import Edge
from planner.program import Collective, Program
from planner.regions import Pieces, pieces_of
from planner.tasks import Rows, Tasks
from simulator.collectives import ALL_REDUCES, Messages, Round, messages_of
from simulator.memory_need import check_memory

__all__ = ["lower"]

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
_DIMS = 5
_TASK_BYTES = 400  # of a message with its dependencies, while they are put in order
_Unit = tuple[int, int]
"""A layer and a sub-batch."""
_Add = Callable[..., Ints]
"""``Tasks.add`` of one kind and layer."""


@dataclass
class _Delivery:
    """One tensor brought into one layout; consumers that ask for the same layout share it."""

    edge: Edge
    """The first that asked for the layout."""
    regions: Pieces
    arrived: tuple[Ints, Ints]
    """Pairs: a device, and a task after which a region is there."""
    sharers: list[_Unit] = field(default_factory=list)
    """Those that read it."""


class _Lowering:
    """Units of work are (layer, sub-batch): sub-batch 0 is all there is before the cut."""

    def __init__(self, model: CostModel, spaces: Sequence[ConfigSpace], cut: Cut, *, expand: bool) -> None:
        self.graph, self.whole, self.cut, self.expand = model.graph, list(spaces), cut, expand
        self.model, self.cut_model = model, model.for_batch(model.graph.batch // cut.parts)
        self.cut_spaces = sub_spaces(self.cut_model.graph, spaces, cut, len(model.cluster.devices))
        self.tasks = Tasks()
        self.boxes: list[tuple[Ints, Pieces]] = []
        self.collectives: dict[int, Collective] = {}
        # tasks of each part, by unit
        self.forward: dict[_Unit, Ints] = {}
        self.gradient: dict[_Unit, Ints] = {}
        self.weight_gradient: dict[_Unit, Ints] = {}
        self.made: dict[_Unit, Rows] = {}  # after which tasks each part of an output is there
        self.updates: list[tuple[_Unit, Ints, Ints]] = []  # and pairs (part, what its update waits for)
        # by producer, sub-batch that consumers read (-1: the whole batch) and layout
        self.deliveries: dict[_Unit, dict[int, _Delivery]] = {}
        self.delivered_by: dict[Edge, Edge] = {}
        self.times = [part_times(self._model(i), i, self._space(i)) for i in range(len(spaces))]

    def _model(self, i: int) -> CostModel:
        """Prices of a layer for as many samples as it takes at once."""
        return self.cut_model if self.cut.of(i) > 1 else self.model

    def _space(self, i: int) -> ConfigSpace:
        return self.cut_spaces[i] if self.cut.of(i) > 1 else self.whole[i]

    def run(self) -> Program:
        """Forward, backward with the exchanges, updates."""
        layers = range(len(self.whole))
        before, after = layers[: self.cut.first], layers[self.cut.first :]
        if self.cut.parts == 1:
            before, after = layers, layers[:0]
        for i in before:
            self._forward((i, 0))
        carried: list[Ints] = []
        for units, last in self._rounds(after):
            for unit in units:
                self._forward(unit)
            for unit in reversed(units):
                self._backward(unit)
            if self.cut.update_each:
                rows = [self._update(*row) for row in self.updates]
                carried += rows if last else []
                self.updates.clear()
        for i in reversed(before):
            self._backward((i, 0))
        return self._program([*carried, *(self._update(*row) for row in self.updates)])

    def _rounds(self, layers: Sequence[int]) -> list[tuple[list[_Unit], bool]]:
        """Units that go forward before they go back, round by round, and whether the round is the last."""
        if not layers:
            return []
        parts = range(self.cut.parts)
        if self.cut.order == "all":
            return [([(i, s) for s in parts for i in layers], True)]
        return [([(i, s) for i in layers], s == parts[-1]) for s in parts]

    def _compute(self, unit: _Unit, phase: str, *, backward: bool) -> Ints:
        """One task a part."""
        self.tasks.group += 1
        i, sub_batch = unit
        devices = self.whole[i].devices
        return self.tasks.add(
            phase, i, len(devices), device=devices, part=np.arange(len(devices)), backward=backward,
            work_s=self.times[i][phase], sub_batch=sub_batch,
        )  # fmt: skip

    def _by_device(self, i: int, tasks: Ints) -> Ints:
        """Task of a layer on each device; -1 where it has none."""
        table = np.full(len(self.model.cluster.devices), -1, dtype=np.int64)
        table[self.whole[i].devices] = tasks
        return table

    def _forward(self, unit: _Unit) -> None:
        i, sub_batch = unit
        deliveries = [self._deliver(edge, sub_batch) for edge in self.graph.producers[i]]
        self.forward[unit] = tasks = self._compute(unit, "forward", backward=False)
        table = self._by_device(i, tasks)
        for delivery in deliveries:
            device, arrived = delivery.arrived
            self.tasks.wait(table[device], arrived)
        summed = self._normalised(unit, np.arange(len(tasks)), tasks, backward=False)
        self.made[unit] = Rows.of(*summed, len(tasks))

    def _read(self, u: int, sub_batch: int, v: int) -> tuple[_Unit, _Unit]:
        """Key of what a consumer reads, and the unit that makes it."""
        if self.cut.of(v) == 1:
            return (u, -1), (u, 0)
        return (u, sub_batch), (u, sub_batch if self.cut.of(u) > 1 else 0)

    def _deliver(self, edge: Edge, sub_batch: int) -> _Delivery:
        """Send what the consumer lacks, unless another consumer of the tensor asked for the same."""
        u, v = edge.producer, edge.consumer
        model = self._model(v)
        producer = self.cut_spaces[u] if self.cut.of(v) > 1 else self.whole[u]
        layout = int(model.layouts(edge, self._space(v))[0])
        key, unit = self._read(u, sub_batch, v)
        deliveries = self.deliveries.setdefault(key, {})
        delivery = deliveries.get(layout)
        if delivery is None:
            layer, source = model.graph.layers[v], model.graph.layers[u].output
            needs = layer.operation.needs(edge.slot, layer.input_shapes)
            regions = pieces_of(producer, self._space(v), needs, source, len(self.model.cluster.devices))
            sources = producer.devices[regions.part]
            at, made = self.made[unit].take(regions.part)
            away = (sources != regions.device)[at]
            remote = np.flatnonzero(sources != regions.device)
            self.tasks.group += 1
            sends = self._send(edge, sub_batch, regions.take(remote), sources[remote], regions.device[remote])
            self.tasks.wait(sends[np.searchsorted(remote, at[away])], made[away])
            arrived = np.concatenate([made[~away], sends])
            device = regions.device[np.concatenate([at[~away], remote])]
            delivery = deliveries[layout] = _Delivery(edge, regions, (device, arrived))
        delivery.sharers.append((v, sub_batch))
        self.delivered_by[edge] = delivery.edge
        return delivery

    def _send(
        self, edge: Edge, sub_batch: int, regions: Pieces, source: Ints, target: Ints, *, backward: bool = False
    ) -> Ints:
        elements = (regions.high - regions.low).prod(axis=1)
        sends = self.tasks.add(
            "transfer", edge.producer, len(source), consumer=edge.consumer, slot=edge.slot, sub_batch=sub_batch,
            backward=backward, device=source, peer=target, part=regions.part,
            size_bytes=elements * float(self.graph.element_bytes),
        )  # fmt: skip
        self.boxes.append((sends, regions))
        return sends

    def _backward(self, unit: _Unit) -> None:
        i = unit[0]
        if not self.graph.has_gradient(i):
            return
        part, after = self._normalised(unit, *self._gradients(unit), backward=True)
        for phase in ("activation_gradient", "weight_gradient"):
            if not self.graph.has_phase(i, phase):
                continue
            tasks = self._compute(unit, phase, backward=True)
            self.tasks.wait(tasks[part], after)
            if phase == "activation_gradient":
                self.gradient[unit] = tasks
            else:
                self.weight_gradient[unit] = tasks
                self._exchange_when_whole(unit)

    def _exchange_when_whole(self, unit: _Unit) -> None:
        """Exchange the gradients of a sub-batch, or of all of them once the last is there."""
        together = [unit]
        if self.cut.of(unit[0]) > 1 and not self.cut.update_each:
            together = [(unit[0], s) for s in range(self.cut.parts)]
        if all(other in self.weight_gradient for other in together):
            rows = np.array([self.weight_gradient[other] for other in together])
            part = np.tile(np.arange(rows.shape[1]), len(rows))
            self.updates.append((unit, *self._exchange(unit, part, rows.ravel())))

    def _gradients(self, unit: _Unit) -> tuple[Ints, Ints]:
        """Pairs (part, what its backward tasks wait for): gradients from all consumers, or its output."""
        i, sub_batch = unit
        devices = self.whole[i].devices
        parts, waits = [np.empty(0, dtype=np.int64)], [np.empty(0, dtype=np.int64)]
        keys = [(i, sub_batch)] if self.cut.of(i) > 1 else [(i, s) for s in range(-1, self.cut.parts)]
        for key in keys:
            for delivery in self.deliveries.get(key, {}).values():
                regions = delivery.regions
                targets = devices[regions.part]
                remote = np.flatnonzero(targets != regions.device)
                local = np.flatnonzero(targets == regions.device)
                self.tasks.group += 1
                sends = self._send(
                    delivery.edge, max(key[1], 0), regions.take(remote), regions.device[remote], targets[remote],
                    backward=True,
                )  # fmt: skip
                parts.append(regions.part[remote])
                waits.append(sends)
                for sharer in delivery.sharers:
                    ready = self._by_device(sharer[0], self.gradient[sharer])[regions.device]
                    self.tasks.wait(sends, ready[remote])
                    parts.append(regions.part[local])
                    waits.append(ready[local])
        unread = np.flatnonzero(np.bincount(np.concatenate(parts), minlength=len(devices)) == 0)
        place, made = self.made[unit].take(unread)
        return np.concatenate([*parts, unread[place]]), np.concatenate([*waits, made])

    def _normalised(self, unit: _Unit, part: Ints, after: Ints, *, backward: bool) -> tuple[Ints, Ints]:
        """Pairs (part, task), with those of the statistics that are summed once they are done, where there are any."""
        size = self.model.statistics_bytes(unit[0])
        if not size:
            return part, after
        summed = self._all_reduce(unit, size, True, part, after, backward=backward, statistics=True)
        return np.concatenate([part, summed[0]]), np.concatenate([after, summed[1]])

    def _exchange(self, unit: _Unit, part: Ints, gradients: Ints) -> tuple[Ints, Ints]:
        """Exchange a layer's gradients, pairs (part, task); returns pairs (part, what its update waits for)."""
        parameters = self.graph.layers[unit[0]].parameters
        parts, waits = [part], [gradients]
        for split in (True, False):
            size = sum(p.elements for p in parameters if p.split is split) * self.graph.element_bytes
            summed = self._all_reduce(unit, size, split, part, gradients, backward=True)
            parts.append(summed[0])
            waits.append(summed[1])
        return np.concatenate(parts), np.concatenate(waits)

    def _all_reduce(
        self, unit: _Unit, size: float, split: bool, part: Ints, after: Ints, **flags: bool
    ) -> tuple[Ints, Ints]:
        """Sum a buffer over a layer's replicas.

        Args:
            unit: Whose it is.
            size: Bytes of all shards of the buffer.
            split: Whether a split of the channel dimension splits it.
            part, after: Pairs: a part, and a task after which what it adds is there.
            flags: Columns of the tasks.

        Returns:
            Pairs (part, what brings its result); none where no part has a replica.
        """
        space, network, scheme = self.whole[unit[0]], self.model.network, self.model.exchange
        before, channel, *rest = space.degrees[0].tolist()
        shape = (before, channel, int(np.prod(rest, dtype=np.int64)))
        groups = replica_groups(network.rank, *shape, space.devices, split)
        if not size or groups.shape[1] == 1:
            return np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64)
        if scheme not in ALL_REDUCES:  # to be chosen, or unknown
            scheme = chosen(network, scheme, space, float(size), split=split).scheme
        plans = group_rounds(network, scheme, groups)
        ready = Rows.of(space.devices[part], after, network.device_count)
        send = self._messages if self.expand else self._activities
        add = partial(self.tasks.add, "collective", unit[0], sub_batch=unit[1], **flags)
        device, arrived = send(add, groups, plans, ready, size / (channel if split else 1))
        return self._by_device(unit[0], np.arange(len(space.devices)))[device], arrived

    def _activities(
        self, add: _Add, groups: Ints, plans: Sequence[tuple[Round, ...]], ready: Rows, buffer_bytes: float
    ) -> tuple[Ints, Ints]:
        """One task a round and group; returns pairs (device, what brings its result)."""
        place, after = ready.take(groups.ravel())
        row = place // groups.shape[1]
        for steps in zip(*plans, strict=True):
            self.tasks.group += 1
            sizes = np.array([buffer_bytes * step.share * step.repeats * len(step.source) for step in steps])
            tasks = add(len(groups), size_bytes=sizes)
            for task, group, step in zip(tasks.tolist(), groups, steps, strict=True):
                devices = tuple(group.tolist())
                self.collectives[task] = Collective(devices, _among(step, devices), buffer_bytes)
            self.tasks.wait(tasks[row], after)
            row, after = np.arange(len(groups)), tasks
        return groups.ravel(), np.repeat(after, groups.shape[1])

    def _messages(
        self, add: _Add, groups: Ints, plans: Sequence[tuple[Round, ...]], ready: Rows, buffer_bytes: float
    ) -> tuple[Ints, Ints]:
        """One task a message; returns pairs (device, what brings it a part of its result)."""
        expanded = [_expanded(plan, groups.shape[1]) for plan in plans]
        made = len(groups) * len(expanded[0].share)
        check_memory((self.tasks.size + made) * _TASK_BYTES, f"lowering {self.tasks.size + made:,} tasks")
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
            place.size, device=source.ravel()[order], peer=target.ravel()[order],
            part=np.array([messages.first_piece for messages in expanded]).ravel()[order],
            size_bytes=np.array([messages.share for messages in expanded]).ravel()[order] * buffer_bytes,
            group=self.tasks.group + 1 + np.tile(step, count)[order],
        )  # fmt: skip
        self.tasks.group += len(counts)
        device, arrived = [], []
        for group, messages, ids in zip(groups, expanded, tasks[place], strict=True):
            self.tasks.wait(ids[messages.waits[0]], ids[messages.waits[1]])
            own, after = ready.take(group[messages.source[messages.own]])
            self.tasks.wait(ids[messages.own][own], after)
            device.append(group[messages.last[0]])
            arrived.append(ids[messages.last[1]])
        return np.concatenate(device), np.concatenate(arrived)

    def _update(self, unit: _Unit, part: Ints, after: Ints) -> Ints:
        """Update tasks come last in program order: a device's stream runs them after its backward pass."""
        tasks = self._compute(unit, "update", backward=True)
        self.tasks.wait(tasks[part], after)
        return np.column_stack([self.forward[unit[0], 0], tasks])

    def _program(self, carried: list[Ints]) -> Program:
        size = self.tasks.size
        low, high = np.zeros((size, _DIMS), dtype=np.int64), np.zeros((size, _DIMS), dtype=np.int64)
        for tasks, regions in self.boxes:
            dims = regions.low.shape[1]
            low[tasks, :dims], high[tasks] = regions.low, 1
            high[tasks, :dims] = regions.high
        after_start, after = self.tasks.dependencies()
        return Program(
            graph=self.graph,
            cluster=self.model.cluster,
            spaces=tuple(self.whole),
            cut=self.cut,
            sub_spaces=tuple(self.cut_spaces),
            delivered_by=self.delivered_by,
            box_low=low,
            box_high=high,
            collectives=self.collectives,
            after_start=after_start,
            after=after,
            carried=np.concatenate([np.empty((0, 2), dtype=np.int64), *carried]),
            **self.tasks.columns(),
        )


@lru_cache(maxsize=256)
def _among(step: Round, devices: tuple[int, ...]) -> Round:
    """A round between devices; layers that exchange alike share it."""
    return step.among(np.array(devices))


@lru_cache(maxsize=64)
def _expanded(plan: tuple[Round, ...], count: int) -> Messages:
    return messages_of(plan, count)


def lower(
    model: CostModel, spaces: Sequence[ConfigSpace], *, cut: Cut = WHOLE, collectives: str = "activity"
) -> Program:
    """Lower a strategy into the program of one iteration.

    Args:
        model: Graph, cluster and exchange scheme, with their prices.
        spaces: For every layer the space that holds its one configuration.
        cut: Which layers take the mini-batch in sub-batches.
        collectives: ``activity``: each round of an exchange, with its repeats, is one task on all its links;
            ``steps``: each message is a task, which waits for the messages that bring what it carries.

    Returns:
        The program, tasks in program order: forward, backward with the exchanges, updates.

    Raises:
        ConfigError: ``collectives`` is neither, or parts of a sub-batch would not be equal.
        InfeasiblePlanError: There is no memory for so many messages.
    """
    if collectives not in ("activity", "steps"):
        raise ConfigError(f"collectives must be activity or steps, got {collectives!r}")
    return _Lowering(model, spaces, cut, expand=collectives == "steps").run()
