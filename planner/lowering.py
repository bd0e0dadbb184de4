"""Lowering: from a strategy to the program of one iteration, region by region.

Tasks are made a layer at a time, as arrays: a program of millions of tasks takes no longer than its replay.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hwprofiles.errors import ConfigError
from planner.configurations import ConfigSpace
from planner.costs import CostModel, part_times
from planner.exchange import chosen, group_rounds, replica_groups
from planner.graph import Edge
from planner.program import KINDS, Collective, Program
from planner.regions import Pieces, pieces_of
from simulator.collectives import ALL_REDUCES, Messages, Round, messages_of
from simulator.memory_need import check_memory

__all__ = ["lower"]

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
_DIMS = 5
_TASK_BYTES = 400  # of a message with its dependencies, while they are put in order
_Add = Callable[..., Ints]
"""``_Tasks.add`` of one kind and layer."""
_COLUMNS = {
    "kind": -1, "layer": -1, "consumer": -1, "slot": -1, "backward": False, "statistics": False, "device": -1,
    "peer": -1, "part": -1, "group": -1, "size_bytes": 0.0, "work_s": 0.0,
}  # fmt: skip
"""What tasks are made of, with what holds where nothing else is said."""


@dataclass(frozen=True, slots=True)
class _Rows:
    """For every part of a layer, or every device that holds one, the tasks after which it has something."""

    start: Ints
    task: Ints
    single: bool
    """Whether none has more than one."""

    @classmethod
    def of(cls, row: Ints, task: Ints, count: int) -> "_Rows":
        """Pairs (row, task) by row, of which there are ``count``."""
        counts = np.bincount(row, minlength=count)
        start = np.concatenate([[0], np.cumsum(counts)])
        return cls(start, task[np.argsort(row, kind="stable")], bool(counts.max() == 1))

    def take(self, rows: Ints) -> tuple[Ints, Ints]:
        """Pairs (place in ``rows``, task); the rows asked for have some."""
        if self.single:
            return np.arange(len(rows)), self.task[self.start[rows]]
        counts = np.diff(self.start)[rows]
        place = np.repeat(np.arange(len(rows)), counts)
        shift = self.start[rows] - np.cumsum(counts) + counts
        return place, self.task[np.arange(len(place)) + shift[place]]


@dataclass
class _Delivery:
    """One tensor brought into one layout; consumers that ask for the same layout share it."""

    edge: Edge
    """The first that asked for the layout."""
    regions: Pieces
    arrived: tuple[Ints, Ints]
    """Pairs: a device, and a task after which a region is there."""
    sharers: list[int] = field(default_factory=list)
    """Layers that read it."""


class _Tasks:
    """Tasks under construction: arrays by column, and pairs (task, what it waits for)."""

    def __init__(self) -> None:
        self.size, self.group = 0, -1
        self.rows: list[tuple[slice, dict[str, Ints | Floats | float]]] = []
        self.task: list[Ints] = []
        self.after: list[Ints] = []

    def add(self, kind: str, layer: int, count: int, **values: Ints | Floats | float) -> Ints:
        """Append tasks of the current group; returns their ids, shape (count,)."""
        rows = slice(self.size, self.size + count)
        self.rows.append((rows, {"kind": KINDS.index(kind), "layer": layer, "group": self.group, **values}))
        self.size = rows.stop
        return np.arange(rows.start, rows.stop)

    def columns(self) -> dict[str, NDArray[Any]]:
        """What was given to ``add``, as arrays of shape (size,)."""
        columns = {name: np.full(self.size, default) for name, default in _COLUMNS.items()}
        for rows, values in self.rows:
            for name, value in values.items():
                columns[name][rows] = value
        return columns

    def wait(self, task: Ints, after: Ints) -> None:
        """Let tasks wait for others, pair by pair."""
        self.task.append(task)
        self.after.append(after)

    def dependencies(self) -> tuple[Ints, Ints]:
        """Rows of what each task waits for, each once, in order."""
        empty = np.empty(0, dtype=np.int64)
        task, after = np.concatenate([empty, *self.task]), np.concatenate([empty, *self.after])
        pairs = np.sort(task * self.size + after, kind="stable")
        task, after = np.divmod(pairs[np.diff(pairs, prepend=-1) > 0], max(self.size, 1))
        return np.concatenate([[0], np.cumsum(np.bincount(task, minlength=self.size))]), after


class _Lowering:
    def __init__(self, model: CostModel, spaces: Sequence[ConfigSpace], *, expand: bool) -> None:
        self.model, self.graph, self.spaces, self.expand = model, model.graph, spaces, expand
        self.tasks = _Tasks()
        self.boxes: list[tuple[Ints, Pieces]] = []
        self.collectives: dict[int, Collective] = {}
        none: list[Ints] = [np.empty(0, dtype=np.int64)] * len(spaces)
        self.forward, self.gradient = list(none), list(none)  # task of each part, by layer
        self.made: list[_Rows] = []  # by layer, after which tasks each part of its output is there
        self.updates: list[tuple[int, Ints, Ints]] = []  # layer, and pairs (part, what its update waits for)
        self.deliveries: list[dict[int, _Delivery]] = [{} for _ in spaces]  # by producer and layout
        self.delivered_by: dict[Edge, Edge] = {}
        self.times = [part_times(model, i, space) for i, space in enumerate(spaces)]

    def run(self) -> Program:
        """Forward, backward with the exchanges, updates."""
        layers = range(len(self.spaces))
        for i in layers:
            self._forward(i)
        for i in reversed(layers):
            if self.graph.has_gradient(i):
                self._backward(i)
        carried = [self._update(*row) for row in self.updates]
        return self._program(carried)

    def _compute(self, i: int, phase: str, *, backward: bool) -> Ints:
        """One task a part."""
        self.tasks.group += 1
        devices = self.spaces[i].devices
        return self.tasks.add(
            phase, i, len(devices), device=devices, part=np.arange(len(devices)), backward=backward,
            work_s=self.times[i][phase],
        )  # fmt: skip

    def _by_device(self, i: int, tasks: Ints) -> Ints:
        """Task of a layer on each device; -1 where it has none."""
        table = np.full(len(self.model.cluster.devices), -1, dtype=np.int64)
        table[self.spaces[i].devices] = tasks
        return table

    def _forward(self, i: int) -> None:
        deliveries = [self._deliver(edge) for edge in self.graph.producers[i]]
        self.forward[i] = tasks = self._compute(i, "forward", backward=False)
        table = self._by_device(i, tasks)
        for delivery in deliveries:
            device, arrived = delivery.arrived
            self.tasks.wait(table[device], arrived)
        self.made.append(_Rows.of(*self._normalised(i, np.arange(len(tasks)), tasks, backward=False), len(tasks)))

    def _deliver(self, edge: Edge) -> _Delivery:
        """Send what the consumer lacks, unless another consumer of the tensor asked for the same."""
        u, v = edge.producer, edge.consumer
        layout = int(self.model.layouts(edge, self.spaces[v])[0])
        delivery = self.deliveries[u].get(layout)
        if delivery is None:
            layer, source = self.graph.layers[v], self.graph.layers[u].output
            needs = layer.operation.needs(edge.slot, layer.input_shapes)
            regions = pieces_of(self.spaces[u], self.spaces[v], needs, source, len(self.model.cluster.devices))
            sources = self.spaces[u].devices[regions.part]
            at, made = self.made[u].take(regions.part)
            away = (sources != regions.device)[at]
            remote = np.flatnonzero(sources != regions.device)
            self.tasks.group += 1
            sends = self._send(edge, regions.take(remote), sources[remote], regions.device[remote], backward=False)
            self.tasks.wait(sends[np.searchsorted(remote, at[away])], made[away])
            arrived = np.concatenate([made[~away], sends])
            device = regions.device[np.concatenate([at[~away], remote])]
            delivery = self.deliveries[u][layout] = _Delivery(edge, regions, (device, arrived))
        delivery.sharers.append(v)
        self.delivered_by[edge] = delivery.edge
        return delivery

    def _send(self, edge: Edge, regions: Pieces, source: Ints, target: Ints, *, backward: bool) -> Ints:
        elements = (regions.high - regions.low).prod(axis=1)
        sends = self.tasks.add(
            "transfer", edge.producer, len(source), consumer=edge.consumer, slot=edge.slot, backward=backward,
            device=source, peer=target, part=regions.part, size_bytes=elements * float(self.graph.element_bytes),
        )  # fmt: skip
        self.boxes.append((sends, regions))
        return sends

    def _backward(self, i: int) -> None:
        part, after = self._normalised(i, *self._gradients(i), backward=True)
        for phase in ("activation_gradient", "weight_gradient"):
            if not self.graph.has_phase(i, phase):
                continue
            tasks = self._compute(i, phase, backward=True)
            self.tasks.wait(tasks[part], after)
            if phase == "activation_gradient":
                self.gradient[i] = tasks
            else:
                self.updates.append((i, *self._exchange(i, tasks)))

    def _gradients(self, i: int) -> tuple[Ints, Ints]:
        """Pairs (part, what its backward tasks wait for): gradients from all consumers, or its output."""
        parts, waits = [np.empty(0, dtype=np.int64)], [np.empty(0, dtype=np.int64)]
        for delivery in self.deliveries[i].values():
            regions = delivery.regions
            targets = self.spaces[i].devices[regions.part]
            remote = np.flatnonzero(targets != regions.device)
            local = np.flatnonzero(targets == regions.device)
            self.tasks.group += 1
            sends = self._send(
                delivery.edge, regions.take(remote), regions.device[remote], targets[remote], backward=True
            )
            parts.append(regions.part[remote])
            waits.append(sends)
            for sharer in delivery.sharers:
                ready = self._by_device(sharer, self.gradient[sharer])[regions.device]
                self.tasks.wait(sends, ready[remote])
                parts.append(regions.part[local])
                waits.append(ready[local])
        unread = np.flatnonzero(np.bincount(np.concatenate(parts), minlength=len(self.forward[i])) == 0)
        place, made = self.made[i].take(unread)
        return np.concatenate([*parts, unread[place]]), np.concatenate([*waits, made])

    def _normalised(self, i: int, part: Ints, after: Ints, *, backward: bool) -> tuple[Ints, Ints]:
        """Pairs (part, task), with those of the statistics that are summed once they are done, where there are any."""
        size = self.model.statistics_bytes(i)
        if not size:
            return part, after
        summed = self._all_reduce(i, size, True, part, after, backward=backward, statistics=True)
        return np.concatenate([part, summed[0]]), np.concatenate([after, summed[1]])

    def _exchange(self, i: int, gradients: Ints) -> tuple[Ints, Ints]:
        """Exchange a layer's gradients; returns pairs (part, what its update waits for)."""
        parameters, part = self.graph.layers[i].parameters, np.arange(len(gradients))
        parts, waits = [part], [gradients]
        for split in (True, False):
            size = sum(p.elements for p in parameters if p.split is split) * self.graph.element_bytes
            summed = self._all_reduce(i, size, split, part, gradients, backward=True)
            parts.append(summed[0])
            waits.append(summed[1])
        return np.concatenate(parts), np.concatenate(waits)

    def _all_reduce(
        self, i: int, size: float, split: bool, part: Ints, after: Ints, **flags: bool
    ) -> tuple[Ints, Ints]:
        """Sum a buffer over a layer's replicas.

        Args:
            i: The layer.
            size: Bytes of all shards of the buffer.
            split: Whether a split of the channel dimension splits it.
            part, after: Pairs: a part, and a task after which what it adds is there.
            flags: Columns of the tasks.

        Returns:
            Pairs (part, what brings its result); none where no part has a replica.
        """
        space, network, scheme = self.spaces[i], self.model.network, self.model.exchange
        before, channel, *rest = space.degrees[0].tolist()
        shape = (before, channel, int(np.prod(rest, dtype=np.int64)))
        groups = replica_groups(network.rank, *shape, space.devices, split)
        if not size or groups.shape[1] == 1:
            return np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64)
        if scheme not in ALL_REDUCES:  # to be chosen, or unknown
            scheme = chosen(network, scheme, space, float(size), split=split).scheme
        plans = group_rounds(network, scheme, groups)
        ready = _Rows.of(space.devices[part], after, network.device_count)
        send = self._messages if self.expand else self._activities
        add = partial(self.tasks.add, "collective", i, **flags)
        device, arrived = send(add, groups, plans, ready, size / (channel if split else 1))
        return self._by_device(i, np.arange(len(space.devices)))[device], arrived

    def _activities(
        self, add: _Add, groups: Ints, plans: Sequence[tuple[Round, ...]], ready: _Rows, buffer_bytes: float
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
        self, add: _Add, groups: Ints, plans: Sequence[tuple[Round, ...]], ready: _Rows, buffer_bytes: float
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

    def _update(self, i: int, part: Ints, after: Ints) -> Ints:
        """Update tasks come last in program order: a device's stream runs them after its backward pass."""
        tasks = self._compute(i, "update", backward=True)
        self.tasks.wait(tasks[part], after)
        return np.column_stack([self.forward[i], tasks])

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
            spaces=tuple(self.spaces),
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


def lower(model: CostModel, spaces: Sequence[ConfigSpace], *, collectives: str = "activity") -> Program:
    """Lower a strategy into the program of one iteration.

    Args:
        model: Graph, cluster and exchange scheme, with their prices.
        spaces: For every layer the space that holds its one configuration.
        collectives: ``activity``: each round of an exchange, with its repeats, is one task on all its links;
            ``steps``: each message is a task, which waits for the messages that bring what it carries.

    Returns:
        The program, tasks in program order: forward, backward with the exchanges, updates.

    Raises:
        ConfigError: ``collectives`` is neither.
        InfeasiblePlanError: There is no memory for so many messages.
    """
    if collectives not in ("activity", "steps"):
        raise ConfigError(f"collectives must be activity or steps, got {collectives!r}")
    return _Lowering(model, spaces, expand=collectives == "steps").run()
