"""Costs and configurations of every layer for the samples that it takes at once: a micro-batch or the whole batch."""

from collections.abc import Sequence

import numpy as np

from groundwork.array_types import Ints
from planner.cost.cost_model import CostModel
from planner.graph.computation_graph import ComputationGraph, Edge
from planner.layouts.configurations import ConfigSpace
from planner.layouts.device_classes import DeviceClasses, MessageClasses
from planner.layouts.regions import TransferRegions
from planner.strategies.micro_batches import MicroBatching, micro_batch_spaces

LoweredUnit = tuple[int, int]
"""A layer whose gradients are there, and the micro-batch that came last; 0 of a layer that takes the whole batch."""


class BatchedModel:
    """Costs and configurations of a network whose last layers take the mini-batch in micro-batches.

    Args:
        model: Costs for the whole batch.
        spaces: For every layer the space that holds its one configuration, for the whole batch.
        micro_batching: Layers that take micro-batches.
        classes: What the devices that are lowered stand for; None where they are all there is.

    Raises:
        ConfigError: Parts of a micro-batch would not be equal.
    """

    def __init__(
        self,
        model: CostModel,
        spaces: Sequence[ConfigSpace],
        micro_batching: MicroBatching,
        classes: DeviceClasses | None = None,
    ) -> None:
        self.model, self.spaces, self.micro_batching = model, list(spaces), micro_batching
        self.classes = classes
        self.device_count = len(model.cluster.devices)
        self.micro_model = model.for_batch(model.graph.batch // micro_batching.parts)
        self.micro_spaces = micro_batch_spaces(self.micro_model.graph, spaces, micro_batching, self.device_count)

    @property
    def graph(self) -> ComputationGraph:
        """Network with the whole batch."""
        return self.model.graph

    def takes_micro_batches(self, layer: int) -> bool:
        """Return whether a layer takes the mini-batch in several micro-batches."""
        return self.micro_batching.of(layer) > 1

    def model_at(self, layer: int) -> CostModel:
        """Return the costs of the network for the samples that ``layer`` takes at once."""
        return self.micro_model if self.takes_micro_batches(layer) else self.model

    def spaces_at(self, layer: int) -> list[ConfigSpace]:
        """Return the spaces of all layers for the samples that ``layer`` takes at once."""
        return self.micro_spaces if self.takes_micro_batches(layer) else self.spaces

    def lowered_parts(self, layer: int) -> tuple[Ints, Ints]:
        """Return the parts of a layer that are lowered, and for each part which of these stands for it."""
        devices = self.spaces[layer].devices
        if not isinstance(self.classes, MessageClasses):
            return np.arange(len(devices)), np.arange(len(devices))
        part_on = self.spaces[layer].part_on(self.device_count)
        parts, stands_in = np.unique(part_on[self.classes.device_like[devices]], return_inverse=True)
        return parts, stands_in

    def regions(self, edge: Edge) -> TransferRegions:
        """Return the regions that a consumer needs, of messages those that a device sends or receives that is lowered.

        Args:
            edge: The tensor and its consumer.
        """
        if isinstance(self.classes, MessageClasses):
            return self.classes.regions[edge]
        spaces = self.spaces_at(edge.consumer)
        times = self.model_at(edge.consumer).transfer_times
        return times.regions(edge, spaces[edge.producer], spaces[edge.consumer])
