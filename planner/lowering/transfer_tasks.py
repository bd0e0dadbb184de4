"""Lowering of the regions that go from device to device: as they are, or encoded before and decoded after."""

import numpy as np

from hwprofiles import Ints
from planner.compression import Compressed
from planner.cost import ACTIVATIONS, CostModel, codec_s, compression_of, decompression_of
from planner.graph import Edge
from planner.lowering.task_builder import Pairs, Tasks
from planner.parallel import TransferRegions

__all__ = ["Transfers"]


class Transfers:
    """Appends the tasks of transfers.

    Args:
        model: Graph and profiles.
        tasks: To which they are added.
        compressed: Which tensors travel as codes.
    """

    def __init__(self, model: CostModel, tasks: Tasks, compressed: Compressed) -> None:
        self.model, self.tasks, self.compressed = model, tasks, compressed
        self.boxes: list[tuple[Ints, TransferRegions]] = []
        """Transfers, and the regions that they move."""

    def move(
        self, edge: Edge, micro_batch: int, regions: TransferRegions, source: Ints, target: Ints, ready: Pairs, *,
        backward: bool, recomputed: bool = False,
    ) -> Ints:  # fmt: skip
        """Bring regions of a tensor, or of its gradient, from device to device.

        Every sender encodes its regions in one task, each region once, and sends when all are encoded; every receiver
        decodes all that it is sent in one task.

        Args:
            edge: Whose tensor it is.
            micro_batch: Which one.
            regions: K of them.
            source, target: Shape (K,): devices.
            ready: Pairs (region, a task after which its source has it).
            backward: Whether it is the gradient.
            recomputed: Whether it is repeated in a recomputation.

        Returns:
            Shape (K,): the task after which each region is there.
        """
        columns = {
            "consumer": edge.consumer, "slot": edge.slot, "micro_batch": micro_batch, "backward": backward,
            "recomputed": recomputed,
        }  # fmt: skip
        kind = self.compressed.activation(self.model.graph, edge.producer)
        elements = (regions.high - regions.low).prod(axis=1)
        size = elements * float(self.model.graph.element_bytes)
        if kind is not None and len(source):
            devices, work = compression_of(kind, source, regions)
            self.tasks.group += 1
            encoded = self.tasks.add(
                "compress", edge.producer, len(devices), device=devices, compressed_bytes=work.compressed_bytes,
                work_s=codec_s(self.model, kind, ACTIVATIONS, devices, work), **columns,
            )  # fmt: skip
            of = encoded[np.searchsorted(devices, source)]
            self.tasks.wait(of[ready[0]], ready[1])
            size, ready = kind.compressed_bytes(elements) * 1.0, (np.arange(len(source)), of)
        self.tasks.group += 1
        sends = self.tasks.add(
            "transfer", edge.producer, len(source), device=source, peer=target, part=regions.part, size_bytes=size,
            **columns,
        )  # fmt: skip
        self.tasks.wait(sends[ready[0]], ready[1])
        self.boxes.append((sends, regions))
        if kind is None or not len(source):
            return sends
        devices, work = decompression_of(kind, target, regions)
        self.tasks.group += 1
        decoded = self.tasks.add(
            "decompress", edge.producer, len(devices), device=devices, decompressed_bytes=work.read_bytes,
            work_s=codec_s(self.model, kind, ACTIVATIONS, devices, work), **columns,
        )  # fmt: skip
        there = decoded[np.searchsorted(devices, target)]
        self.tasks.wait(there, sends)
        return there
