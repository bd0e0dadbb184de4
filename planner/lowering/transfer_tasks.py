"""Lowering of transfers: regions go from device to device as they are, or compressed before and decompressed after."""

from typing import Any

import numpy as np

from groundwork.array_types import Ints
from groundwork.sparse_rows import ranks_in_runs
from planner.compression.data_types import Compression
from planner.compression.settings import CompressionSettings
from planner.cost.codec_time import ACTIVATIONS, codec_s, compression_of, decompression_of
from planner.cost.cost_model import CostModel
from planner.graph.computation_graph import Edge
from planner.layouts.device_classes import DeviceClasses, MessageClasses
from planner.layouts.regions import TransferRegions
from planner.lowering.task_builder import TaskPairs, Tasks

_MOST_DIMS = 6
"""Dimensions that the regions of transfers are padded to."""


class TransferTasks:
    """Appends the tasks of transfers.

    Args:
        model: Graph and profiles.
        tasks: Tasks under construction.
        compressed: Tensors that travel compressed.
        classes: What the devices that are lowered stand for; None where they are all there is.
    """

    def __init__(
        self, model: CostModel, tasks: Tasks, compressed: CompressionSettings, classes: DeviceClasses | None = None
    ) -> None:
        self.model, self.tasks, self.compressed, self._classes = model, tasks, compressed, classes
        self.regions: list[tuple[Ints, TransferRegions]] = []
        """Transfers, and the regions that they move."""

    def region_columns(self, made: Ints) -> tuple[Ints, Ints]:
        """Return the columns ``region_low`` and ``region_high`` of copies of tasks; ``made``: shape (T,): the tasks."""
        size = self.tasks.size
        low, high = np.zeros((size, _MOST_DIMS), dtype=np.int64), np.zeros((size, _MOST_DIMS), dtype=np.int64)
        for tasks, regions in self.regions:
            dims = regions.low.shape[1]
            low[tasks, :dims], high[tasks] = regions.low, 1
            high[tasks, :dims] = regions.high
        return low[made], high[made]

    def move(
        self,
        edge: Edge,
        regions: TransferRegions,
        ends: tuple[Ints, Ints],
        ready: TaskPairs,
        *,
        backward: bool,
        recomputed: bool = False,
    ) -> Ints:
        """Move regions of a tensor, or of its gradient, from device to device.

        Where the tensor is compressed, every sender compresses its regions in one task, each region once, and sends
        when all are compressed; every receiver decompresses all that it receives in one task:

            compress on 0  ->  transfer 0 to 1  ->  decompress on 1
                           ->  transfer 0 to 2  ->  decompress on 2

        Args:
            edge: The tensor and its consumer.
            regions: K regions.
            ends: Senders and receivers, shape (K,) each.
            ready: Pairs (region, task after which its sender has it).
            backward: Whether the gradient of the tensor is moved.
            recomputed: Whether the transfers are repeated in a recomputation.

        Returns:
            Shape (K,): task after which each region is at its receiver.
        """
        source, target = ends
        columns = {"consumer": edge.consumer, "slot": edge.slot, "backward": backward, "recomputed": recomputed}
        shared = edge in self.model.graph.shared
        kind = None if shared else self.compressed.activation(self.model.graph, edge.producer)
        elements = (regions.high - regions.low).prod(axis=1)
        size = elements * float(self.model.graph.element_bytes)
        if kind is not None and len(source):
            compresses = self._codec("compress", kind, edge.producer, source, regions, columns)
            self.tasks.wait(compresses[ready[0]], ready[1])
            size, ready = kind.compressed_bytes(elements) * 1.0, (np.arange(len(source)), compresses)
        self.tasks.group += 1
        first, stands_in = self._messages(source, target)
        added = self.tasks.add(
            "transfer",
            edge.producer,
            len(first),
            device=source[first],
            peer=target[first],
            part=regions.part[first],
            size_bytes=size[first],
            **columns,
        )
        self.regions.append((added, regions.take(first)))
        sends = added[stands_in]
        self.tasks.wait(sends[ready[0]], ready[1])
        if kind is None or not len(source):
            return sends
        decompresses = self._codec("decompress", kind, edge.producer, target, regions, columns)
        self.tasks.wait(decompresses, sends)
        return decompresses

    def _messages(self, source: Ints, target: Ints) -> tuple[Ints, Ints]:
        """Return the transfers that are lowered, and for each which of these stands for it; arguments as for ``move``.

        Of those of one class, it is the first that leaves a device that is lowered.
        """
        classes, every = self._classes, np.arange(len(source))
        if not isinstance(classes, MessageClasses) or not len(source):
            return every, every
        # of several regions between two devices, the first, the second ... are alike
        order = np.argsort(source * len(classes.device_like) + target, kind="stable")
        rank = np.empty_like(order)
        rank[order] = ranks_in_runs((source * len(classes.device_like) + target)[order])
        kind = classes.message_class(source, target) * (rank.max() + 1) + rank
        lowered_first = np.argsort(~classes.lowered[source], kind="stable")
        _, first, stands_in = np.unique(kind[lowered_first], return_index=True, return_inverse=True)
        of = np.empty_like(stands_in)
        of[lowered_first] = stands_in
        return lowered_first[first], of

    def _codec(
        self, task: str, kind: Compression, layer: int, at: Ints, regions: TransferRegions, columns: dict[str, Any]
    ) -> Ints:
        """Add a task that compresses or decompresses on every device that has some of K regions to send or received.

        Args:
            task: ``compress`` or ``decompress``.
            kind: The compression.
            layer: Layer that makes the tensor.
            at: Device of each region, shape (K,).
            regions: The regions.
            columns: Other columns of the tasks.

        Returns:
            Shape (K,): task of each region.
        """
        devices, work = (compression_of if task == "compress" else decompression_of)(kind, at, regions)
        self.tasks.group += 1
        added = self.tasks.add(
            task,
            layer,
            len(devices),
            device=devices,
            compressed_bytes=work.compressed_bytes,
            decompressed_bytes=work.decompressed_bytes,
            work_s=codec_s(self.model, kind, ACTIVATIONS, devices, work),
            **columns,
        )
        return added[np.searchsorted(devices, at)]
