"""Link loads of a strategy in one iteration, and the load of its devices, added up layer by layer without lowering.

The busiest link or device bounds every simulated iteration from below.  A change of one layer changes the terms of that
layer and of those that it reads only, so thousands of changes can be compared between two simulations.
"""

from collections.abc import Sequence

import numpy as np

from groundwork.array_types import Floats
from planner.cost.all_reduce import choose_all_reduce, group_rounds, replica_groups
from planner.cost.cost_model import CostModel
from planner.graph.computation_graph import Edge
from planner.layouts.configurations import ConfigSpace


class LinkLoads:
    """Seconds of work of every link and device, and Eq. 1, for any strategy of a network.

    Args:
        model: Graph, cluster and all-reduce algorithm, with their costs.
    """

    def __init__(self, model: CostModel) -> None:
        self.model = model
        self.links = len(model.network.seconds_per_byte)
        """Number of links."""
        self.size = self.links + len(model.cluster.devices)
        """Number of links and devices; row ``size`` of a term is its share of Eq. 1."""
        self._terms: dict[tuple[object, ...], Floats] = {}

    def total(self, spaces: Sequence[ConfigSpace]) -> Floats:
        """Add up all terms of a strategy.

        Args:
            spaces: For every layer the space that holds its one configuration.

        Returns:
            Seconds of links, devices and Eq. 1, shape (size + 1,).
        """
        return np.asarray(np.sum([self.term(i, spaces) for i in range(len(spaces))], axis=0))

    def term(self, i: int, spaces: Sequence[ConfigSpace]) -> Floats:
        """Return what layer ``i`` and the tensor that it makes add; terms are computed once.

        Strategies to be compared should share the space objects of equal configurations.

        Args:
            i: The layer.
            spaces: For every layer the space that holds its one configuration.

        Returns:
            Seconds of links, devices and Eq. 1, shape (size + 1,).
        """
        edges = self.model.graph.outgoing[i]
        key = (i, spaces[i], *(spaces[edge.consumer] for edge in edges))
        if key not in self._terms:
            term, paid = self.node(i, spaces[i]).copy(), set()
            for edge in edges:
                layout = int(self.model.transfer_times.layouts(edge, spaces[edge.consumer])[0])
                if layout not in paid:  # consumers of one layout share its transfers
                    term += self._edge(edge, spaces[i], spaces[edge.consumer])
                paid.add(layout)
            self._terms[key] = term
        return self._terms[key]

    def node(self, i: int, space: ConfigSpace) -> Floats:
        """Return the share of a term that no other layer changes: compute and gradient synchronisation.

        Args:
            i: The layer.
            space: Its configuration.

        Returns:
            Seconds of links, devices and Eq. 1, shape (size + 1,).
        """
        key = (i, space)
        if key not in self._terms:
            term = np.zeros(self.size + 1)
            term[: self.links] = self._sync_bytes(i, space) * self.model.network.seconds_per_byte
            term[self.links + space.devices] = sum(self.model.compute_times.part_s(i, space).values())
            term[-1] = self.model.node_costs(i, space).total_s[0]
            self._terms[key] = term
        return self._terms[key]

    def _sync_bytes(self, i: int, space: ConfigSpace) -> Floats:
        """Return the bytes for which the all-reduces of a layer take every link, shape (links,)."""
        model, network = self.model, self.model.network
        sent = np.zeros(self.links)
        for (size,), split, times in model.sync_times.buffers(i, space):
            groups = replica_groups(network.rank, space.replica_grid(split)[0].tolist(), space.devices)
            if size and groups.shape[1] > 1:
                scheme = choose_all_reduce(network, model.gradient_sync, space, size, split=split).scheme
                for group, steps in zip(groups, group_rounds(network, scheme, groups), strict=True):
                    for traffic in (step.traffic.among(group) for step in steps):
                        message = traffic.taken * (times * size / int(space.shards(split)[0]))
                        sent += network.link_loads(traffic.source, traffic.target, message)
        return sent

    def _edge(self, edge: Edge, producer: ConfigSpace, consumer: ConfigSpace) -> Floats:
        """Return what the transfers of a tensor to one consumer, and of its gradient back, add; shape (size + 1,)."""
        key = self.model.transfer_times.key(edge, producer, consumer)
        if key not in self._terms:
            model, network = self.model, self.model.network
            regions = model.transfer_times.regions(edge, producer, consumer)
            regions = regions.take(producer.devices[regions.part] != regions.device)
            holder, reader = producer.devices[regions.part], regions.device
            size = (regions.high - regions.low).prod(axis=1) * float(model.graph.element_bytes)
            term = np.zeros(self.size + 1)
            directions = ((holder, reader), (reader, holder))[: 1 + model.graph.returns_gradient(edge)]
            for source, target in directions:
                if len(size):
                    busy_s = network.link_loads(source, target, size) * network.seconds_per_byte
                    term[: self.links] += busy_s
                    term[-1] += busy_s.max() + network.latencies_s(source, target, size).max()
            self._terms[key] = term
        return self._terms[key]
