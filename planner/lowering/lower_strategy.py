"""Lowering: from a strategy to the program of one iteration, region by region.

Tasks are made a layer at a time, as arrays: a program of millions of tasks takes no longer than its replay.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from hwprofiles import ConfigError, Ints
from planner.compression import UNCOMPRESSED, Compressed
from planner.cost import CostModel
from planner.graph import Edge
from planner.lowering.gradient_sync_tasks import GradientSyncTasks
from planner.lowering.program import Program
from planner.lowering.task_builder import Pairs, TaskRows, Tasks
from planner.lowering.transfer_tasks import Transfers
from planner.parallel import (
    BACKWARD,
    FORWARD,
    KEEP_ACTIVATIONS,
    WHOLE_BATCH,
    ConfigSpace,
    MicroBatching,
    Recompute,
    TransferRegions,
    schedule_of,
    segments_of,
    sub_spaces,
    transfer_regions,
)

__all__ = ["lower"]

_DIMS = 6
_Unit = tuple[int, int]
"""A layer and a sub-batch."""


@dataclass
class _Delivery:
    """One tensor brought into one layout; consumers that ask for the same layout share it."""

    edge: Edge
    """The first that asked for the layout."""
    regions: TransferRegions
    arrived: Pairs
    """Pairs: a device, and a task after which a region is there."""
    sharers: list[_Unit] = field(default_factory=list)
    """Those that read it."""


class _Lowering:
    """Units of work are (layer, sub-batch): sub-batch 0 is all there is before the cut."""

    def __init__(
        self,
        model: CostModel,
        spaces: Sequence[ConfigSpace],
        micro_batching: MicroBatching,
        compressed: Compressed,
        recompute: Recompute,
        *,
        expand: bool,
    ) -> None:
        self.graph, self.whole, self.micro_batching, self.compressed = (
            model.graph,
            list(spaces),
            micro_batching,
            compressed,
        )
        self.segments = segments_of(model.graph, recompute, micro_batching)
        self.model, self.cut_model = model, model.for_batch(model.graph.batch // micro_batching.parts)
        self.cut_spaces = sub_spaces(self.cut_model.graph, spaces, micro_batching, len(model.cluster.devices))
        self.tasks = Tasks()
        self.transfers = Transfers(model, self.tasks, compressed)
        self.gradient_syncs = GradientSyncTasks(model, self.tasks, compressed, expand=expand)
        # tasks of each part, by unit
        self.forward: dict[_Unit, Ints] = {}
        self.gradient: dict[_Unit, Ints] = {}
        self.weight_gradient: dict[_Unit, Ints] = {}
        # after which tasks each part of an output is there, the first time and where it is recomputed
        self.made: tuple[dict[_Unit, TaskRows], dict[_Unit, TaskRows]] = ({}, {})
        self.recomputed: set[_Unit] = set()  # segments and sub-batches
        self.begun: dict[_Unit, Pairs] = {}  # what the backward tasks of each part wait for
        self.updates: list[tuple[_Unit, Ints, Ints]] = []  # and pairs (part, what its update waits for)
        # by producer, sub-batch that consumers read (-1: the whole batch) and layout
        self.input_layouts: dict[_Unit, dict[int, _Delivery]] = {}
        self.repeated: dict[_Unit, dict[int, _Delivery]] = {}
        self.transferred_by: dict[Edge, Edge] = {}
        self.times = [self._model(i).compute_times.part_s(i, self._space(i)) for i in range(len(spaces))]

    def _model(self, i: int) -> CostModel:
        """Prices of a layer for as many samples as it takes at once."""
        return self.cut_model if self.micro_batching.of(i) > 1 else self.model

    def _space(self, i: int) -> ConfigSpace:
        return self.cut_spaces[i] if self.micro_batching.of(i) > 1 else self.whole[i]

    def run(self) -> Program:
        """Forward, backward with the exchanges, updates."""
        layers, micro_batching = range(len(self.whole)), self.micro_batching
        stages, events = micro_batching.layers_of(len(layers)), schedule_of(micro_batching, self.whole).events
        before = layers[: micro_batching.first]
        if micro_batching.parts == 1:
            before, events = layers, ()
        for i in before:
            self._forward((i, 0))
        carried: list[Ints] = []
        for phases, stage, micro_batch in events:
            if phases == FORWARD:
                for i in stages[stage]:
                    self._forward((i, micro_batch))
                continue
            for i in reversed(stages[stage]):
                self._recompute((i, micro_batch))
                self._backward((i, micro_batch), phases)
            if micro_batching.update_each:
                rows = [self._update(*row) for row in self.updates]
                carried += rows if micro_batch == micro_batching.parts - 1 else []
                self.updates.clear()
        for i in reversed(before):
            self._recompute((i, 0))
            self._backward((i, 0))
        return self._program([*carried, *(self._update(*row) for row in self.updates)])

    def _recompute(self, unit: _Unit) -> None:
        """Run the segment of a layer that is about to go back forward again, once."""
        layer, micro_batch = unit
        segment = self.segments[layer]
        if segment < 0 or (segment, micro_batch) in self.recomputed:
            return
        self.recomputed.add((segment, micro_batch))
        for i, other in enumerate(self.segments):
            if other == segment:
                self._forward_again((i, micro_batch))

    def _forward_again(self, unit: _Unit) -> None:
        """Compute a part's output again, from what its segment reads and what it has computed again."""
        i, micro_batch = unit
        inside = [edge for edge in self.graph.producers[i] if self.segments[edge.producer] == self.segments[i]]
        input_layouts = [self._deliver(edge, micro_batch, again=True) for edge in inside]
        tasks = self._compute(unit, "forward", backward=False, again=True)
        table = self._by_device(i, tasks)
        self.tasks.wait(tasks, self.forward[unit])
        for delivery in input_layouts:
            device, arrived = delivery.arrived
            self.tasks.wait(table[device], arrived)
        self.made[True][unit] = TaskRows.of(np.arange(len(tasks)), tasks, len(tasks))

    def _compute(self, unit: _Unit, phase: str, *, backward: bool, again: bool = False) -> Ints:
        """One task a part."""
        self.tasks.group += 1
        i, micro_batch = unit
        devices = self.whole[i].devices
        return self.tasks.add(
            phase, i, len(devices), device=devices, part=np.arange(len(devices)), backward=backward,
            work_s=self.times[i][phase], micro_batch=micro_batch, recomputed=again,
        )  # fmt: skip

    def _by_device(self, i: int, tasks: Ints) -> Ints:
        """Task of a layer on each device; -1 where it has none."""
        table = np.full(len(self.model.cluster.devices), -1, dtype=np.int64)
        table[self.whole[i].devices] = tasks
        return table

    def _forward(self, unit: _Unit) -> None:
        i, micro_batch = unit
        input_layouts = [self._deliver(edge, micro_batch) for edge in self.graph.producers[i]]
        self.forward[unit] = tasks = self._compute(unit, "forward", backward=False)
        table = self._by_device(i, tasks)
        for delivery in input_layouts:
            device, arrived = delivery.arrived
            self.tasks.wait(table[device], arrived)
        summed = self._normalised(unit, np.arange(len(tasks)), tasks, backward=False)
        self.made[False][unit] = TaskRows.of(*summed, len(tasks))

    def _read(self, u: int, micro_batch: int, v: int) -> tuple[_Unit, _Unit]:
        """Key of what a consumer reads, and the unit that makes it."""
        if self.micro_batching.of(v) == 1:
            return (u, -1), (u, 0)
        return (u, micro_batch), (u, micro_batch if self.micro_batching.of(u) > 1 else 0)

    def _deliver(self, edge: Edge, micro_batch: int, *, again: bool = False) -> _Delivery:
        """Send what the consumer lacks, unless another consumer of the tensor asked for the same."""
        u, v = edge.producer, edge.consumer
        model = self._model(v)
        producer = self.cut_spaces[u] if self.micro_batching.of(v) > 1 else self.whole[u]
        layout = int(model.transfer_times.layouts(edge, self._space(v))[0])
        key, unit = self._read(u, micro_batch, v)
        input_layouts = (self.repeated if again else self.input_layouts).setdefault(key, {})
        delivery = input_layouts.get(layout)
        if delivery is None:
            layer, source = model.graph.layers[v], model.graph.layers[u].output
            needs = layer.operation.needs(edge.slot, layer.input_shapes)
            regions = transfer_regions(producer, self._space(v), needs, source, len(self.model.cluster.devices))
            sources = producer.devices[regions.part]
            at, made = self.made[again][unit].take(regions.part)
            away = (sources != regions.device)[at]
            remote = np.flatnonzero(sources != regions.device)
            ready = np.searchsorted(remote, at[away]), made[away]
            there = self.transfers.move(
                edge, micro_batch, regions.take(remote), sources[remote], regions.device[remote], ready, backward=False,
                recomputed=again,
            )  # fmt: skip
            arrived = np.concatenate([made[~away], there])
            device = regions.device[np.concatenate([at[~away], remote])]
            delivery = input_layouts[layout] = _Delivery(edge, regions, (device, arrived))
        if again:
            return delivery
        delivery.sharers.append((v, micro_batch))
        self.transferred_by[edge] = delivery.edge
        return delivery

    def _backward(self, unit: _Unit, phases: Sequence[str] = BACKWARD) -> None:
        i = unit[0]
        if not self.graph.has_gradient(i):
            return
        if unit not in self.begun:
            self.begun[unit] = self._normalised(unit, *self._gradients(unit), backward=True)
            if unit in self.made[True]:
                (part, after), again = self.begun[unit], self.made[True][unit].task
                self.begun[unit] = np.append(part, np.arange(len(again))), np.append(after, again)
        part, after = self.begun[unit]
        for phase in phases:
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
        if self.micro_batching.of(unit[0]) > 1 and not self.micro_batching.update_each:
            together = [(unit[0], s) for s in range(self.micro_batching.parts)]
        if all(other in self.weight_gradient for other in together):
            rows = np.array([self.weight_gradient[other] for other in together])
            part = np.tile(np.arange(rows.shape[1]), len(rows))
            exchanged = self.gradient_syncs.gradients(*unit, self.whole[unit[0]], (part, rows.ravel()))
            self.updates.append((unit, *exchanged))

    def _gradients(self, unit: _Unit) -> tuple[Ints, Ints]:
        """Pairs (part, what its backward tasks wait for): gradients from all consumers, or its output."""
        i, micro_batch = unit
        devices = self.whole[i].devices
        parts, waits = [np.empty(0, dtype=np.int64)], [np.empty(0, dtype=np.int64)]
        keys = (
            [(i, micro_batch)]
            if self.micro_batching.of(i) > 1
            else [(i, s) for s in range(-1, self.micro_batching.parts)]
        )
        for key in keys:
            for delivery in self.input_layouts.get(key, {}).values():
                regions = delivery.regions
                targets = devices[regions.part]
                remote = np.flatnonzero(targets != regions.device)
                local = np.flatnonzero(targets == regions.device)
                ready = [self._by_device(v, self.gradient[v, s])[regions.device] for v, s in delivery.sharers]
                rows = np.tile(np.arange(len(remote)), len(ready))
                there = self.transfers.move(
                    delivery.edge, max(key[1], 0), regions.take(remote), regions.device[remote], targets[remote],
                    (rows, np.concatenate([tasks[remote] for tasks in ready])), backward=True,
                )  # fmt: skip
                parts += [regions.part[remote], *[regions.part[local]] * len(ready)]
                waits += [there, *(tasks[local] for tasks in ready)]
        unread = np.flatnonzero(np.bincount(np.concatenate(parts), minlength=len(devices)) == 0)
        place, made = self.made[False][unit].take(unread)
        return np.concatenate([*parts, unread[place]]), np.concatenate([*waits, made])

    def _normalised(self, unit: _Unit, part: Ints, after: Ints, *, backward: bool) -> tuple[Ints, Ints]:
        """Pairs (part, task), with those of the statistics that are summed once they are done, where there are any."""
        if not self.model.sync_times.statistics_bytes(unit[0]):
            return part, after
        space, made = self.whole[unit[0]], (part, after)
        summed = self.gradient_syncs.statistics(*unit, space, made, backward=backward)
        return np.concatenate([part, summed[0]]), np.concatenate([after, summed[1]])

    def _update(self, unit: _Unit, part: Ints, after: Ints) -> Ints:
        """Update tasks come last in program order: a device's stream runs them after its backward pass."""
        tasks = self._compute(unit, "update", backward=True)
        self.tasks.wait(tasks[part], after)
        return np.column_stack([self.forward[unit[0], 0], tasks])

    def _program(self, carried: list[Ints]) -> Program:
        size = self.tasks.size
        low, high = np.zeros((size, _DIMS), dtype=np.int64), np.zeros((size, _DIMS), dtype=np.int64)
        for tasks, regions in self.transfers.boxes:
            dims = regions.low.shape[1]
            low[tasks, :dims], high[tasks] = regions.low, 1
            high[tasks, :dims] = regions.high
        after_start, after = self.tasks.dependencies()
        return Program(
            graph=self.graph,
            cluster=self.model.cluster,
            spaces=tuple(self.whole),
            micro_batching=self.micro_batching,
            micro_batch_spaces=tuple(self.cut_spaces),
            segments=self.segments,
            compressed=self.compressed,
            transferred_by=self.transferred_by,
            region_low=low,
            region_high=high,
            collectives=self.gradient_syncs.collectives,
            after_start=after_start,
            after=after,
            sync_order=(),
            carried=np.concatenate([np.empty((0, 2), dtype=np.int64), *carried]),
            **self.tasks.columns(),
        )


