"""Time of the all-reduces of a layer: of its parameters' gradients and of normalisation statistics, t_s of Eq. 1.

Source: Jia et al., "Exploring Hidden Dimensions in Parallelizing Convolutional Neural Networks", ICML 2018, Sec. 5.1.
"""

from typing import NamedTuple

import numpy as np

from groundwork.array_types import Floats
from groundwork.errors import ConfigError
from planner.compression.settings import LIBRARY
from planner.cost.all_reduce import all_reduce_s, replica_nodes
from planner.cost.library_rounds import least_all_reduce_s
from planner.graph.computation_graph import ComputationGraph
from planner.graph.shapes import SUMMED
from planner.layouts.configurations import CHANNELS, ConfigSpace
from planner.topology.network_routes import ClusterRoutes
from planner.topology.route_ends import FAR, NEAR, route_ends

LEAST_TAKEN = 0.5
"""Least share of its buffer that a replica's links carry in an all-reduce, of what it gets: all of it, but for trees
of two nodes, of which each card has one direction."""
BATCH_NORMS = ("local", "reduced")
"""Batch normalisation by the statistics of each part, or of the whole batch."""


class SyncBuffer(NamedTuple):
    """A buffer that the replicas of a layer sum in every iteration."""

    size_bytes: Floats
    """Bytes of all shards under each configuration, shape (C,); slices of a sum all hold what the sum does not split.
    """
    split: tuple[str, ...]
    """Dimensions of the layer's output that split the buffer."""
    times: int
    """All-reduces an iteration: 1 for gradients, 2 (forward and backward) for statistics."""


class SyncTimes:
    """Times of a network's all-reduces on a cluster's routes.

    Args:
        graph: The network with its batch.
        network: Routes of the cluster.
        gradient_sync: All-reduce algorithm, one of ``GRADIENT_SYNCS``.
        batch_norm: One of ``BATCH_NORMS``; ``reduced`` sums the statistics over the replicas of each channel, as
            gradients are summed, forward and backward.
        gradient_bytes: Bytes of an element of gradients as they are summed; 0: those of the network's tensors.

    Raises:
        ConfigError: ``batch_norm`` is none of ``BATCH_NORMS``.
    """

    def __init__(
        self,
        graph: ComputationGraph,
        network: ClusterRoutes,
        gradient_sync: str,
        batch_norm: str,
        *,
        gradient_bytes: int = 0,
    ) -> None:
        if batch_norm not in BATCH_NORMS:
            raise ConfigError(f"batch_norm must be {' or '.join(BATCH_NORMS)}, got {batch_norm!r}")
        self.graph, self.network, self.gradient_sync, self.batch_norm = graph, network, gradient_sync, batch_norm
        self._gradient_bytes = gradient_bytes or graph.element_bytes

    def buffers(self, index: int, space: ConfigSpace) -> list[SyncBuffer]:
        """Return the buffers that the replicas of a layer sum: gradients of parameters, then reduced statistics."""
        layer, buffers = self.graph.layers[index], list[SyncBuffer]()
        for split in layer.splits_of_parameters:
            elements = np.zeros(space.size)
            for each in (each for each in layer.parameters if each.split == split):
                elements += each.elements * (1.0 if SUMMED in each.indices else space.sums)
            buffers.append(SyncBuffer(elements * self._gradient_bytes, split, 1))
        statistics = np.full(space.size, self.statistics_bytes(index))
        return [*buffers, SyncBuffer(statistics, CHANNELS, times=2)] if statistics.any() else buffers

    def statistics_bytes(self, index: int) -> float:
        """Return the bytes that a layer sums over the batch forward, and again backward; 0 if ``local``."""
        layer = self.graph.layers[index]
        count = layer.operation.statistics * layer.output.size("channel") if self.batch_norm == "reduced" else 0
        return float(count * self.graph.element_bytes)

    def least_s(self, index: int, space: ConfigSpace) -> Floats:
        """Return lower bounds of the times of all all-reduces of a layer under every configuration, shape (C,).

        Whatever the algorithm, each replica gets what it holds, over all its links together; and nodes get, over the
        links between them, twice what they hold of each buffer but for one node in n, or once if switches sum.
        """
        network, ends, total = self.network, route_ends(self.network), np.zeros(space.size)
        far_s_per_byte, shared_s_per_byte = float(ends.in_s_per_byte[FAR].min()), float(ends.node_in_s_per_byte.min())
        once = network.library is not None and network.library.in_network is not None
        for size, split, times in self.buffers(index, space):
            if not np.any(size):
                continue
            ranks, held = space.replica_grid(split)[:, ::2].prod(axis=1), size / space.shards(split)
            spread = replica_nodes(network, space, split)
            # of all devices, and of all nodes, one gets at least the mean of what all get
            crossing = held * np.where(once, spread.received, 2 * spread.received_others)
            near_s = held * (LEAST_TAKEN / network.widest_bytes_per_s)
            far_s = crossing * np.maximum(far_s_per_byte / space.parts, shared_s_per_byte / spread.used)
            if self.gradient_sync == LIBRARY:
                busy_s = least_all_reduce_s(network, np.maximum(ranks, 2), spread.most, held, near_s, far_s)
            else:
                messages = 2 * (ranks - 1) if self.gradient_sync == "ring" else 1
                busy_s = np.maximum(near_s, far_s) + messages * min(ends.in_s[NEAR].min(), ends.in_s[FAR].min())
            total += np.where((ranks > 1) & (held > 0), times * busy_s, 0.0)
        return total

    def seconds(self, index: int, space: ConfigSpace) -> tuple[Floats, Floats]:
        """Compute the time of a layer's all-reduces under every configuration of a space.

        Returns:
            Seconds of all of them, and of those of statistics among them, shape (C,) each.
        """
        total, statistics = np.zeros(space.size), np.zeros(space.size)
        for size, split, times in self.buffers(index, space):
            seconds = times * all_reduce_s(self.network, self.gradient_sync, space, size, split=split)
            total = total + seconds
            statistics = statistics + (seconds if times > 1 else 0.0)
        return total, statistics
