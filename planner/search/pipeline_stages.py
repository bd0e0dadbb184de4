"""Partition of a network into pipeline stages so that the slowest stage is as fast as possible and all fit in memory.

A dynamic program over partitions into runs of consecutive layers; it is exact for the given times and memory needs.

Source:
    The partitioning problem of Narayanan et al., "PipeDream", SOSP 2019, without replicated stages.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from groundwork.array_types import Floats, Ints
from groundwork.errors import ConfigError, InfeasiblePlanError, memory_in_words
from groundwork.units import GIB
from hwprofiles.devices.device import Device
from planner.cost.cost_model import CostModel
from planner.graph.computation_graph import Edge, Layer
from planner.layouts.configurations import ConfigSpace, Configuration, space_of
from planner.layouts.parameter_shards import shard_elements
from planner.layouts.regions import needed_regions
from planner.memory.peak_memory import COPIES_OF_PARAMETERS
from planner.simulation.transfer_pricing import transfer_prices
from planner.strategies.pipeline_schedule import PipelineSchedule

Layout = Callable[[Layer, Sequence[int]], Configuration]
"""Function from a layer and the devices of its stage to the layer's configuration; the first device has a part."""


def balanced(layer_s: Floats, stages: int) -> Ints:
    """Partition layers into contiguous stages so that the largest sum of their times is least; exact.

    Args:
        layer_s: Time of each layer, shape (G,), >= 0.
        stages: 1 to G; no stage is empty.

    Returns:
        Bounds, shape (stages + 1,): stage k has the layers [bounds[k], bounds[k + 1]).
    """
    count = len(layer_s)
    table = _StageTable(_between(layer_s), np.full(count + 1, count))
    bounds, _ = _least_worst(lambda _: table, stages, count)
    return np.array(bounds, dtype=np.int64)


def stage_bounds(
    model: CostModel,
    groups: Sequence[Sequence[int]],
    layout: Layout,
    schedule: PipelineSchedule,
    *,
    recomputes: bool = False,
) -> tuple[int, ...]:
    """Return the stages that fit in memory and whose slowest takes least time; among equals the most even ones.

    A stage's time is its layers' forward and backward work on all micro-batches, their update and gradient
    synchronisation, and for every micro-batch the transfer of the tensors that later stages read, and of their
    gradients, to and from the next stage's devices.  Its memory need, on the first device of its group, consists of
    parameters with gradients and optimizer state, the tensors of all micro-batches that the schedule has in flight, and
    the gradients of the layer in work.  Stages of one group are checked separately here; their sum is checked when the
    plan is lowered.  Where activations are computed again, only parameters with gradients and optimizer state are
    counted here, and what is held besides when the plan is lowered.

    Args:
        model: Costs for the whole mini-batch.
        groups: Devices of each group of the schedule.
        layout: Split of layers over the devices of their stage.
        schedule: Stages, groups and micro-batches.
        recomputes: Whether the backward pass computes activations again.

    Returns:
        Bounds, S + 1 of them: stage k has the layers [bounds[k], bounds[k + 1]); ``MicroBatching.stages`` are all but
        the last.

    Raises:
        ConfigError: More stages than layers, or a configuration that does not fit a layer of a micro-batch.
        InfeasiblePlanError: No partition fits in memory; names a stage, its need and the capacity where the largest
            excess is least.
    """
    count, stages = len(model.graph.layers), len(schedule.groups)
    if not 1 <= stages <= count:
        raise ConfigError(f"stages must be 1 to the {count} layers of {model.graph.name}, got {stages}")
    tables = _Tables(model, groups, layout, schedule, recomputes=recomputes)
    bounds, slowest_s = _least_worst(tables.times, stages, count)
    if np.isinf(slowest_s):
        _refuse(tables, stages, count)
    return bounds


class _StageTable(NamedTuple):
    """The cost of a stage of the layers [row, column), for all rows and columns."""

    cost: Floats
    """Shape (G + 1, G + 1); without meaning where a stage has no layers."""
    reach: Ints
    """Last column of each row at which a stage fits in memory, shape (G + 1,)."""


