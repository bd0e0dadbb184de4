"""Stages of a pipeline: layers in order, cut so that the slowest stage is as fast as it can be, within memory.

A dynamic program over contiguous cuts; exact for the times and needs that it is given.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from hwprofiles import GIB, ConfigError, Floats, InfeasiblePlanError, Ints
from planner.cost import CostModel
from planner.graph import Edge, Layer
from planner.memory import COPIES_OF_PARAMETERS
from planner.parallel import ConfigSpace, Configuration, PipelineSchedule, needed_regions, space_of
from planner.simulation import transfer_prices

__all__ = ["Layout", "balanced", "stage_bounds"]

Layout = Callable[[Layer, Sequence[int]], Configuration]
"""How a layer is split over the devices of its stage, whose first one holds a part of every layer."""


def balanced(layer_s: Floats, stages: int) -> Ints:
    """Cut layers into contiguous stages with the least maximum of their sums; exact.

    Args:
        layer_s: Time of each layer, shape (G,), >= 0.
        stages: 1 to G; no stage is empty.

    Returns:
        Bounds, shape (stages + 1,): stage k has the layers [bounds[k], bounds[k + 1]).
    """
    table = _between(layer_s)
    bounds, _ = _least_worst(lambda _: table, stages, len(layer_s))
    return np.array(bounds, dtype=np.int64)


def stage_bounds(
    model: CostModel, groups: Sequence[Sequence[int]], layout: Layout, schedule: PipelineSchedule
) -> tuple[int, ...]:
    """Stages whose slowest takes least time in an iteration, among those that fit in memory; of equals the most even.

    A stage's time is its layers' forward and backward work on all micro-batches, their update and gradient exchange,
    and for every micro-batch the transfer of what later stages read of it, with its gradient, to the next stage's
    devices.  Its need is that of parameters with gradients and optimizer state, of the tensors of all micro-batches
    that the schedule has in flight there, and of the gradients in hand, on the first device of its group; where a
    group has several stages each is looked at alone, and their sum is checked when the plan is lowered.

    Args:
        model: Prices; for the whole mini-batch.
        groups: By group of the schedule, its devices.
        layout: How layers are split there.
        schedule: Stages, micro-batches and what is in flight.

    Returns:
        Bounds, S + 1 of them: stage k has the layers [bounds[k], bounds[k + 1]); ``Cut.stages`` is all but the last.

    Raises:
        ConfigError: More stages than layers, or a configuration that does not fit a layer of a micro-batch.
        InfeasiblePlanError: No cut fits in memory; names the stage, its need and the capacity that come nearest.
    """
    count, stages = len(model.graph.layers), len(schedule.groups)
    if not 1 <= stages <= count:
        raise ConfigError(f"stages must be 1 to the {count} layers of {model.graph.name}, got {stages}")
    tables = _Tables(model, groups, layout, schedule)
    bounds, slowest_s = _least_worst(tables.time_s, stages, count)
    if np.isinf(slowest_s):
        _refuse(tables, stages, count)
    return bounds


def _least_worst(table: Callable[[int], Floats], stages: int, count: int) -> tuple[tuple[int, ...], float]:
    """Bounds of stages with the least maximum; of those the ones with the least sum of squares, the most even.

    Args:
        table: Of a stage, what it costs with the layers [row, column): shape (count + 1, count + 1).
        stages: How many.
        count: Layers.

    Returns:
        Bounds, and the maximum; infinite where there is none.
    """
    _, worst = _least(table, stages, count, np.maximum)

    def even(stage: int) -> Floats:
        cost = table(stage)
        return np.where(cost <= worst, cost**2, np.inf)

    return _least(even, stages, count, np.add)[0], worst


def _least(table: Callable[[int], Floats], stages: int, count: int, join: np.ufunc) -> tuple[tuple[int, ...], float]:
    """Bounds of stages whose costs, joined by a maximum or a sum, are least, and that cost."""
    best, micro_batchings = np.full(count + 1, np.inf), []
    best[0] = 0.0
    empty = np.tril_indices(count + 1)
    for stage in range(stages):
        cost = table(stage).copy()
        cost[empty] = np.inf
        joined = join(best[:, None], cost)
        micro_batchings.append(joined.argmin(axis=0))
        best = joined.min(axis=0)
    bounds = [count]
    for before in reversed(micro_batchings):
        bounds.append(int(before[bounds[-1]]))
    return tuple(reversed(bounds)), float(best[count])


def _between(values: Floats) -> Floats:
    """Sums of [row, column), shape (G + 1, G + 1); what lies below the diagonal says nothing."""
    total = np.concatenate([[0.0], np.cumsum(values)])
    return np.asarray(total[None, :] - total[:, None])


@dataclass(frozen=True, slots=True, eq=False)
class _Need:
    """Bytes of a stage of the layers [row, column) on its first device, shape (G + 1, G + 1) each."""

    parameters: Floats
    """With gradients and optimizer state."""
    tensors: Floats
    """Outputs and what is received, of a micro-batch."""
    going_back: Floats
    """Those of one that goes back, with the gradients in hand, at the layer where that is most."""

    def of(self, in_flight: int) -> Floats:
        """With so many micro-batches."""
        return self.parameters + (in_flight - 1) * self.tensors + self.going_back


class _Tables:
    """Times and needs of all stages; groups of like devices on like routes share them."""

    def __init__(
        self, model: CostModel, groups: Sequence[Sequence[int]], layout: Layout, schedule: PipelineSchedule
    ) -> None:
        self.model, self.groups, self.layout, self.schedule = model, groups, layout, schedule
        self.part = model.for_batch(model.graph.batch // schedule.micro_batches)
        self._times: dict[object, Floats] = {}
        self._needs: dict[int, _Need] = {}

    def capacity_bytes(self, stage: int) -> float:
        """Of the smallest device of a stage."""
        return min(self.model.cluster.devices[device].memory_bytes for device in self._devices(stage))

    def need_bytes(self, stage: int) -> Floats:
        """What a stage of the layers [row, column) needs."""
        devices = self._devices(stage)
        if len(devices) not in self._needs:
            self._needs[len(devices)] = self._need(devices)
        return self._needs[len(devices)].of(self.schedule.in_flight[stage])

    def time_s(self, stage: int) -> Floats:
        """What a stage of the layers [row, column) takes; infinite where it does not fit."""
        here = self._devices(stage)
        after = self._devices(stage + 1) if stage + 1 < len(self.schedule.groups) else here
        key = self._key(here, after)
        if key not in self._times:
            self._times[key] = self._time(here, after)
        return np.where(self.need_bytes(stage) <= self.capacity_bytes(stage), self._times[key], np.inf)

    def _devices(self, stage: int) -> Sequence[int]:
        return self.groups[self.schedule.groups[stage]]

    def _key(self, here: Sequence[int], after: Sequence[int]) -> object:
        """What prices depend on: profiles, nodes, and the route from the first device to the next stage's."""
        cluster, network = self.model.cluster, self.model.network
        rows = [(cluster.devices[d].profile, cluster.devices[d].node - cluster.devices[here[0]].node) for d in here]
        _, links = network.routes(np.array(here[:1]), np.array(after[:1]))
        latency_s = network.latencies_s(np.array(here[:1]), np.array(after[:1]), np.zeros(1))
        return (*rows, len(after), *network.seconds_per_byte[links].tolist(), float(latency_s[0]))

    def _spaces(self, devices: Sequence[int]) -> list[ConfigSpace]:
        count = len(self.model.cluster.devices)
        return [space_of(layer, self.layout(layer, devices), count) for layer in self.part.graph.layers]

    def _time(self, here: Sequence[int], after: Sequence[int]) -> Floats:
        graph, batches = self.model.graph, self.schedule.micro_batches
        spaces, behind = self._spaces(here), self._spaces(after)
        layer_s = np.zeros(len(spaces))
        for i, space in enumerate(spaces):
            costs = self.part.node_costs(i, space)
            once_s = costs.total_s - costs.compute_s - costs.statistics_s
            layer_s[i] = float((batches * (costs.compute_s + costs.statistics_s) + once_s)[0])
        sent_s = np.zeros((len(spaces), len(spaces) + 1))  # by producer and bound behind it
        price = transfer_prices(self.part)
        for u, edges in enumerate(graph.consumers if here is not after else ()):
            for edge in edges:
                seconds = batches * float(price(edge, spaces[u], behind[edge.consumer])[0, 0])
                reach = slice(u + 1, edge.consumer + 1)
                sent_s[u, reach] = np.maximum(sent_s[u, reach], seconds)
        sent = np.vstack([np.zeros(len(spaces) + 1), np.cumsum(sent_s, axis=0)])
        return np.asarray(_between(layer_s) + np.diag(sent)[None, :] - sent)

    def _need(self, devices: Sequence[int]) -> _Need:
        graph, spaces = self.part.graph, self._spaces(devices)
        count, size = len(spaces), graph.element_bytes
        parameters, outputs = np.zeros(count), np.zeros(count)
        for i, (layer, space) in enumerate(zip(graph.layers, spaces, strict=True)):
            shards = int(space.shards[0, 1])
            held = sum(p.elements / (shards if p.split else 1) for p in layer.parameters)
            parameters[i] = COPIES_OF_PARAMETERS * size * held
        outputs = np.array(
            [layer.output.elements * size / s.parts[0] for layer, s in zip(graph.layers, spaces, strict=True)]
        )
        read = {edge: self._read_bytes(edge, spaces[edge.consumer]) for edge in graph.edges}
        tensors, back = np.zeros((count + 1, count + 1)), np.zeros((count + 1, count + 1))
        for first in range(count):
            kept, gradients = outputs.copy(), outputs.copy()
            came: set[int] = set()
            for edge in graph.edges:  # by consumer
                if edge.consumer < first:
                    continue
                if edge.producer >= first:
                    gradients[edge.consumer] += outputs[edge.producer]
                elif edge.producer not in came:
                    came.add(edge.producer)
                    kept[edge.consumer] += read[edge]
                    gradients[edge.consumer] += read[edge] * graph.has_gradient(edge.producer)
            reach = np.cumsum(kept[first:])
            tensors[first, first + 1 :] = reach
            back[first, first + 1 :] = np.maximum.accumulate(reach + gradients[first:])
        return _Need(_between(parameters), tensors, back)

    def _read_bytes(self, edge: Edge, space: ConfigSpace) -> float:
        """What a part of the consumer reads of a tensor."""
        layer = self.part.graph.layers[edge.consumer]
        boxes = needed_regions(
            space, layer.operation.needs(edge.slot, layer.input_shapes), layer.input_shapes[edge.slot]
        )
        return float(boxes.volume[0] * self.part.graph.element_bytes)


def _refuse(tables: _Tables, stages: int, count: int) -> None:
    """Name the stage that fits worst where all fit as well as they can."""

    def share(stage: int) -> Floats:
        return np.asarray(tables.need_bytes(stage) / tables.capacity_bytes(stage))

    bounds, _ = _least_worst(share, stages, count)
    rows = [(float(share(s)[a, b]), s) for s, (a, b) in enumerate(pairwise(bounds))]
    _, stage = max(rows)
    need_bytes = tables.need_bytes(stage)[bounds[stage], bounds[stage + 1]]
    layers, device = tables.model.graph.layers, tables.model.cluster.devices[tables._devices(stage)[0]]
    where = f"stage {stage + 1} of {stages}, {layers[bounds[stage]].name} to {layers[bounds[stage + 1] - 1].name},"
    raise InfeasiblePlanError(
        f"{where} does not fit on {device.name}: needs {need_bytes / GIB:.2f} GiB, the device has "
        f"{tables.capacity_bytes(stage) / GIB:.2f} GiB; use more stages or smaller micro-batches"
    )
