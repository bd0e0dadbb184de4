"""What a strategy gives every link and device to do in one iteration, without lowering it, term by term.

The busiest of them bounds every simulated iteration from below.  A change of one layer changes the terms of that
layer and of those that it reads only, so thousands of changes can be weighed between two simulations.
"""

from collections.abc import Sequence

import numpy as np

from hwprofiles import Floats
from planner.cost.all_reduce import chosen, group_rounds, replica_groups
from planner.cost.cost_model import CostModel
from planner.graph import Edge
from planner.parallel import ConfigSpace, transfer_regions

__all__ = ["LinkLoads"]


class LinkLoads:
    """Seconds of work of every link and device, and Eq. 1, of any strategy of a model.

    Args:
        model: Graph, cluster and exchange scheme, with their prices.
    """

    def __init__(self, model: CostModel) -> None:
        self.model = model
        self.links = len(model.network.seconds_per_byte)
        self.size = self.links + len(model.cluster.devices)
        """Number of links and devices; row ``size`` of a term is its share of Eq. 1."""
        self._terms: dict[tuple[object, ...], Floats] = {}

    def total(self, spaces: Sequence[ConfigSpace]) -> Floats:
        """Sum of all terms of a strategy, shape (size + 1,), seconds: links, devices, Eq. 1.

        Args:
            spaces: For every layer the space that holds its one configuration.
        """
        return np.asarray(np.sum([self.term(i, spaces) for i in range(len(spaces))], axis=0))

    def term(self, i: int, spaces: Sequence[ConfigSpace]) -> Floats:
        """Return the work that layer ``i`` and its output add, shape (size + 1,); terms are computed once.

        Strategies to be compared should share the space objects of equal configurations.
        """
        edges = self.model.graph.consumers[i]
        key = (i, spaces[i], *(spaces[edge.consumer] for edge in edges))
        if key not in self._terms:
            term, asked = self.node(i, spaces[i]).copy(), set()
            for edge in edges:
                layout = int(self.model.transfer_times.layouts(edge, spaces[edge.consumer])[0])
                if layout not in asked:
                    term += self._edge(edge, spaces[i], spaces[edge.consumer])
                asked.add(layout)
            self._terms[key] = term
        return self._terms[key]

    def node(self, i: int, space: ConfigSpace) -> Floats:
        """Return the part of a term of one layer alone: arithmetic, and synchronised gradients and statistics."""
        key = (i, space)
        if key not in self._terms:
            term = np.zeros(self.size + 1)
            term[: self.links] = self._exchanged_bytes(i, space) * self.model.network.seconds_per_byte
            term[self.links + space.devices] = sum(self.model.compute_times.part_s(i, space).values())
            term[-1] = self.model.node_costs(i, space).total_s[0]
            self._terms[key] = term
        return self._terms[key]

    def _exchanged_bytes(self, i: int, space: ConfigSpace) -> Floats:
        model, network = self.model, self.model.network
        before, channel, after = space.shards[0].tolist()
        sent = np.zeros(self.links)
        for size, split, count in model.sync_times.buffers(i):
            groups = replica_groups(network.rank, before, channel, after, space.devices, split)
            if size and groups.shape[1] > 1:
                scheme = chosen(network, model.gradient_sync, space, size, split=split).scheme
                for group, steps in zip(groups, group_rounds(network, scheme, groups), strict=True):
                    for step in steps:
                        share = count * step.share * step.repeats / (channel if split else 1)
                        message = np.full(len(step.source), share * size)
                        sent += network.link_loads(group[step.source], group[step.target], message)
        return sent

    def _edge(self, edge: Edge, producer: ConfigSpace, consumer: ConfigSpace) -> Floats:
        """Return the link loads of a tensor on its way to one consumer, and of its gradient back."""
        key = self.model.transfer_times.key(edge, producer, consumer)
        if key not in self._terms:
            model, network = self.model, self.model.network
            layer, tensor = model.graph.layers[edge.consumer], model.graph.layers[edge.producer].output
            needs = layer.operation.needs(edge.slot, layer.input_shapes)
            pieces = transfer_regions(producer, consumer, needs, tensor, len(model.cluster.devices))
            pieces = pieces.take(producer.devices[pieces.part] != pieces.device)
            giver, taker = producer.devices[pieces.part], pieces.device
            size = (pieces.high - pieces.low).prod(axis=1) * float(model.graph.element_bytes)
            term = np.zeros(self.size + 1)
            for source, target in ((giver, taker), (taker, giver))[: 1 + model.graph.has_gradient(edge.producer)]:
                if len(size):
                    busy_s = network.link_loads(source, target, size) * network.seconds_per_byte
                    term[: self.links] += busy_s
                    term[-1] += busy_s.max() + network.latencies_s(source, target, size).max()
            self._terms[key] = term
        return self._terms[key]
