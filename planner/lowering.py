"""Lowering: from a strategy to the program of one iteration, region by region.

Tasks are made a layer at a time, as arrays: a program of millions of tasks takes no longer than its replay.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
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
_COLUMNS = {
    "kind": -1, "layer": -1, "consumer": -1, "slot": -1, "backward": False, "device": -1, "peer": -1, "part": -1, "group": -1,
    "size_bytes": 0.0, "work_s": 0.0,
}  # fmt: skip
"""What tasks are made of, with what holds where nothing else is said."""


@dataclass
class _Delivery:
    """One tensor brought into one layout; consumers that ask for the same layout share it."""

    edge: Edge
    """The first that asked for the layout."""
    regions: Pieces
    arrived: Ints
    """Shape (K,): the task after which each region is where it is needed."""
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
        self.forward[i] = self._compute(i, "forward", backward=False)
        table = self._by_device(i, self.forward[i])
        for delivery in deliveries:
            self.tasks.wait(table[delivery.regions.device], delivery.arrived)

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
            arrived = self.forward[u][regions.part]
            remote = np.flatnonzero(sources != regions.device)
            self.tasks.group += 1
            sends = self._send(edge, regions.take(remote), sources[remote], regions.device[remote], backward=False)
            self.tasks.wait(sends, arrived[remote])
            arrived[remote] = sends
            delivery = self.deliveries[u][layout] = _Delivery(edge, regions, arrived)
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
        part, after = self._gradients(i)
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
        """Pairs (part, what its backward tasks wait for): gradients from all consumers, or the own forward."""
        if not self.deliveries[i]:
            return np.arange(len(self.forward[i])), self.forward[i]
        parts, waits = [], []
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
        return np.concatenate(parts), np.concatenate(waits)

    def _exchange(self, i: int, gradients: Ints) -> tuple[Ints, Ints]:
        """Exchange a layer's gradients; returns pairs (part, what its update waits for)."""
        space, layer, network = self.spaces[i], self.graph.layers[i], self.model.network
        before, channel, *rest = space.degrees[0].tolist()
        task_of, part_of = self._by_device(i, gradients), self._by_device(i, np.arange(len(gradients)))
        parts, waits = [np.arange(len(gradients))], [gradients]
        for split in (True, False):
            size = sum(p.elements for p in layer.parameters if p.split is split) * self.graph.element_bytes
            shape = (before, channel, int(np.prod(rest, dtype=np.int64)))
            groups = replica_groups(self.model.network.rank, *shape, space.devices, split)
            if not size or groups.shape[1] == 1:
                continue
            scheme = self.model.exchange
            if scheme not in ALL_REDUCES:  # to be chosen, or unknown
                scheme = chosen(network, scheme, space, float(size), split=split).scheme
            plans = group_rounds(network, scheme, groups)
            send = self._messages if self.expand else self._activities
            device, arrived = send(i, groups, plans, task_of, size / (channel if split else 1))
            parts.append(part_of[device])
            waits.append(arrived)
        return np.concatenate(parts), np.concatenate(waits)

    def _activities(
        self, i: int, groups: Ints, plans: Sequence[tuple[Round, ...]], gradients: Ints, buffer_bytes: float
    ) -> tuple[Ints, Ints]:
        """One task a round and group; returns pairs (device, what brings its result)."""
        done = gradients[groups]
        for steps in zip(*plans, strict=True):
            self.tasks.group += 1
            sizes = np.array([buffer_bytes * step.share * step.repeats * len(step.source) for step in steps])
            tasks = self.tasks.add("collective", i, len(groups), backward=True, size_bytes=sizes)
            for task, group, step in zip(tasks.tolist(), groups, steps, strict=True):
                devices = tuple(group.tolist())
                self.collectives[task] = Collective(devices, _among(step, devices), buffer_bytes)
            self.tasks.wait(np.repeat(tasks, done.shape[1]), done.ravel())
            done = tasks[:, None]
        return groups.ravel(), np.repeat(done[:, 0], groups.shape[1])

    def _messages(
        self, i: int, groups: Ints, plans: Sequence[tuple[Round, ...]], gradients: Ints, buffer_bytes: float
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
        tasks = self.tasks.add(
            "collective", i, place.size, backward=True, device=source.ravel()[order], peer=target.ravel()[order],
            part=np.array([messages.first_piece for messages in expanded]).ravel()[order],
            size_bytes=np.array([messages.share for messages in expanded]).ravel()[order] * buffer_bytes,
            group=self.tasks.group + 1 + np.tile(step, count)[order],
        )  # fmt: skip
        self.tasks.group += len(counts)
        device, arrived = [], []
        for group, messages, ids in zip(groups, expanded, tasks[place], strict=True):
            self.tasks.wait(ids[messages.waits[0]], ids[messages.waits[1]])
            self.tasks.wait(ids[messages.own], gradients[group[messages.source[messages.own]]])
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