def _least_worst(table: Callable[[int], _StageTable], stages: int, count: int) -> tuple[tuple[int, ...], float]:
    """Return the stages with the least maximum cost and, among those, the least sum of squares: the most even ones.

    Args:
        table: Function from a stage to its table.
        stages: Number of stages.
        count: Number of layers.

    Returns:
        Bounds, and the maximum; infinity if no partition is feasible.
    """
    _, worst = _least(table, stages, count, np.maximum)

    def evener(before: float, cost: Floats) -> Floats:
        """Return the sum of squared costs; infinity above the least maximum."""
        return np.where(cost <= worst, before + cost**2, np.inf)

    return _least(table, stages, count, evener)[0], worst


def _least(
    table: Callable[[int], _StageTable], stages: int, count: int, join: Callable[[float, Floats], Floats]
) -> tuple[tuple[int, ...], float]:
    """Return the bounds of stages whose joint cost, a maximum or a sum, is least, and that cost.

    ``best[c]`` is the least cost of the stages so far with the layers [0, c), and each row of ``last_bounds`` has, for
    every c, the bound before the last of these stages, from which the bounds are traced back.  Layers that take
    3, 1, 2 and 2 seconds, in two stages with the least maximum::

        layers [0, c)           0      1      2      3      4
        best, one stage         inf    3      4      6      8
        best, two stages        inf    inf    3      3      4
        bound before            -      -      1      1      2        bounds 0, 2, 4
    """
    best, last_bounds = np.full(count + 1, np.inf), []
    best[0] = 0.0
    for stage in range(stages):
        cost, reach = table(stage)
        least, before = np.full(count + 1, np.inf), np.zeros(count + 1, dtype=np.int64)
        for row in np.flatnonzero(np.isfinite(best)).tolist():
            columns = slice(row + 1, int(reach[row]) + 1)  # no stage is empty
            joined = join(float(best[row]), cost[row, columns])
            less = joined < least[columns]
            least[columns][less] = joined[less]
            before[columns][less] = row
        last_bounds.append(before)
        best = least
    bounds = [count]
    for before in reversed(last_bounds):
        bounds.append(int(before[bounds[-1]]))
    return tuple(reversed(bounds)), float(best[count])


def _between(values: Floats) -> Floats:
    """Return the sums of values [row, column), shape (G + 1, G + 1); entries below the diagonal have no meaning."""
    total = np.concatenate([[0.0], np.cumsum(values)])
    return np.asarray(total[None, :] - total[:, None])


@dataclass(frozen=True, slots=True, eq=False)
class _StageMemory:
    """Bytes that a stage of the layers [row, column) needs on its first device, shape (G + 1, G + 1) each."""

    parameters: Floats
    """Parameters with gradients and optimizer state."""
    tensors: Floats
    """Outputs and received tensors of one micro-batch."""
    backward: Floats
    """Tensors of the micro-batch in its backward pass, with the gradients at the layer where both are most."""

    def of(self, in_flight: int) -> Floats:
        """Return the bytes with ``in_flight`` micro-batches, one of which is in its backward pass."""
        return self.parameters + (in_flight - 1) * self.tensors + self.backward


