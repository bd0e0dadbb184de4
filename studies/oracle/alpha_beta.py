"""Alpha and beta of a communication pattern, from the device graph.

A pattern is a set of messages that are sent at the same time, such as a round of all rings of a hybrid.  Its alpha is
the largest latency of their routes for a message of that size; its beta is the time per byte of the busiest link, which
all messages that cross it share: several rings that leave a node through one card add up there.  So a pattern inside a
node has the alpha and beta of the node's links, and a pattern between nodes those of the links between them, rack
uplinks included.

Source: Kahira et al., "An Oracle for Guiding Large-Scale Model/Hybrid Parallel Training of Convolutional Neural
Networks", whose alpha and beta are measured for each pattern.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from groundwork.array_types import Floats, Ints
from planner.topology.network_routes import ClusterRoutes

_ALL = 16
"""Largest pattern, in devices, of which every message is counted."""


@dataclass(frozen=True, slots=True, eq=False)
class Wire:
    """Alpha and beta of a pattern; both are 0 for a pattern without messages."""

    network: ClusterRoutes
    classes: Ints
    """Latency classes of the routes of the pattern."""
    beta_s_per_byte: float

    def alpha_s(self, size_bytes: Floats) -> Floats:
        """Return the largest latency of a message of each size, in the shape of the sizes."""
        alpha = np.zeros(size_bytes.shape)
        for name in self.classes.tolist():
            seconds = self.network.class_latencies(np.full(size_bytes.size, name), size_bytes.ravel())
            alpha = np.maximum(alpha, seconds.reshape(size_bytes.shape))
        return alpha


def _wire(network: ClusterRoutes, source: Ints, target: Ints, weight: float = 1.0) -> Wire:
    """Return alpha and beta of a pattern.

    Args:
        network: Routes of the cluster.
        source: Sender of each message, shape (M,).
        target: Receiver of each message, shape (M,).
        weight: Size of each message, relative to the size that beta multiplies.
    """
    keep = _representative(network, source, target)
    source, target = source[keep], target[keep]
    if not len(source):
        return Wire(network, np.empty(0, dtype=np.int64), 0.0)
    loads = network.link_loads(source, target, np.full(len(source), weight))
    return Wire(
        network, np.unique(network.latency_classes(source, target)), float((loads * network.seconds_per_byte).max())
    )


def _representative(network: ClusterRoutes, source: Ints, target: Ints) -> NDArray[np.bool_]:
    """Return the messages that are counted: of a large pattern those of a few nodes, as all nodes are wired alike.

    The nodes are the first two, and those on both sides of the first rack's edge.  So all messages over the links of
    these nodes are counted, and all messages of a ring that leave the first rack or come back to it.
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
    """Return the first p devices as groups of consecutive devices, shape (p / group, group).

    Six devices in groups of two are [[0, 1], [2, 3], [4, 5]].
    """
    return np.arange(p, dtype=np.int64).reshape(-1, group)


def columns(p: int, group: int) -> Ints:
    """Return the devices with the same position in each group, shape (group, p / group): replicas of one share.

    Six devices in groups of two are [[0, 2, 4], [1, 3, 5]].
    """
    return rows(p, group).T.copy()


def ring(network: ClusterRoutes, groups: Ints) -> Wire:
    """Return alpha and beta of one round of a ring in every group at once.

    Rings have the order of those of gradient synchronisation.
    """
    order = np.take_along_axis(groups, np.argsort(network.rank[groups], axis=1), axis=1)
    if groups.shape[1] == 1:
        order = order[:, :0]
    return _wire(network, order.ravel(), np.roll(order, -1, axis=1).ravel())


def direct(network: ClusterRoutes, groups: Ints) -> Wire:
    """Return alpha and beta of messages from every device to every other of its group, all at once."""
    size = groups.shape[1]
    source, target = np.nonzero(~np.eye(size, dtype=bool))
    return _wire(network, groups[:, source].ravel(), groups[:, target].ravel())


def neighbours(network: ClusterRoutes, groups: Ints, grid: tuple[int, ...]) -> Wire:
    """Return alpha and beta of the messages between neighbouring parts of a grid, all at once.

    Each message is an equal share of the whole halo that a part receives.

    Args:
        network: Routes of the cluster.
        groups: Devices of each group, one for each part of its grid, shape (groups, parts).
        grid: Degrees of the positions.
    """
    parts = np.arange(groups.shape[1]).reshape(grid)
    ends = [
        (np.delete(parts, -1, axis=axis).ravel(), np.delete(parts, 0, axis=axis).ravel()) for axis in range(parts.ndim)
    ]
    low, high = (np.concatenate([pair[k] for pair in ends]) for k in (0, 1))
    source, target = np.concatenate([low, high]), np.concatenate([high, low])
    received = np.bincount(target, minlength=1).max() if len(target) else 1
    return _wire(network, groups[:, source].ravel(), groups[:, target].ravel(), 1 / received)


def boundaries(network: ClusterRoutes, stages: int, size_bytes: Floats) -> tuple[Floats, Floats]:
    """Return alpha and beta from each stage to the next, shape (stages - 1,) each, for one message alone on its route.

    Args:
        network: Routes of the cluster.
        stages: Number of stages; stage k is device k.
        size_bytes: Message of each boundary, shape (stages - 1,).
    """
    source = np.arange(stages - 1, dtype=np.int64)
    counts, links = network.routes(source, source + 1)
    beta = np.maximum.reduceat(network.seconds_per_byte[links], np.cumsum(counts) - counts) if stages > 1 else source
    return network.latencies_s(source, source + 1, size_bytes), np.asarray(beta, dtype=np.float64)
