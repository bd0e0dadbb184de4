"""Lowering of transfers: regions go from device to device as they are, or compressed before and decompressed after."""

from typing import Any

import numpy as np

from groundwork.array_types import Ints
from planner.compression.data_types import Compression
from planner.compression.settings import CompressionSettings
from planner.cost.codec_time import ACTIVATIONS, codec_s, compression_of, decompression_of
from planner.cost.cost_model import CostModel
from planner.graph.computation_graph import Edge
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
    """

    def __init__(self, model: CostModel, tasks: Tasks, compressed: CompressionSettings) -> None:
        self.model, self.tasks, self.compressed = model, tasks, compressed
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
        sends = self.tasks.add(
            "transfer",
            edge.producer,
            len(source),
            device=source,
            peer=target,
            part=regions.part,
            size_bytes=size,
            **columns,
        )
        self.tasks.wait(sends[ready[0]], ready[1])
        self.regions.append((sends, regions))
        if kind is None or not len(source):
            return sends
        decompresses = self._codec("decompress", kind, edge.producer, target, regions, columns)
        self.tasks.wait(decompresses, sends)
        return decompresses

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
