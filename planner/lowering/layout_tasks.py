"""Lowering of activations: transfers that bring them into the layouts that consumers read, and their gradients back.

A consumer reads a tensor in a layout: each of its devices needs one region.  Consumers of equal layout share one set of
transfers.  On the way back the transfers are reversed: each device sends the gradient of its region to the devices that
hold the parts, which sum what arrives.

    conv in 2 parts by height     device 0 holds rows 0-3              device 1 holds rows 4-7
    next layer, halo of one row   device 0 needs rows 0-4              device 1 needs rows 3-7
    regions                       0-3 of part 0 (stays), 4 of part 1   3 of part 0, 4-7 of part 1 (stays)
    transfers                     row 4 from 1 to 0                    row 3 from 0 to 1
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from groundwork.array_types import Ints
from planner.graph.computation_graph import Edge
from planner.layouts.configurations import ConfigSpace
from planner.layouts.redistribution import Redistribution, gradient_layout
from planner.layouts.regions import TransferRegions
from planner.lowering.batched_model import BatchedModel
from planner.lowering.gradient_sync_tasks import GradientSyncTasks
from planner.lowering.task_builder import TaskPairs, TaskRows
from planner.lowering.transfer_tasks import TransferTasks
from planner.operations.base import Part


@dataclass
class _Return:
    """Gradients of one tensor that readers make in one layout, and that are summed before they travel."""

    edge: Edge
    """Edge of the first reader."""
    readers: list[int] = field(default_factory=list)
    """Layers that read the tensor so."""


@dataclass
class _Layout:
    """One tensor in one layout."""

    edge: Edge
    """Edge of the first consumer that reads the layout."""
    regions: TransferRegions | None
    """Regions that its devices need, by part of the producer; None where collectives bring them."""
    arrived: TaskPairs
    """Pairs (device, task after which a region is on it)."""
    returns: dict[tuple[object, ...], _Return] = field(default_factory=dict)
    """Gradients, by their layout."""


class LayoutTasks:
    """Appends the transfers and collectives of activations and of their gradients.

    Args:
        batched: Costs and configurations.
        transfers: Appends the tasks of single sets of transfers.
        collectives: Appends collectives.
        segments: Segment that is recomputed, by layer; -1 where activations are kept.
        gathers: Whether inputs that collectives gather are gathered again for the backward pass.
    """

    def __init__(
        self,
        batched: BatchedModel,
        transfers: TransferTasks,
        collectives: GradientSyncTasks,
        *,
        segments: Sequence[int],
        gathers: bool,
    ) -> None:
        self._batched, self._transfers, self._collectives = batched, transfers, collectives
        self._segments, self._gathers = segments, gathers
        self.outputs: dict[int, TaskRows] = {}
        """Tasks after which each part of a layer's output is there, by layer."""
        self.recomputed_outputs: dict[int, TaskRows] = {}
        """Tasks after which each part of a layer's recomputed output is there, by layer."""
        self.transferred_by: dict[Edge, Edge] = {}
        """Edge whose transfers bring the tensor, by edge."""
        self.gathered_again: dict[Edge, TaskPairs] = {}
        """Pairs (device, task that gathers an input again for the backward pass), by edge of each reader."""
        # by producer, whether consumers read micro-batches of it, and key of the layout
        self._layouts: dict[tuple[int, bool], dict[int, _Layout]] = {}
        self._recomputed_layouts: dict[tuple[int, bool], dict[int, _Layout]] = {}

    def bring(self, edge: Edge, *, recomputed: bool = False) -> TaskPairs:
        """Bring a tensor into the layout that a consumer reads, unless another consumer reads the same layout.

        Args:
            edge: The tensor and its consumer.
            recomputed: Whether producer and consumer are recomputed.

        Returns:
            Pairs (device, task after which a region is on it).
        """
        samples = (edge.producer, self._batched.takes_micro_batches(edge.consumer))
        transfer_times = self._batched.model_at(edge.consumer).transfer_times
        consumer = self._batched.spaces_at(edge.consumer)[edge.consumer]
        key = int(transfer_times.layouts(edge, consumer)[0])
        layouts = (self._recomputed_layouts if recomputed else self._layouts).setdefault(samples, {})
        if key not in layouts:
            layouts[key] = self._brought(edge, recomputed=recomputed)
        layout = layouts[key]
        if not recomputed:
            kind = gradient_layout(self._spaces(edge)[1], self._redistribution(edge))
            back = layout.returns.setdefault(kind, _Return(edge))
            back.readers.append(edge.consumer)
            self.transferred_by[edge] = layout.edge
        return layout.arrived

    def _spaces(self, edge: Edge) -> tuple[ConfigSpace, ConfigSpace]:
        """Return the spaces of producer and consumer of an edge, for the samples that the consumer takes at once."""
        spaces = self._batched.spaces_at(edge.consumer)
        return spaces[edge.producer], spaces[edge.consumer]

    def _redistribution(self, edge: Edge) -> Redistribution | None:
        """Return the collectives of an edge; None where regions travel one by one."""
        return self._batched.model_at(edge.consumer).transfer_times.redistribution(edge, *self._spaces(edge))

    def _brought(self, edge: Edge, *, recomputed: bool) -> _Layout:
        """Bring a tensor into the layout of its first consumer; arguments as for ``bring``."""
        way = self._redistribution(edge)
        if way is None:
            return self._transferred(edge, recomputed=recomputed)
        producer, _ = self._spaces(edge)
        outputs = (self.recomputed_outputs if recomputed else self.outputs)[edge.producer]
        place, made = outputs.take(np.arange(len(producer.devices)))
        arrived = producer.devices[place], made
        for step in filter(lambda each: each.sends, way.forward):
            arrived = self._collectives.redistribute(
                edge, step, way.mesh, producer.output, arrived, backward=False, recomputed=recomputed
            )
        return _Layout(edge, None, arrived)

    def _transferred(self, edge: Edge, *, recomputed: bool) -> _Layout:
        """Send the regions that consumers lack.

        Args:
            edge: The tensor and its first consumer.
            recomputed: Whether it is recomputed.
        """
        regions, (producer, _) = self._batched.regions(edge), self._spaces(edge)
        senders = producer.devices[regions.part]
        # pairs (region, task after which its part is there); regions on their own device do not travel
        region, made = (self.recomputed_outputs if recomputed else self.outputs)[edge.producer].take(regions.part)
        remote = np.flatnonzero(senders != regions.device)
        away = (senders != regions.device)[region]
        there = self._transfers.move(
            edge,
            regions.take(remote),
            (senders[remote], regions.device[remote]),
            (np.searchsorted(remote, region[away]), made[away]),
            backward=False,
            recomputed=recomputed,
        )
        device = regions.device[np.concatenate([region[~away], remote])]
        return _Layout(edge, regions, (device, np.concatenate([made[~away], there])))

    def gather_again(self, layer: int, ready: TaskPairs) -> list[TaskPairs]:
        """Gather the inputs of a layer again that it does not keep, unless another reader of the layout has done so.

        Args:
            layer: A layer that goes back.
            ready: Pairs (device, task after which it may begin).

        Returns:
            For each input that is gathered again, pairs (device, task that brings it).
        """
        return [
            self._gathered_again(edge, ready)
            for edge in self._batched.graph.producers[layer]
            if self._gathers and self._is_gathered(edge)
        ]

    def _is_gathered(self, edge: Edge) -> bool:
        """Return whether a reader keeps what is gathered from parts that devices hold when it goes back."""
        way, layer = self._redistribution(edge), self._batched.graph.layers[edge.consumer]
        collectives = {step.collective for step in way.forward if step.sends} if way else set[str]()
        whole = {dim: np.ones(1) * size for dim, size in zip(layer.output.dims, layer.output.sizes, strict=True)}
        saved = layer.operation.saved_tensors(Part(layer.input_shapes, layer.output, whole))
        held = self._segments[edge.consumer] in (-1, self._segments[edge.producer])  # else a segment holds its inputs
        return collectives == {"all-gather"} and saved.inputs and held

    def _gathered_again(self, edge: Edge, ready: TaskPairs) -> TaskPairs:
        """Gather one input again; arguments as for ``gather_again``."""
        first = self.transferred_by[edge]
        alike = (other for other in self.gathered_again if self.transferred_by[other] == first)
        if (other := next(alike, None)) is not None:
            self.gathered_again[edge] = self.gathered_again[other]
            return self.gathered_again[edge]
        way, producer = self._redistribution(first), self._spaces(first)[0]
        assert way is not None, "what is gathered travels by collectives"
        recomputed = self._segments[edge.consumer] >= 0
        outputs = (self.recomputed_outputs if recomputed else self.outputs)[edge.producer]
        place, made = outputs.take(np.arange(len(producer.devices)))
        arrived = np.append(producer.devices[place], ready[0]), np.append(made, ready[1])
        for step in filter(lambda each: each.sends, way.forward):
            arrived = self._collectives.redistribute(
                first, step, way.mesh, producer.output, arrived, backward=True, recomputed=True
            )
        self.gathered_again[edge] = arrived
        return arrived

    def bring_back(self, layer: int, gradient: Mapping[int, Ints]) -> TaskPairs:
        """Bring the gradients of a layer's output back from all its consumers.

        Args:
            layer: The layer.
            gradient: By consuming layer, the activation gradient task of each part.

        Returns:
            Pairs (part, task after which a gradient of it, or of a region of it, is there); for a part that nobody
            reads the tasks after which its output is there.
        """
        tasks, apart = self._transfers.tasks, not self._batched.takes_micro_batches(layer)
        rows = [(np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64))]
        rows += self._returned(self._layouts.get((layer, False), {}).values(), gradient)
        divided = self._layouts.get((layer, True), {}).values()
        if divided and apart:  # a layer that takes the whole batch gets it in the micro-batches of its consumers
            tasks.place_behind(self._batched.micro_batching.parts)
        rows += self._returned(divided, gradient)
        if divided and apart:
            tasks.place_behind()
        parts, arrived = (np.concatenate(column) for column in zip(*rows, strict=True))
        lowered, _ = self._batched.lowered_parts(layer)
        unread = lowered[np.bincount(parts, minlength=len(self._batched.spaces[layer].devices))[lowered] == 0]
        place, made = self.outputs[layer].take(unread)
        return np.concatenate([parts, unread[place]]), np.concatenate([arrived, made])

    def _returned(self, layouts: Iterable[_Layout], gradient: Mapping[int, Ints]) -> list[TaskPairs]:
        """Bring the gradients of layouts back; arguments and results as for ``bring_back``."""
        rows = list[TaskPairs]()
        for layout, back in ((each, back) for each in layouts for back in each.returns.values()):
            way = self._redistribution(back.edge)
            rows += self._sent_back(back, layout, gradient) if way is None else [self._summed(back, way, gradient)]
        return rows

    def _summed(self, back: _Return, way: Redistribution, gradient: Mapping[int, Ints]) -> TaskPairs:
        """Bring a gradient back by collectives."""
        spaces, producer = self._batched.spaces, self._batched.spaces[back.edge.producer]
        arrived = (
            np.concatenate([spaces[reader].devices for reader in back.readers]),
            np.concatenate([gradient[reader] for reader in back.readers]),
        )
        source = self._spaces(back.edge)[0].output
        for step in filter(lambda each: each.sends, way.backward):
            arrived = self._collectives.redistribute(
                back.edge, step, way.mesh, source, arrived, backward=True, recomputed=False
            )
        return producer.part_on(self._batched.device_count)[arrived[0]], arrived[1]

    def _sent_back(self, back: _Return, layout: _Layout, gradient: Mapping[int, Ints]) -> list[TaskPairs]:
        """Send a gradient back, region by region."""
        regions, (producer, consumer) = layout.regions, self._spaces(back.edge)
        if regions is None or producer.has_copies or consumer.has_copies:
            times = self._batched.model_at(back.edge.consumer).transfer_times
            regions = times.gradient_regions(back.edge, producer, consumer)
        receivers = self._batched.spaces[back.edge.producer].devices[regions.part]
        remote = np.flatnonzero(receivers != regions.device)
        local = np.flatnonzero(receivers == regions.device)
        # of each reader the task that makes the gradient of each region, on the device that read it
        ready = [self._task_on(reader, gradient[reader], regions.device) for reader in back.readers]
        there = self._transfers.move(
            back.edge,
            regions.take(remote),
            (regions.device[remote], receivers[remote]),
            (np.tile(np.arange(len(remote)), len(ready)), np.concatenate([row[remote] for row in ready])),
            backward=True,
        )
        return [(regions.part[remote], there), *((regions.part[local], row[local]) for row in ready)]

    def _task_on(self, layer: int, tasks: Ints, devices: Ints) -> Ints:
        """Return the task of a layer on each of some devices, all of which hold a part.

        Args:
            layer: The layer.
            tasks: Its tasks, by part.
            devices: Shape (K,).

        Returns:
            Shape (K,).
        """
        return tasks[self._batched.spaces[layer].part_on(self._batched.device_count)[devices]]
