"""Lowering of activations: transfers that bring them into the layouts that consumers read, and their gradients back.

A consumer reads a tensor in a layout: each of its devices needs one region.  Consumers of equal layout share one set of
transfers.  On the way back the transfers are reversed: each device sends the gradient of its region to the devices that
hold the parts, which sum what arrives.

    conv in 2 parts by height     device 0 holds rows 0-3              device 1 holds rows 4-7
    next layer, halo of one row   device 0 needs rows 0-4              device 1 needs rows 3-7
    regions                       0-3 of part 0 (stays), 4 of part 1   3 of part 0, 4-7 of part 1 (stays)
    transfers                     row 4 from 1 to 0                    row 3 from 0 to 1
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from hwprofiles import Ints
from planner.graph import Edge
from planner.lowering.batched_model import BatchedModel, LoweredUnit
from planner.lowering.task_builder import TaskPairs, TaskRows
from planner.lowering.transfer_tasks import TransferTasks
from planner.parallel import TransferRegions

__all__ = ["LayoutTasks"]


@dataclass
class _Layout:
    """One tensor in one layout."""

    edge: Edge
    """Edge of the first consumer that reads the layout."""
    regions: TransferRegions
    """Regions that its devices need, by part of the producer."""
    arrived: TaskPairs
    """Pairs (device, task after which a region is on it)."""
    readers: list[LoweredUnit] = field(default_factory=list)
    """Units that read the layout."""


class LayoutTasks:
    """Appends the transfers of activations and of their gradients.

    Args:
        batched: Costs and configurations.
        transfers: Appends the tasks of single sets of transfers.
    """

    def __init__(self, batched: BatchedModel, transfers: TransferTasks) -> None:
        self._batched, self._transfers = batched, transfers
        self.outputs: dict[LoweredUnit, TaskRows] = {}
        """Tasks after which each part of a unit's output is there, by unit."""
        self.recomputed_outputs: dict[LoweredUnit, TaskRows] = {}
        """Tasks after which each part of a unit's recomputed output is there, by unit."""
        self.transferred_by: dict[Edge, Edge] = {}
        """Edge whose transfers bring the tensor, by edge."""
        # by samples that consumers read (``BatchedModel.input_unit``) and key of the layout
        self._regions: dict[Edge, TransferRegions] = {}
        """Regions that a consumer needs, the same of every micro-batch, by edge."""
        self._keys: dict[Edge, int] = {}
        """Key of the layout that a consumer reads, by edge."""
        self._layouts: dict[LoweredUnit, dict[int, _Layout]] = {}
        self._recomputed_layouts: dict[LoweredUnit, dict[int, _Layout]] = {}

    def bring(self, edge: Edge, micro_batch: int, *, recomputed: bool = False) -> TaskPairs:
        """Bring a tensor into the layout that a consumer reads, unless another consumer reads the same layout.

        Args:
            edge: The tensor and its consumer.
            micro_batch: The consumer's micro-batch.
            recomputed: Whether producer and consumer are recomputed.

        Returns:
            Pairs (device, task after which a region is on it).
        """
        reader = (edge.consumer, micro_batch)
        samples, maker = self._batched.input_unit(edge.producer, reader)
        if edge not in self._keys:
            transfer_times = self._batched.model_at(edge.consumer).transfer_times
            consumer = self._batched.spaces_at(edge.consumer)[edge.consumer]
            self._keys[edge] = int(transfer_times.layouts(edge, consumer)[0])
        key = self._keys[edge]
        layouts = (self._recomputed_layouts if recomputed else self._layouts).setdefault(samples, {})
        if key not in layouts:
            layouts[key] = self._transferred(edge, micro_batch, maker, recomputed=recomputed)
        layout = layouts[key]
        if not recomputed:
            layout.readers.append(reader)
            self.transferred_by[edge] = layout.edge
        return layout.arrived

    def _transferred(self, edge: Edge, micro_batch: int, maker: LoweredUnit, *, recomputed: bool) -> _Layout:
        """Send the regions that consumers lack.

        Args:
            edge: The tensor and its first consumer.
            micro_batch: The consumer's micro-batch.
            maker: Unit that makes the tensor.
            recomputed: Whether it is recomputed.
        """
        spaces = self._batched.spaces_at(edge.consumer)
        producer, consumer = spaces[edge.producer], spaces[edge.consumer]
        if edge not in self._regions:
            transfer_times = self._batched.model_at(edge.consumer).transfer_times
            self._regions[edge] = transfer_times.regions(edge, producer, consumer)
        regions = self._regions[edge]
        senders = producer.devices[regions.part]
        # pairs (region, task after which its part is there); regions on their own device do not travel
        region, made = (self.recomputed_outputs if recomputed else self.outputs)[maker].take(regions.part)
        remote = np.flatnonzero(senders != regions.device)
        away = (senders != regions.device)[region]
        there = self._transfers.move(
            edge, micro_batch, regions.take(remote), (senders[remote], regions.device[remote]),
            (np.searchsorted(remote, region[away]), made[away]), backward=False, recomputed=recomputed,
        )  # fmt: skip
        device = regions.device[np.concatenate([region[~away], remote])]
        return _Layout(edge, regions, (device, np.concatenate([made[~away], there])))

    def bring_back(self, unit: LoweredUnit, gradient: Mapping[LoweredUnit, Ints]) -> TaskPairs:
        """Bring the gradients of a unit's output back from all its consumers.

        Args:
            unit: The unit.
            gradient: By consuming unit, the activation gradient task of each part.

        Returns:
            Pairs (part, task after which a gradient of it, or of a region of it, is there); for a part that nobody
            reads the tasks after which its output is there.
        """
        layer, micro_batch = unit
        devices = self._batched.spaces[layer].devices
        parts, tasks = [np.empty(0, dtype=np.int64)], [np.empty(0, dtype=np.int64)]
        samples = [(layer, micro_batch)]
        if not self._batched.takes_micro_batches(layer):  # its consumers may read the whole batch or micro-batches
            samples = [(layer, s) for s in range(-1, self._batched.micro_batching.parts)]
        for read in samples:
            for layout in self._layouts.get(read, {}).values():
                regions = layout.regions
                receivers = devices[regions.part]
                remote = np.flatnonzero(receivers != regions.device)
                local = np.flatnonzero(receivers == regions.device)
                # of each reader the task that makes the gradient of each region, on the device that read it
                ready = [self._task_on(reader, gradient[reader], regions.device) for reader in layout.readers]
                there = self._transfers.move(
                    layout.edge, max(read[1], 0), regions.take(remote), (regions.device[remote], receivers[remote]),
                    (np.tile(np.arange(len(remote)), len(ready)), np.concatenate([row[remote] for row in ready])),
                    backward=True,
                )  # fmt: skip
                parts += [regions.part[remote], *[regions.part[local]] * len(ready)]
                tasks += [there, *(row[local] for row in ready)]
        unread = np.flatnonzero(np.bincount(np.concatenate(parts), minlength=len(devices)) == 0)
        place, made = self.outputs[unit].take(unread)
        return np.concatenate([*parts, unread[place]]), np.concatenate([*tasks, made])

    def _task_on(self, unit: LoweredUnit, tasks: Ints, devices: Ints) -> Ints:
        """Return the task of a unit on each of some devices, all of which hold a part.

        Args:
            unit: The unit.
            tasks: Its tasks, by part.
            devices: Shape (K,).

        Returns:
            Shape (K,).
        """
        return tasks[self._batched.spaces[unit[0]].part_on(self._batched.device_count)[devices]]
