"""Rings of a communication library: cycles over the direct links of a node, and where they leave and enter nodes."""

from functools import lru_cache
from itertools import pairwise

import numpy as np

from groundwork.array_types import Floats, Ints
from planner.topology.device_order import cycles
from planner.topology.network_routes import ClusterRoutes

MOST_SEARCHED = 8
"""Devices of a node up to which all cycles are looked at: 2,520 of them."""
_EQUAL = 1e-9
_FEW_CYCLES = 3
"""Cycles over four devices."""
_RINGS_A_CABLE = 2
"""Rings that may share a cable in each direction: four devices, each joined to each, then use all six cables."""


def ring_orders(network: ClusterRoutes, devices: Ints) -> Ints:
    """Return the orders of the rings over which a library spreads a collective.

    Inside a node the rings follow the direct links between devices, as many as these carry side by side; where
    switches join the devices one order serves.  Each ring is cut where leaving a node and entering the next one is
    fastest; where several places are equally fast, as with a card for each device, there is a ring for each, so that
    all cards work.

    Args:
        network: Routes of the cluster.
        devices: The devices, node by node, shape (p,).

    Returns:
        Positions in ``devices``, shape (rings, p).
    """
    node = network.node[devices]
    counts, order = np.bincount(node), np.argsort(node, kind="stable")
    counts = counts[counts > 0]
    size = int(counts[0])
    if (counts != size).any() or size == 1:
        return np.arange(len(devices))[None]
    members = order.reshape(-1, size)
    members = members[np.argsort(members[:, 0])]  # nodes as they first occur
    rings = _rings_inside(network, devices[members[0]])
    if len(members) == 1:
        return rings
    ends = devices[members[0]], devices[members[1]]
    cuts = [(ring, place) for ring in rings for place in range(size)]
    cost = [_crossing_cost(network, ends[0][ring[place - 1]], ends[1][ring[place]]) for ring, place in cuts]
    least = min(cost)
    rotated = [np.roll(ring, -place) for (ring, place), each in zip(cuts, cost, strict=True) if each == least]
    return np.array([members[:, each].ravel() for each in rotated])


def _crossing_cost(network: ClusterRoutes, source: int, target: int) -> tuple[float, int]:
    """Return the inverse bandwidth of the slowest link of a route, and its number of links."""
    links = network.route(source, target)
    return float(network.seconds_per_byte[links].max().round(15)), len(links)


def _rings_inside(network: ClusterRoutes, devices: Ints) -> Ints:
    """Return the rings inside a node, as positions in ``devices``, shape (rings, size)."""
    in_order = np.argsort(devices, kind="stable")[None]  # neighbours share switches
    if not 2 < len(devices) <= MOST_SEARCHED:
        return in_order
    rings = _most_cycles(tuple(map(tuple, _cables(network, tuple(devices.tolist())).tolist())))
    return rings if len(rings) else in_order


@lru_cache(maxsize=4096)
def _cables(network: ClusterRoutes, members: tuple[int, ...]) -> Ints:
    """Return the number of equal cables that join each pair of devices directly, shape (size, size); read-only."""
    devices, size = np.array(members), len(members)
    source, target = np.divmod(np.arange(size * size), size)
    source, target = source[source != target], target[source != target]
    counts, links = network.routes(devices[source], devices[target])
    bandwidth = np.zeros((size, size))
    direct = counts == 1
    first = (np.cumsum(counts) - counts)[direct]
    bandwidth[source[direct], target[direct]] = 1.0 / network.seconds_per_byte[links[first]]
    bandwidth = np.minimum(bandwidth, bandwidth.T)
    if not bandwidth.any():
        return np.zeros((size, size), dtype=np.int64)
    # The slowest direct connection is one cable; rounding must not lose a cable where another is twice as fast.
    cables: Ints = np.floor(bandwidth / bandwidth[bandwidth > 0].min() + _EQUAL).astype(np.int64)
    return cables