def lower(
    model: CostModel,
    spaces: Sequence[ConfigSpace],
    *,
    micro_batching: MicroBatching = WHOLE_BATCH,
    compressed: Compressed = UNCOMPRESSED,
    recompute: Recompute = KEEP_ACTIVATIONS,
    collectives: str = "activity",
) -> Program:
    """Lower a strategy into the program of one iteration.

    Args:
        model: Graph, cluster and exchange scheme, with their prices.
        spaces: For every layer the space that holds its one configuration.
        cut: Which layers take the mini-batch in sub-batches.
        compressed: Which tensors and gradients travel as codes.
        recompute: Which activations are computed again before their layers go back.
        collectives: ``activity``: each round of an exchange, with its repeats, is one task on all its links;
            ``steps``: each message is a task, which waits for the messages that bring what it carries.

    Returns:
        The program, tasks in program order: forward, backward with the exchanges, updates.

    Raises:
        ConfigError: ``collectives`` is neither, parts of a sub-batch would not be equal, or the exchange would have
            to sum codes.
        InfeasiblePlanError: There is no memory for so many messages.
    """
    if collectives not in ("activity", "steps"):
        raise ConfigError(f"collectives must be activity or steps, got {collectives!r}")
    return _Lowering(model, spaces, micro_batching, compressed, recompute, expand=collectives == "steps").run()
