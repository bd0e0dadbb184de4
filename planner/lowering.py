"""Lowering: from a strategy to the program of one iteration, region by region.

Tasks are made a layer at a time, as arrays: a program of millions of tasks takes no longer than its replay.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from planner.configurations import ConfigSpace
from planner.costs import CostModel, part_times
from planner.exchange import chosen, group_rounds, replica_groups
from planner.graph import Edge
from planner.program import KINDS, Collective, Program
from planner.regions import Pieces, pieces_of
from simulator.collectives import Round

__all__ = ["lower"]

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
_DIMS = 5
_INTEGERS = ("kind", "layer", "consumer", "backward", "device", "peer", "part", "group")


@dataclass
class _Delivery:
    """One tensor brought into one layout; consumers that ask for the same layout share it."""

    consumer: int
    regions: Pieces
    arrived: Ints
    """Shape (K,): the task after which each region is where it is needed."""
    sharers: list[int] = field(default_factory=list)
    """Layers that read it."""


class _Tasks:
    """Tasks under construction: arrays by column, and pairs (task, what it waits for)."""

    def __init__(self) -> None:
        self.size, self.group = 0, -1
        self.columns: dict[str, list[NDArray[Any]]] = {
            name: [] for name in (*_INTEGERS, "size_bytes", "work_s")
        }
        self.task: list[Ints] = []
        self.after: list[Ints] = []

    def add(self, kind: str, layer: int, count: int, **values: Ints | Floats | float) -> Ints:
        """Append tasks of the current group; returns their ids, shape (count,)."""
        row: dict[str, Ints | Floats | float] = {
            "consumer": -1, "backward": 0, "device": -1, "peer": -1, "part": -1, "size_bytes": 0.0, "work_s": 0.0,
        }  # fmt: skip
        row |= {"kind": KINDS.index(kind), "layer": layer, "group": self.group, **values}
        for name, column in self.columns.items():
            dtype = np.int64 if name in _INTEGERS else np.float64
            column.append(np.broadcast_to(np.asarray(row[name], dtype=dtype), (count,)))
        self.size += count
        return np.arange(self.size - count, self.size)

    def wait(self, task: Ints, after: Ints) -> None:
        """Let tasks wait for others, pair by pair."""
        self.task.append(task)
        self.after.append(after)

    def dependencies(self) -> tuple[Ints, Ints]:
        """Rows of what each task waits for, each once, in order."""
        empty = np.empty(0, dtype=np.int64)
        task, after = np.concatenate([empty, *self.task]), np.concatenate([empty, *self.after])
        order = np.unique(task * self.size + after)
        task, after = np.divmod(order, max(self.size, 1))
        return np.searchsorted(task, np.arange(self.size + 1)), after


class _Lowering:
    def __init__(self, model: CostModel, spaces: Sequence[ConfigSpace]) -> None:
        self.model, self.graph, self.spaces = model, model.graph, spaces
        self.tasks = _Tasks()
        self.boxes: list[tuple[Ints, Pieces]] = []
        self.collectives: dict[int, Collective] = {}
        none: list[Ints] = [np.empty(0, dtype=np.int64)] * len(spaces)
        self.forward, self.gradient = list(none), list(none)  # task of each part, by layer
        self.updates: list[tuple[int, Ints, Ints]] = []  # layer, and pairs (part, what its update waits for)
        self.deliveries: list[dict[int, _Delivery]] = [{} for _ in spaces]  # by producer and layout
        self.times = [part_times(model, i, space) for i, space in enumerate(spaces)]

    def run(self) -> Program:
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
            sends = self._send(u, v, regions.take(remote), sources[remote], regions.device[remote], backward=False)
            self.tasks.wait(sends, arrived[remote])
            arrived[remote] = sends
            delivery = self.deliveries[u][layout] = _Delivery(v, regions, arrived)
        delivery.sharers.append(v)
        return delivery

    def _send(self, u: int, v: int, regions: Pieces, source: Ints, target: Ints, *, backward: bool) -> Ints:
        elements = (regions.high - regions.low).prod(axis=1)
        sends = self.tasks.add(
            "transfer", u, len(source), consumer=v, backward=backward, device=source, peer=target, part=regions.part,
            size_bytes=elements * float(self.graph.element_bytes),
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
                i, delivery.consumer, regions.take(remote), regions.device[remote], targets[remote], backward=True
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
        space, layer = self.spaces[i], self.graph.layers[i]
        before, channel, *rest = space.degrees[0].tolist()
        task_of, part_of = self._by_device(i, gradients), self._by_device(i, np.arange(len(gradients)))
        parts, waits = [np.arange(len(gradients))], [gradients]
        for split in (True, False):
            size = sum(p.elements for p in layer.parameters if p.split is split) * self.graph.element_bytes
            shape = (before, channel, int(np.prod(rest, dtype=np.int64)))
            groups = replica_groups(*shape, space.devices, split)
            if not size or groups.shape[1] == 1:
                continue
            network = self.model.network
            scheme = chosen(network, self.model.exchange, space, float(size), split=split).scheme
            plans = group_rounds(network, scheme, groups)
            done = task_of[groups]
            for steps in zip(*plans, strict=True):
                tasks = self._collectives(i, groups, steps, size / (channel if split else 1))
                self.tasks.wait(np.repeat(tasks, done.shape[1]), done.ravel())
                done = tasks[:, None]
            parts.append(part_of[groups].ravel())
            waits.append(np.repeat(done[:, 0], groups.shape[1]))
        return np.concatenate(parts), np.concatenate(waits)

    def _collectives(self, i: int, groups: Ints, steps: Sequence[Round], buffer_bytes: float) -> Ints:
        """One round of the exchange, a task a group."""
        self.tasks.group += 1
        sizes = np.array([buffer_bytes * step.share * step.repeats * len(step.source) for step in steps])
        tasks = self.tasks.add("collective", i, len(groups), backward=True, size_bytes=sizes)
        for task, group, step in zip(tasks.tolist(), groups, steps, strict=True):
            self.collectives[task] = Collective(tuple(group.tolist()), step.among(group), buffer_bytes)
        return tasks

    def _update(self, i: int, part: Ints, after: Ints) -> Ints:
        """Update tasks come last in program order: a device's stream runs them after its backward pass."""
        tasks = self._compute(i, "update", backward=True)
        self.tasks.wait(tasks[part], after)
        return np.column_stack([self.forward[i], tasks])

    def _program(self, carried: list[Ints]) -> Program:
        size, columns = self.tasks.size, {n: np.concatenate(c) for n, c in self.tasks.columns.items()}
        low, high = np.zeros((size, _DIMS), dtype=np.int64), np.zeros((size, _DIMS), dtype=np.int64)
        for tasks, regions in self.boxes:
            dims = regions.low.shape[1]
            low[tasks, :dims], high[tasks] = regions.low, 1
            high[tasks, :dims] = regions.high
        after_start, after = self.tasks.dependencies()
        columns["backward"] = columns["backward"].astype(bool)
        return Program(
            graph=self.graph,
            cluster=self.model.cluster,
            channel_degree=tuple(int(space.degrees[0, 1]) for space in self.spaces),
            box_low=low,
            box_high=high,
            collectives=self.collectives,
            after_start=after_start,
            after=after,
            carried=np.concatenate([np.empty((0, 2), dtype=np.int64), *carried]),
            **columns,
        )


def lower(model: CostModel, spaces: Sequence[ConfigSpace]) -> Program:
    """Lower a strategy into the program of one iteration.

    Args:
        model: Graph, cluster and exchange scheme, with their prices.
        spaces: For every layer the space that holds its one configuration.

    Returns:
        The program, tasks in program order: forward, backward with the exchanges, updates.
    """
    return _Lowering(model, spaces).run()