def joined_directly(network: ClusterRoutes, devices: Ints) -> bool:
    """Return whether direct links join some of the devices of the first node; rings and chains can follow them."""
    first = devices[network.node[devices] == network.node[devices[0]]]
    return 2 < len(first) <= MOST_SEARCHED and bool(_cables(network, tuple(first.tolist())).any())


def chain_order(network: ClusterRoutes, devices: Ints) -> Ints | None:
    """Return the order of a chain over devices of one node that direct links join, but in no ring; else None.

    Of several chains it is one with as many cables as can be at its thinnest place.

    Args:
        network: Routes of the cluster.
        devices: The devices, shape (p,).

    Returns:
        Positions in ``devices``, shape (p,).
    """
    if not 2 < len(devices) <= MOST_SEARCHED:
        return None
    return _best_chain(tuple(map(tuple, _cables(network, tuple(devices.tolist())).tolist())))


@lru_cache(maxsize=256)
def _best_chain(cables: tuple[tuple[int, ...], ...]) -> Ints | None:
    """Return the chain of ``chain_order`` for cables between pairs of devices."""
    joined = np.array(cables)
    if not joined.any() or next(cycles(joined > 0), None):
        return None
    paths = [[each] for each in range(len(joined))]
    for _ in range(len(joined) - 1):
        paths = [
            [*path, each]
            for path in paths
            for each in range(len(joined))
            if each not in path and joined[path[-1], each]
        ]
    return np.array(max(paths, key=lambda path: min(joined[a, b] for a, b in pairwise(path)))) if paths else None


@lru_cache(maxsize=256)
def _most_cycles(cables: tuple[tuple[int, ...], ...]) -> Ints:
    """Return the largest set of cycles over all devices that the cables carry side by side, each in both directions.

    Returns:
        Positions, shape (rings, size); no ring where no cycle follows cables alone.
    """
    size, capacity = len(cables), _RINGS_A_CABLE * np.array(cables)
    found = list(cycles(capacity > 0))
    if not found:
        return np.empty((0, size), dtype=np.int64)
    low, high = np.triu_indices(size, 1)
    number = np.full((size, size), -1)
    number[low, high] = number[high, low] = np.arange(len(low))
    crossed = np.zeros((len(low), len(found)))
    for c, cycle in enumerate(found):
        for a, b in pairwise([*cycle, cycle[0]]):
            crossed[number[a, b], c] += 1
    # The small preference makes the answer one: of equally many the first cycles.
    gain = 1.0 - 1e-6 * np.arange(len(found)) / len(found)
    chosen = _most_gain(gain, crossed, capacity[low, high])
    times = chosen[chosen > 0] // np.gcd.reduce(chosen[chosen > 0])
    rings = np.repeat(np.array(found)[chosen > 0], times, axis=0)
    return np.concatenate([rings, rings[:, ::-1]])


def _most_gain(gain: Floats, crossed: Floats, capacity: Ints) -> Ints:
    """Return how often each cycle is taken for the most gain in all.

    Args:
        gain: Gain by cycle, shape (C,).
        crossed: How often a cycle crosses a pair of devices, shape (pairs, C).
        capacity: Cycles that may cross each pair, shape (pairs,).
    """
    if len(gain) <= _FEW_CYCLES:  # four devices: all choices are looked at, sooner than the solver is loaded
        most = [int((capacity[row > 0] // row[row > 0]).min()) for row in crossed.T]
        choices = np.indices([each + 1 for each in most]).reshape(len(gain), -1)
        possible = choices[:, (crossed @ choices <= capacity[:, None]).all(axis=0)]
        return np.asarray(possible[:, (gain @ possible).argmax()], dtype=np.int64)
    from scipy.optimize import LinearConstraint, milp  # here: it takes long to load, and few clusters need it

    limits = LinearConstraint(crossed, ub=capacity)
    return np.asarray(milp(-gain, constraints=limits, integrality=np.ones(len(gain))).x.round(), dtype=np.int64)