class _Tables:
    """Times and memory needs of all stages; groups of equal devices on equal routes share them."""

    def __init__(
        self,
        model: CostModel,
        groups: Sequence[Sequence[int]],
        layout: Layout,
        schedule: PipelineSchedule,
        *,
        recomputes: bool = False,
    ) -> None:
        self.model, self.groups, self.layout, self.schedule = model, groups, layout, schedule
        self.recomputes = recomputes
        self.part = model.for_batch(model.graph.batch // schedule.micro_batches)
        self._spaces_on: dict[tuple[int, ...], list[ConfigSpace]] = {}
        self._times: dict[object, Floats] = {}
        self._alone: dict[object, Floats] = {}
        self._needs: dict[int, _StageMemory] = {}
        self._reach: dict[tuple[int, int, float], Ints] = {}

    def smallest_device(self, stage: int) -> Device:
        """Return the device of a stage that has the least memory for it."""
        every, devices = self.model.cluster.devices, np.array(self._devices(stage))
        return every[int(devices[every.of_each(lambda device: device.usable_bytes)[devices].argmin()])]

    def need_bytes(self, stage: int) -> Floats:
        """Return the bytes that a stage of the layers [row, column) needs, shape (G + 1, G + 1)."""
        devices = self._devices(stage)
        if self.recomputes:
            return _between(self._parameters(self._spaces(devices)))
        if len(devices) not in self._needs:
            self._needs[len(devices)] = self._need(devices)
        return self._needs[len(devices)].of(self.schedule.in_flight[stage])

    def times(self, stage: int) -> _StageTable:
        """Return the times of a stage in seconds, as far as it fits in memory."""
        here = self._devices(stage)
        after = self._devices(stage + 1) if stage + 1 < len(self.schedule.groups) else here
        key = self._key(here, after)
        if key not in self._times:
            kind = key[:2]  # devices of a stage and how they lie in nodes: the last stage of all sends nothing
            if kind not in self._alone:
                self._alone[kind] = self._time_alone(here)
            alone_s = self._alone[kind]
            self._times[key] = alone_s if here is after else self._with_sends(alone_s, here, after)
        # A stage needs more with each layer that is added behind its last.
        in_flight = 0 if self.recomputes else self.schedule.in_flight[stage]
        limit = (len(here), in_flight, self.smallest_device(stage).usable_bytes)
        if limit not in self._reach:
            fits = np.triu(self.need_bytes(stage) <= limit[2], 1)
            self._reach[limit] = np.where(fits, np.arange(len(fits)), 0).max(axis=1)
        return _StageTable(self._times[key], self._reach[limit])

    def _devices(self, stage: int) -> Sequence[int]:
        """Return the devices of a stage."""
        return self.groups[self.schedule.groups[stage]]

    def _key(self, here: Sequence[int], after: Sequence[int]) -> tuple[object, ...]:
        """Return all that times depend on: profiles, nodes, and the route from the first device to the next stage."""
        cluster, network = self.model.cluster, self.model.network
        devices = np.array(here)
        node = network.node[devices]
        rows = (cluster.devices.kind[devices].tobytes(), (node - node[0]).tobytes())
        _, links = network.routes(np.array(here[:1]), np.array(after[:1]))
        latency_s = network.latencies_s(np.array(here[:1]), np.array(after[:1]), np.zeros(1))
        return (*rows, len(after), *network.seconds_per_byte[links].tolist(), float(latency_s[0]))

    def _spaces(self, devices: Sequence[int]) -> list[ConfigSpace]:
        """Return the spaces of all layers on the devices of a stage."""
        count, key = len(self.model.cluster.devices), tuple(devices)
        if key not in self._spaces_on:
            layers = self.part.graph.layers
            self._spaces_on[key] = [space_of(layer, self.layout(layer, devices), count) for layer in layers]
        return self._spaces_on[key]

    def _time_alone(self, here: Sequence[int]) -> Floats:
        """Return the times of stages on devices ``here`` without what they send, shape (G + 1, G + 1)."""
        spaces = self._spaces(here)
        layer_s, known = np.zeros(len(spaces)), dict[object, float]()
        for i, space in enumerate(spaces):
            key = (self.part.compute_times.layer_key(i), space)
            if key not in known:
                known[key] = self._layer_s(i, space)
            layer_s[i] = known[key]
        return _between(layer_s)

    def _with_sends(self, alone_s: Floats, here: Sequence[int], after: Sequence[int]) -> Floats:
        """Return times of stages on devices ``here`` with what they send to ``after``, shape (G + 1, G + 1).

        ``sent_s[u, b]`` is the time to send the output of layer u over a bound b behind it: layers from b on read it.
        The column sums over [row, b) are the sends of a stage of the layers [row, b).
        """
        graph, batches = self.model.graph, self.schedule.micro_batches
        spaces, behind = self._spaces(here), self._spaces(after)
        sent = np.zeros((len(spaces) + 1, len(spaces) + 1))
        sent_s, price = sent[1:], transfer_prices(self.part)
        for u, edges in enumerate(graph.outgoing):
            for edge in edges:
                times = 1 if edge in graph.shared else batches  # parameters travel once an iteration
                seconds = times * float(price(edge, spaces[u], behind[edge.consumer])[0, 0])
                # Bounds between the layer and this reader; a tensor is sent once to a stage, however many read it.
                reach = slice(u + 1, edge.consumer + 1)
                sent_s[u, reach] = np.maximum(sent_s[u, reach], seconds)
        np.cumsum(sent_s, axis=0, out=sent_s)
        stage_s = alone_s + np.diag(sent)
        stage_s -= sent
        return stage_s

    def _layer_s(self, i: int, space: ConfigSpace) -> float:
        """Return the time of a layer in all micro-batches, without what it sends to other layers."""
        costs, batches = self.part.node_costs(i, space), self.schedule.micro_batches
        # Gradients are synchronised once an iteration, everything else happens for every micro-batch.
        each_s = costs.compute_s + costs.statistics_s + costs.completion_s
        later_s = float(self.part.compute_times.later_s(i, space).max())
        return float((batches * each_s + costs.total_s - each_s)[0]) + (batches - 1) * later_s

    def _need(self, devices: Sequence[int]) -> _StageMemory:
        """Return the memory needs of stages on these devices."""
        graph, spaces = self.part.graph, self._spaces(devices)
        count, size = len(spaces), graph.element_bytes
        outputs = np.array(
            [layer.output.elements * size / s.degrees[0].prod() for layer, s in zip(graph.layers, spaces, strict=True)]
        )
        # edges are in the order of their consumers
        producer, consumer = (np.array([edge[end] for edge in graph.edges], dtype=np.int64) for end in (0, 1))
        read = np.array([self._read_bytes(edge, spaces[edge.consumer]) for edge in graph.edges])
        goes_back = np.array([graph.has_gradient(u) for u in range(count)])
        tensors, backward = np.zeros((count + 1, count + 1)), np.zeros((count + 1, count + 1))
        # A row for each first layer of a stage; running sums along it add one layer after another to the stage.
        for first in range(count):
            held, gradients = outputs.copy(), outputs.copy()
            later = slice(int(np.searchsorted(consumer, first)), None)
            makers, readers, inside = producer[later], consumer[later], producer[later] >= first
            received = np.zeros(len(makers))  # by the first reader of each tensor that another stage makes
            once = np.unique(makers, return_index=True)[1]
            received[once] = np.where(inside[once], 0.0, read[later][once])
            np.add.at(held, readers, received)
            np.add.at(gradients, readers, np.where(inside, outputs[makers], received * goes_back[makers]))
            # Backward the layers after one have released their tensors already: the worst layer counts.
            reach = np.cumsum(held[first:])
            tensors[first, first + 1 :] = reach
            backward[first, first + 1 :] = np.maximum.accumulate(reach + gradients[first:])
        return _StageMemory(_between(self._parameters(spaces)), tensors, backward)

    def _parameters(self, spaces: Sequence[ConfigSpace]) -> Floats:
        """Return the bytes of each layer's parameters with gradients and optimizer state, shape (G,)."""
        graph, size = self.part.graph, COPIES_OF_PARAMETERS * self.part.graph.element_bytes
        layers = zip(graph.layers, spaces, strict=True)
        return np.array([size * shard_elements(layer.parameters, space) for layer, space in layers])

    def _read_bytes(self, edge: Edge, space: ConfigSpace) -> float:
        """Return the bytes of a tensor that the first part of its consumer reads."""
        layer = self.part.graph.layers[edge.consumer]
        regions = needed_regions(
            space, layer.operation.interval_maps(edge.slot, layer.input_shapes), layer.input_shapes[edge.slot]
        )
        return float(regions.volume[0] * self.part.graph.element_bytes)


def _refuse(tables: _Tables, stages: int, count: int) -> None:
    """Raise an error that names the fullest stage of the partition whose fullest stage is least full."""

    def share(stage: int) -> _StageTable:
        """Return the share of the capacity that a stage needs."""
        shares = tables.need_bytes(stage) / tables.smallest_device(stage).usable_bytes
        return _StageTable(shares, np.full(count + 1, count))

    bounds, _ = _least_worst(share, stages, count)
    rows = [(float(share(s).cost[a, b]), s) for s, (a, b) in enumerate(pairwise(bounds))]
    _, stage = max(rows)
    need_bytes = tables.need_bytes(stage)[bounds[stage], bounds[stage + 1]]
    layers, device = tables.model.graph.layers, tables.smallest_device(stage)
    where = f"stage {stage + 1} of {stages}, {layers[bounds[stage]].name} to {layers[bounds[stage + 1] - 1].name},"
    raise InfeasiblePlanError(
        f"{where} does not fit on {device.name}: needs {need_bytes / GIB:.2f} GiB, "
        f"{memory_in_words(device.memory_bytes, device.usable_bytes)}; use more stages or smaller micro-batches"
    )
