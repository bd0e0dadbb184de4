"""Lowering: from a strategy to the program of one iteration, region by region."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from planner.configurations import ConfigSpace, part_bounds
from planner.costs import CostModel, part_times
from planner.exchange import replica_groups
from planner.graph import Edge
from planner.program import KINDS, Collective, Program
from planner.regions import needed
from simulator.collectives import Round, all_reduce
from simulator.task_graph import pack_rows

__all__ = ["lower"]

Ints = NDArray[np.int64]
_DIMS = 5


@dataclass
class _Region:
    """What the device ``device`` needs from part ``part`` of a producer."""

    part: int
    device: int
    low: tuple[int, ...]
    high: tuple[int, ...]


@dataclass
class _Delivery:
    """One tensor brought into one layout; consumers that ask for the same layout share it."""

    consumer: int
    regions: list[_Region]
    arrived: dict[int, list[int]]
    """Tasks after which a device has all that it needs."""
    sharers: list[int] = field(default_factory=list)
    """Layers that read it."""


class _Rows:
    """Tasks under construction: one list a column."""

    def __init__(self) -> None:
        self.columns: dict[str, list[float]] = {
            name: []
            for name in ("kind", "layer", "consumer", "backward", "device", "peer", "part", "size", "work", "group")
        }
        self.boxes: list[tuple[tuple[int, ...], tuple[int, ...]]] = []
        self.after: list[list[int]] = []
        self.group = -1

    def add(self, kind: str, layer: int, after: list[int], **values: float) -> int:
        """Append a task of the current group; returns its id."""
        row = {"consumer": -1, "backward": 0, "device": -1, "peer": -1, "part": -1, "size": 0.0, "work": 0.0, **values}
        row |= {"kind": KINDS.index(kind), "layer": layer, "group": self.group}
        for name, column in self.columns.items():
            column.append(row[name])
        self.after.append(after)
        return len(self.after) - 1


class _Lowering:
    def __init__(self, model: CostModel, spaces: Sequence[ConfigSpace]) -> None:
        self.model, self.graph, self.spaces = model, model.graph, spaces
        self.rows = _Rows()
        self.boxes: dict[int, _Region] = {}
        self.collectives: dict[int, Collective] = {}
        self.forward: list[list[int]] = []  # task of each part, by layer
        self.gradient: list[list[int]] = [[] for _ in self.graph.layers]  # activation gradient, the same
        self.updates: list[tuple[int, list[list[int]]]] = []  # layer, what each part's update waits for
        self.deliveries: list[dict[int, _Delivery]] = [{} for _ in self.graph.layers]  # by producer and layout
        self.times = [part_times(model, i, space) for i, space in enumerate(spaces)]

    def run(self) -> Program:
        layers = range(len(self.graph.layers))
        for i in layers:
            self._forward(i)
        for i in reversed(layers):
            self._backward(i)
        carried = [pair for i, waits in self.updates for pair in self._update(i, waits)]
        return self._program(carried)

    def _forward(self, i: int) -> None:
        arrivals = [self._deliver(edge) for edge in self.graph.producers[i]]
        self.rows.group += 1
        ids = []
        for part, device in enumerate(self.spaces[i].devices.tolist()):
            after = [task for arrived in arrivals for task in arrived.get(device, [])]
            work = self.times[i]["forward"][part]
            ids.append(self.rows.add("forward", i, after, device=device, part=part, work=work))
        self.forward.append(ids)

    def _deliver(self, edge: Edge) -> dict[int, list[int]]:
        """Send what the consumer lacks, unless another consumer of the tensor asked for the same."""
        layout = int(self.model.layouts(edge, self.spaces[edge.consumer])[0])
        known = self.deliveries[edge.producer].get(layout)
        if known is None:
            known = _Delivery(edge.consumer, self._regions(edge), {})
            self.deliveries[edge.producer][layout] = known
            self.rows.group += 1
            for region in known.regions:
                task = self.forward[edge.producer][region.part]
                source = int(self.spaces[edge.producer].devices[region.part])
                if source != region.device:
                    task = self._send(edge.producer, known.consumer, region, source, region.device, [task], backward=0)
                known.arrived.setdefault(region.device, []).append(task)
        known.sharers.append(edge.consumer)
        return known.arrived

    def _send(
        self, layer: int, consumer: int, region: _Region, source: int, target: int, after: list[int], *, backward: int
    ) -> int:
        elements = np.prod([high - low for low, high in zip(region.low, region.high, strict=True)], dtype=np.int64)
        task = self.rows.add(
            "transfer", layer, after, consumer=consumer, backward=backward, device=source, peer=target,
            part=region.part, size=float(elements) * self.graph.element_bytes,
        )  # fmt: skip
        self.boxes[task] = region
        return task

    def _regions(self, edge: Edge) -> list[_Region]:
        """Producer region by producer region, what each part of the consumer needs."""
        layer, source = self.graph.layers[edge.consumer], self.graph.layers[edge.producer].output
        producer, consumer = self.spaces[edge.producer], self.spaces[edge.consumer]
        boxes = needed(consumer, layer.operation.needs(edge.slot, layer.input_shapes), source)
        degrees = producer.degrees[0]
        bounds = [part_bounds(size, degree) for size, degree in zip(source.sizes, degrees.tolist(), strict=True)]
        regions = []
        for device, low, high in zip(consumer.devices.tolist(), boxes.low.tolist(), boxes.high.tolist(), strict=True):
            if low[0] == high[0]:
                continue
            ranges = [
                range(int(np.searchsorted(b, lo, side="right")) - 1, int(np.searchsorted(b, hi, side="left")))
                for b, lo, hi in zip(bounds, low, high, strict=True)
            ]
            for index in np.ndindex(*(len(r) for r in ranges)):
                at = [r[k] for r, k in zip(ranges, index, strict=True)]
                part = int(np.ravel_multi_index(at, tuple(degrees)))
                cut_low = tuple(max(int(b[k]), lo) for b, k, lo in zip(bounds, at, low, strict=True))
                cut_high = tuple(min(int(b[k + 1]), hi) for b, k, hi in zip(bounds, at, high, strict=True))
                regions.append(_Region(part, device, cut_low, cut_high))
        # In turns, as an all-to-all is sent: first everyone to its next, then to the one after; so that whoever
        # shares a port or a link does not queue behind all messages to one receiver.
        count, holders = len(self.model.cluster.devices), producer.devices.tolist()
        return sorted(regions, key=lambda r: ((r.device - holders[r.part]) % count, r.device))

    def _backward(self, i: int) -> None:
        layer = self.graph.layers[i]
        if not self.graph.has_gradient(i):
            return
        waits = self._gradients(i)
        for phase in ("activation_gradient", "weight_gradient"):
            if not self.graph.has_phase(i, phase):
                continue
            self.rows.group += 1
            times = self.times[i][phase]
            ids = [
                self.rows.add(phase, i, waits[part], backward=1, device=device, part=part, work=times[part])
                for part, device in enumerate(self.spaces[i].devices.tolist())
            ]
            if phase == "activation_gradient":
                self.gradient[i] = ids
            elif layer.parameters:
                self.updates.append((i, self._exchange(i, ids)))

    def _gradients(self, i: int) -> list[list[int]]:
        """What the backward tasks of each part wait for: gradients from all consumers, or the own forward."""
        waits: list[list[int]] = [[] for _ in self.forward[i]]
        for delivery in self.deliveries[i].values():
            ready: dict[int, list[int]] = {}
            for sharer in delivery.sharers:
                for device, task in zip(self.spaces[sharer].devices.tolist(), self.gradient[sharer], strict=True):
                    ready.setdefault(device, []).append(task)
            self.rows.group += 1
            for region in delivery.regions:
                target = int(self.spaces[i].devices[region.part])
                after = ready[region.device]
                if target != region.device:
                    after = [self._send(i, delivery.consumer, region, region.device, target, after, backward=1)]
                waits[region.part].extend(after)
        return waits if self.deliveries[i] else [[task] for task in self.forward[i]]

    def _exchange(self, i: int, gradients: list[int]) -> list[list[int]]:
        """Exchange a layer's gradients; returns what the update of each part waits for."""
        space, layer = self.spaces[i], self.graph.layers[i]
        before, channel, *after = space.degrees[0].tolist()
        task_of = dict(zip(space.devices.tolist(), gradients, strict=True))
        waits = {device: [task] for device, task in task_of.items()}
        for split in (True, False):
            size = sum(p.elements for p in layer.parameters if p.split is split) * self.graph.element_bytes
            if not size:
                continue
            shape = (before, channel, int(np.prod(after, dtype=np.int64)))
            groups = replica_groups(*shape, space.devices, split).tolist()
            plans = all_reduce(self.model.exchange, groups, self.model.network.node.tolist())
            done = [[task_of[device] for device in group] for group in groups]
            for steps in zip(*plans, strict=True):
                self.rows.group += 1
                for g, step in enumerate(steps):
                    buffer = size / (channel if split else 1)
                    done[g] = [self._collective(i, tuple(groups[g]), step, buffer, done[g])]
            for group, tasks in zip(groups, done, strict=True):
                for device in group:
                    waits[device] = waits[device] + tasks if len(group) > 1 else waits[device]
        return [waits[device] for device in space.devices.tolist()]

    def _collective(self, i: int, devices: tuple[int, ...], step: Round, buffer: float, after: list[int]) -> int:
        size = buffer * step.share * step.repeats * len(step.source)
        task = self.rows.add("collective", i, after, backward=1, size=size)
        self.collectives[task] = Collective(devices, step, buffer)
        return task

    def _update(self, i: int, waits: list[list[int]]) -> list[tuple[int, int]]:
        """Update tasks come last in program order: a device's stream runs them after its backward pass."""
        self.rows.group += 1
        pairs = []
        for part, device in enumerate(self.spaces[i].devices.tolist()):
            work = self.times[i]["update"][part]
            task = self.rows.add("update", i, waits[part], backward=1, device=device, part=part, work=work)
            pairs.append((self.forward[i][part], task))
        return pairs

    def _program(self, carried: list[tuple[int, int]]) -> Program:
        columns = self.rows.columns
        size = len(self.rows.after)
        low, high = np.zeros((size, _DIMS), dtype=np.int64), np.zeros((size, _DIMS), dtype=np.int64)
        for task, region in self.boxes.items():
            low[task, : len(region.low)], high[task] = region.low, 1
            high[task, : len(region.high)] = region.high
        after_start, after = pack_rows([sorted(set(row)) for row in self.rows.after])
        integers = {
            name: np.array(columns[name], dtype=np.int64)
            for name in ("kind", "layer", "consumer", "device", "peer", "part", "group")
        }
        return Program(
            graph=self.graph,
            cluster=self.model.cluster,
            channel_degree=tuple(int(space.degrees[0, 1]) for space in self.spaces),
            backward=np.array(columns["backward"], dtype=bool),
            size_bytes=np.array(columns["size"], dtype=np.float64),
            work_s=np.array(columns["work"], dtype=np.float64),
            box_low=low,
            box_high=high,
            collectives=self.collectives,
            after_start=after_start,
            after=after,
            carried=np.array(carried, dtype=np.int64).reshape(-1, 2),
            **integers,
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
