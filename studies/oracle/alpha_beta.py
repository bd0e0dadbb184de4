"""Alpha and beta of a communication pattern, read off the device graph.

A pattern is messages that go at the same time, such as a round of all rings of a hybrid.  Its alpha is the largest
latency of their routes for a message of that size; its beta is the time per byte of the busiest link, which all
messages that cross it share: several rings that leave a node by one card add up there.  So a pattern inside a node
gets the links of the node, and one between nodes those between them, rack uplinks included.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hwprofiles import Floats, Ints
from planner.topology import ClusterRoutes

__all__ = ["Wire", "boundaries", "columns", "direct", "neighbours", "ring", "rows"]


_ALL = 16
"""Devices up to which every message of a pattern is looked at."""


@dataclass(frozen=True, slots=True, eq=False)
class Wire:
    """Alpha and beta of a pattern; none where nobody sends."""

    network: ClusterRoutes
    classes: Ints
    """Latency classes of the routes."""
    beta_s_per_byte: float

    def alpha_s(self, size_bytes: Floats) -> Floats:
        """Largest latency of a message of each size, shape of the sizes."""
        alpha = np.zeros(size_bytes.shape)
        for name in self.classes.tolist():
            seconds = self.network.class_latencies(np.full(size_bytes.size, name), size_bytes.ravel())
            alpha = np.maximum(alpha, seconds.reshape(size_bytes.shape))
        return alpha


def _wire(network: ClusterRoutes, source: Ints, target: Ints, weight: float = 1.0) -> Wire:
    keep = _representative(network, source, target)
    source, target = source[keep], target[keep]
    if not len(source):
        return Wire(network, np.empty(0, dtype=np.int64), 0.0)
    loads = network.link_loads(source, target, np.full(len(source), weight))
    return Wire(
        network, np.unique(network.latency_classes(source, target)), float((loads * network.seconds_per_byte).max())
    )


def _representative(network: ClusterRoutes, source: Ints, target: Ints) -> NDArray[np.bool_]:
    """Which messages to look at: of large patterns those that touch a few nodes, the others being wired alike.

    The first two nodes, and those on both sides of the first rack's edge: every message over the links of these nodes
    is among them, and every one of a ring that leaves the first rack or comes back to it.
    """
    nodes = np.unique(network.node[np.concatenate([source, target])])
    if len(np.unique(np.concatenate([source, target]))) <= _ALL:
        return np.ones(len(source), dtype=bool)
    chosen = {int(nodes[0]), int(nodes[1 % len(nodes)])}
    rack = {int(node): int(network.rack[np.argmax(network.node == node)]) for node in nodes}
    edge = next((k for k in range(1, len(nodes)) if rack[int(nodes[k])] != rack[int(nodes[0])]), None)
    if edge is not None:
        chosen |= {int(nodes[edge - 1]), int(nodes[edge])}
    listed = np.array(sorted(chosen))
    return np.asarray(np.isin(network.node[source], listed) | np.isin(network.node[target], listed))


def rows(p: int, group: int) -> Ints:
    """The first p devices as groups of neighbours, shape (p / group, group)."""
    return np.arange(p, dtype=np.int64).reshape(-1, group)


def columns(p: int, group: int) -> Ints:
    """Devices of the same place in each group, shape (group, p / group): replicas of the same share."""
    return rows(p, group).T.copy()


def ring(network: ClusterRoutes, groups: Ints) -> Wire:
    """One round of a ring in every group at once, in the order of gradient exchanges."""
    order = np.take_along_axis(groups, np.argsort(network.rank[groups], axis=1), axis=1)
    if groups.shape[1] == 1:
        order = order[:, :0]
    return _wire(network, order.ravel(), np.roll(order, -1, axis=1).ravel())


def direct(network: ClusterRoutes, groups: Ints) -> Wire:
    """Every device sends to every other of its group, all at once."""
    size = groups.shape[1]
    source, target = np.nonzero(~np.eye(size, dtype=bool))
    return _wire(network, groups[:, source].ravel(), groups[:, target].ravel())


def neighbours(network: ClusterRoutes, groups: Ints, grid: tuple[int, ...]) -> Wire:
    """Every part of a grid sends to its neighbours, each an equal share of the halo that a part receives in all."""
    places = np.arange(groups.shape[1]).reshape(grid)
    ends = [
        (np.delete(places, -1, axis=axis).ravel(), np.delete(places, 0, axis=axis).ravel())
        for axis in range(places.ndim)
    ]
    low, high = (np.concatenate([pair[k] for pair in ends]) for k in (0, 1))
    source, target = np.concatenate([low, high]), np.concatenate([high, low])
    received = np.bincount(target, minlength=1).max() if len(target) else 1
    return _wire(network, groups[:, source].ravel(), groups[:, target].ravel(), 1 / received)


def boundaries(network: ClusterRoutes, stages: int, size_bytes: Floats) -> tuple[Floats, Floats]:
    """Alpha and beta from each stage to the next, shape (stages - 1,): the route of one message alone."""
    source = np.arange(stages - 1, dtype=np.int64)
    counts, links = network.routes(source, source + 1)
    beta = np.maximum.reduceat(network.seconds_per_byte[links], np.cumsum(counts) - counts) if stages > 1 else source
    return network.latencies_s(source, source + 1, size_bytes), np.asarray(beta, dtype=np.float64)
