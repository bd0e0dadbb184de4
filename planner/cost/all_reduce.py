"""All-reduces among the replicas of a layer's parameters: groups, rounds, time, and choice of the algorithm.

A layer that is split in two by samples and in two by channels, over devices 0 to 3, has two groups of two replicas,
which sum their gradients at the same time:

    part    sample 0, channel 0   sample 0, channel 1   sample 1, channel 0   sample 1, channel 1
    device  0                     1                     2                     3
    groups  0 and 2 hold the filters of channel 0, 1 and 3 those of channel 1
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain
from typing import NamedTuple

import numpy as np

from groundwork.array_types import Bools, Floats, Ints
from groundwork.errors import ConfigError
from groundwork.sparse_rows import distinct
from planner.compression.settings import AUTO, LIBRARY
from planner.cost.library_choice import (
    LibraryChoice,
    fastest_of_family,
    is_in_network,
    is_library_scheme,
    library_choice,
    library_families,
    tuned_s,
)
from planner.cost.library_rounds import library_rounds
from planner.cost.library_tuner import Spread
from planner.graph.computation_graph import Layer
from planner.layouts.configurations import CHANNELS, ConfigSpace
from planner.topology.network_routes import ClusterRoutes
from simulator.collectives.rounds import Round, Traffic
from simulator.collectives.schemes import ALL_REDUCES, rank_rounds

GRADIENT_SYNCS = (*ALL_REDUCES, AUTO, LIBRARY)
"""Names of the algorithms of gradient synchronisation; ``auto`` picks the fastest for each layer, ``library`` what the
cluster's communication library picks."""
_EQUAL = 1e-12
"""Relative difference up to which two times count as equal."""
_ALL_PAIRS = ("direct", "ps-spread")
"""Algorithms with a message between every two replicas."""
_MOST_PAIRS = 1024
"""Replicas up to which ``auto`` considers these."""


def replica_groups(rank: Ints, grid: Sequence[int], devices: Ints) -> Ints:
    """Return the devices that hold the same parameters, in the order in which all-reduces number them.

    Parts 0 to 7 on devices 0 to 7, with two parts of the samples, two of the channels and two of the height::

        channels split the parameters, grid [2, 2, 2, 1]      [0, 1, 4, 5]  [2, 3, 6, 7]
        they do not, grid [8, 1]                              [0, 1, 2, 3, 4, 5, 6, 7]

    Args:
        rank: Order of every device in all-reduces (``ClusterRoutes.rank``).
        grid: A row of ``ConfigSpace.replica_grid``; parts are numbered in its order.
        devices: Device of each part.

    Returns:
        Shape (groups, replicas).
    """
    groups = _in_groups(grid, devices)
    return np.take_along_axis(groups, np.argsort(rank[groups], axis=1), axis=1)


def _in_groups(grid: Sequence[int], devices: Ints) -> Ints:
    """Return the devices that hold the same parameters, in the order of their parts; as ``replica_groups``."""
    # Groups come first, so that each row has the parts of one shard, or those that compute the same of it.
    order = [*range(1, len(grid), 2), *range(0, len(grid), 2)]
    return devices.reshape(grid).transpose(order).reshape(math.prod(grid[1::2]), -1)


class ReplicaNodes(NamedTuple):
    """On how many nodes the replicas of a buffer are, under each configuration of a space, shape (C,) each."""

    most: Ints
    """Nodes of the group that is on the most."""
    received: Ints
    """Nodes of all groups that are on more than one, together."""
    received_others: Ints
    """Nodes of all groups but for one of each, together."""
    used: Ints
    """Nodes of all parts."""


def replica_nodes(network: ClusterRoutes, space: ConfigSpace, split: tuple[str, ...]) -> ReplicaNodes:
    """Return on how many nodes the replicas of a buffer are.

    Args:
        network: Routes of the cluster.
        space: C configurations of the layer.
        split: Dimensions of the layer's output that split the buffer.
    """
    grids = space.replica_grid(split)
    if len(space.strides):
        keys, at = np.unique(np.column_stack([grids, space.strides]), axis=0, return_inverse=True)
        rows = [_nodes_of_groups(network, _merged(key[:-1]), key[-1]) for key in keys.tolist()]
    else:
        at = np.arange(space.size)
        devices = [space.devices_of(c) for c in range(space.size)]
        rows = [_counted(network, grid, each) for grid, each in zip(grids.tolist(), devices, strict=True)]
    return ReplicaNodes(*np.array(rows).reshape(-1, 4)[at.ravel()].T)


@lru_cache(maxsize=65536)
def _nodes_of_groups(network: ClusterRoutes, grid: tuple[int, ...], stride: int) -> tuple[int, int, int, int]:
    """Return ``_counted`` of parts at equal distances, the first on device 0."""
    return _counted(network, grid, np.arange(math.prod(grid)) * stride)


def _counted(network: ClusterRoutes, grid: Sequence[int], devices: Ints) -> tuple[int, int, int, int]:
    """Return the fields of ``ReplicaNodes`` for one configuration; arguments as for ``replica_groups``."""
    groups = np.sort(network.node[_in_groups(grid, devices)], axis=1)
    counts = 1 + np.count_nonzero(np.diff(groups, axis=1), axis=1)
    apart = counts[counts > 1].tolist()
    return int(counts.max()), sum(apart), sum(apart) - len(apart), len(distinct(network.node[devices]))


def group_rounds(network: ClusterRoutes, scheme: str, groups: Ints) -> list[tuple[Round, ...]]:
    """Return the rounds of an all-reduce between the ranks of every group.

    Args:
        network: Routes of the cluster.
        scheme: The algorithm, also one of ``library_families``.
        groups: Shape (groups, replicas): devices.
    """
    if is_library_scheme(scheme):
        return library_rounds(network, scheme, groups)
    return rank_rounds(scheme, groups, network.node, network.rack)


@dataclass(frozen=True, slots=True)
class _GroupRounds:
    """Rounds of one configuration's all-reduce per byte of a replica's buffer: R rounds on the links."""

    busy_s_per_byte: Floats
    """Shape (R,): time of the busiest link in each round, repeats included."""
    share: Floats
    """Shape (R,): size of a message as a share of the buffer."""
    repeats: Floats
    """Shape (R,): repeats of each round."""
    classes: tuple[Ints, ...]
    """Latency classes of each round's routes."""
    fixed_s: Floats
    """Shape (R,): latency of each round of a library, repeats included; NaN where that of the routes counts."""
    copied_s_per_byte: Floats
    """Shape (R,): time of each round in which a library's ranks copy, and links carry nothing."""
    spread: tuple[int, int]
    """Nodes and ranks of the first group."""


@lru_cache(maxsize=65536)
def _rounds(network: ClusterRoutes, scheme: str, grid: tuple[int, ...], devices: int | bytes) -> _GroupRounds:
    """Return the rounds of one configuration, all groups at the same time.

    Args:
        network: Routes of the cluster.
        scheme: The algorithm.
        grid: The row of ``ConfigSpace.replica_grid``.
        devices: Distance between the devices of neighbouring parts, or the device of each part as bytes: arrays cannot
            be keys.
    """
    groups = _replicas(network, grid, devices)
    plans = group_rounds(network, scheme, groups)
    busy, share, repeats, classes, fixed_s, copied_s = [], [], [], [], [], []
    for steps in zip(*plans, strict=True):
        # All groups send at once.  Repeats go over the same links, so their bytes are added up here.
        traffics, known = [step.traffic for step in steps], _known_links(network)
        if all(step is steps[0] for step in steps):  # equal patterns are one object (``rank_rounds``)
            traffics = traffics[:1]
        key = (grid, devices, *chain.from_iterable((id(each.source), id(each.target)) for each in traffics))
        if key not in known:
            known[key] = _links_used(network, groups, traffics)
        links = known[key]
        busy.append(_busiest_s_per_byte(network, groups, traffics, links))
        share.append(steps[0].share)
        repeats.append(float(steps[0].repeats))
        classes.append(links.classes)
        fixed_s.append(max(np.nan if each.latency_s is None else each.latency_s for each in traffics))
        copied_s.append(max(each.copied_s_per_byte for each in traffics))
    return _GroupRounds(
        np.array(busy),
        np.array(share),
        np.array(repeats),
        tuple(classes),
        np.array(fixed_s),
        np.array(copied_s),
        (len(distinct(network.node[groups[0]])), groups.shape[1]),
    )


@lru_cache(maxsize=64)
def _replicas(network: ClusterRoutes, grid: tuple[int, ...], devices: int | bytes) -> Ints:
    """Return the groups of replicas of one configuration, which all algorithms ask for; arguments as of ``_rounds``."""
    placed = np.arange(math.prod(grid)) * devices if isinstance(devices, int) else np.frombuffer(devices, np.int64)
    return replica_groups(network.rank, grid, placed)


class _LinksUsed(NamedTuple):
    """What the messages of one round between groups of devices load; protocols of a library differ in none of it."""

    ends: tuple[Ints, ...]
    """Senders and receivers by rank, which are kept for as long as their identities are keys."""
    classes: Ints
    """Latency classes of the messages."""
    is_far: Bools
    """Whether each message goes to another node, group by group."""
    s_per_byte: Floats
    """Time of links by byte of each message inside a node, and of each to another; shape (2, links)."""


def _links_used(network: ClusterRoutes, groups: Ints, traffics: Sequence[Traffic]) -> _LinksUsed:
    """Return what messages between groups load; arguments as for ``_messages``."""
    source, target = _messages(groups, traffics)
    is_far = network.node[source] != network.node[target]
    loads = np.array([network.link_loads(source, target, kind.astype(np.float64)) for kind in (~is_far, is_far)])
    s_per_byte = loads * network.seconds_per_byte
    # most links of a kind are loaded alike
    order = np.lexsort(s_per_byte)
    differs = np.diff(s_per_byte[:, order], axis=1, prepend=-1.0).any(axis=0)
    ends = tuple(end for each in traffics for end in (each.source, each.target))
    return _LinksUsed(ends, np.unique(network.latency_classes(source, target)), is_far, s_per_byte[:, order[differs]])


def _busiest_s_per_byte(network: ClusterRoutes, groups: Ints, traffics: Sequence[Traffic], links: _LinksUsed) -> float:
    """Return the time of the busiest link by byte of the buffer; arguments as for ``_messages``, and their links."""
    taken = [each.taken for each in traffics]
    each = np.tile(taken[0], len(groups)) if len(taken) == 1 else np.concatenate(taken)
    kinds = [each[kind] for kind in (~links.is_far, links.is_far)]
    if all((kind == kind[0]).all() for kind in kinds if len(kind)):
        bytes_of_kind = [kind[0] if len(kind) else 0.0 for kind in kinds]
        return float((np.array(bytes_of_kind) @ links.s_per_byte).max())
    loads = network.link_loads(*_messages(groups, traffics), each)
    return float((loads * network.seconds_per_byte).max())


@lru_cache(maxsize=64)
def _known_links(_network: ClusterRoutes) -> dict[object, _LinksUsed]:
    """Return what ``_links_used`` has found between the devices of a cluster, by groups and messages between ranks."""
    return {}


def _messages(groups: Ints, traffics: Sequence[Traffic]) -> tuple[Ints, Ints]:
    """Return the devices that send, and those that receive, in one round of all groups.

    Args:
        groups: Shape (groups, p): devices.
        traffics: What is sent between the ranks of each group, or of all.
    """
    if len(traffics) == 1:
        return groups[:, traffics[0].source].ravel(), groups[:, traffics[0].target].ravel()
    source = np.concatenate([group[each.source] for group, each in zip(groups, traffics, strict=True)])
    target = np.concatenate([group[each.target] for group, each in zip(groups, traffics, strict=True)])
    return source, target


class _SpaceRounds(NamedTuple):
    """Rounds of all configurations of a space, one after another: R rounds, with their latency classes."""

    configuration: Ints
    """Shape (R,)."""
    busy_s_per_byte: Floats
    share: Floats
    repeats: Floats
    class_start: Ints
    """Shape (R,): first of each round's classes in ``classes``."""
    classes: Ints
    fixed_s: Floats
    copied_s_per_byte: Floats


@lru_cache(maxsize=512)
def _replicated(space: ConfigSpace, split: tuple[str, ...]) -> list[tuple[int, tuple[int, ...], int | bytes]]:
    """Return the configurations in which parameters have replicas, with their grid and devices as of ``_rounds``."""
    found, strides = list[tuple[int, tuple[int, ...], int | bytes]](), space.strides.tolist()
    for c, row in enumerate(space.replica_grid(split).tolist()):
        if math.prod(row[::2]) > 1:
            found.append((c, _merged(row), strides[c] if strides else space.devices_of(c).tobytes()))
    return found


def _merged(grid: Sequence[int]) -> tuple[int, ...]:
    """Return a grid of replicas and shards without sizes of 1 between, so that equal groups have one."""
    merged = [1]
    for place, size in enumerate(grid):
        if size > 1 and place % 2 == len(merged) % 2:
            merged.append(size)
        else:
            merged[-1] *= size
    return (*merged, 1) if len(merged) % 2 else tuple(merged)


@lru_cache(maxsize=4096)
def _space_rounds(network: ClusterRoutes, scheme: str, space: ConfigSpace, split: tuple[str, ...]) -> _SpaceRounds:
    """Return the rounds of all configurations in which parameters have replicas.

    Two configurations with two rounds and with one, whose routes have the latency classes {0, 1}, {2} and {1}::

        configuration  [0, 0, 1]     class_start  [0, 2, 3]     classes  [0, 1, 2, 1]
    """
    replicated = _replicated(space, split)
    owner = [c for c, _, _ in replicated]
    rounds = [_rounds(network, scheme, grid, devices) for _, grid, devices in replicated]
    empty, none = np.empty(0), np.empty(0, dtype=np.int64)
    classes = [row for each in rounds for row in each.classes]
    return _SpaceRounds(
        np.repeat(np.array(owner, dtype=np.int64), [len(each.share) for each in rounds]) if rounds else none,
        np.concatenate([empty, *(each.busy_s_per_byte for each in rounds)]),
        np.concatenate([empty, *(each.share for each in rounds)]),
        np.concatenate([empty, *(each.repeats for each in rounds)]),
        np.cumsum([0, *map(len, classes)])[:-1],
        np.concatenate([none, *classes]),
        np.concatenate([empty, *(each.fixed_s for each in rounds)]),
        np.concatenate([empty, *(each.copied_s_per_byte for each in rounds)]),
    )


def all_reduce_s(
    network: ClusterRoutes,
    scheme: str,
    space: ConfigSpace,
    parameter_bytes: Floats | float,
    *,
    split: tuple[str, ...] = CHANNELS,
) -> Floats:
    """Compute the time of an all-reduce under every configuration of a space, nothing else running.

    The groups of replicas run at the same time.  A round takes the longest latency of its messages, once for each
    repeat, and the time of its busiest link; rounds run one after another.

    Args:
        network: Routes of the cluster.
        scheme: One of ``GRADIENT_SYNCS``.
        space: C configurations of the layer.
        parameter_bytes: Bytes of the layer's parameters, all shards together, of all configurations or shape (C,).
        split: Dimensions of the layer's output that split them.

    Returns:
        Seconds, shape (C,).

    Raises:
        ConfigError: The algorithm is unknown.

    Source: A round costs alpha + n beta as in Thakur, Rabenseifner and Gropp, "Optimization of Collective Communication
        Operations in MPICH", IJHPCA 2005, Sec. 3, with beta that of the busiest link.
    """
    if scheme not in GRADIENT_SYNCS and not is_library_scheme(scheme):
        raise ConfigError(f"gradient_sync must be one of {', '.join(GRADIENT_SYNCS)}, got {scheme!r}")
    if scheme == LIBRARY:
        return _library_s(network, space, parameter_bytes, split)
    if scheme == AUTO:
        schemes = candidate_all_reduces(network, space)
        return np.asarray(
            np.min([all_reduce_s(network, s, space, parameter_bytes, split=split) for s in schemes], axis=0)
        )
    if not np.any(parameter_bytes):
        return np.zeros(space.size)
    rounds = _space_rounds(network, scheme, space, split)
    if not len(rounds.share):
        return np.zeros(space.size)
    size = (parameter_bytes / space.shards(split))[rounds.configuration]
    # A round has a latency for each class of its routes, of which the longest counts.
    counts = np.diff(rounds.class_start, append=len(rounds.classes))
    latency = network.class_latencies(rounds.classes, np.repeat(rounds.share * size, counts))
    longest = np.maximum.reduceat(latency, rounds.class_start)
    known_s = rounds.fixed_s + rounds.copied_s_per_byte * size
    waited = np.where(np.isnan(known_s), rounds.repeats * longest, known_s)
    seconds = waited + rounds.busy_s_per_byte * size
    return np.asarray(np.bincount(rounds.configuration, seconds, minlength=space.size), dtype=np.float64)


def _library_choice(
    network: ClusterRoutes, space: ConfigSpace, parameter_bytes: Floats | float, split: tuple[str, ...]
) -> LibraryChoice:
    """Return what the cluster's library takes for each configuration of a space; arguments as for ``all_reduce_s``."""
    families = library_families(network, distinct(space.devices))
    seconds = [
        all_reduce_s(network, scheme, space, parameter_bytes, split=split) for family in families for scheme in family
    ]
    size = parameter_bytes / space.shards(split)
    return library_choice(network, families, "all-reduce", _spread(network, space, split), size, seconds)


def _library_s(
    network: ClusterRoutes, space: ConfigSpace, parameter_bytes: Floats | float, split: tuple[str, ...]
) -> Floats:
    """Return the seconds of ``_library_choice``, pricing of the algorithms between nodes what the tuner takes alone."""
    spread, seconds = _spread(network, space, split), np.zeros(space.size)
    size = np.broadcast_to(parameter_bytes, space.size) / space.shards(split)
    families, total = library_families(network, distinct(space.devices)), size * space.shards(split)
    expected, known = list[Floats](), dict[int, Floats]()
    for place, family in enumerate(families):
        expected.append(tuned_s(network, family, "all-reduce", spread, size))
        if is_in_network(family) and (spread.nodes > 1).any():
            own = [all_reduce_s(network, scheme, space, total, split=split) for scheme in family]
            expected[-1] = known[place] = fastest_of_family(own)[1]
    taken = np.where(spread.nodes > 1, np.argmin(expected, axis=0), -1)
    for place in np.unique(taken).tolist():
        rows = np.flatnonzero(taken == place)
        if place in known:
            seconds[rows] = known[place][rows]
            continue
        some = space if len(rows) == space.size else _some(space, rows.tobytes())
        if place < 0:  # in one node: the fastest
            seconds[rows] = _library_choice(network, some, total[rows], split).seconds
        else:
            own = [all_reduce_s(network, scheme, some, total[rows], split=split) for scheme in families[place]]
            seconds[rows] = fastest_of_family(own)[1]
    return seconds


@lru_cache(maxsize=512)
def _some(space: ConfigSpace, rows: bytes) -> ConfigSpace:
    """Return some configurations of a space, given by their indices as bytes; one object each time."""
    return space.only(np.frombuffer(rows, dtype=np.int64))


@lru_cache(maxsize=512)
def _spread(network: ClusterRoutes, space: ConfigSpace, split: tuple[str, ...]) -> Spread:
    """Return how the first group of replicas of each configuration is spread over nodes; one rank where none is."""
    nodes, ranks, rates = np.ones(space.size), np.ones(space.size), np.full((2, space.size), np.inf)
    library = network.library
    assert library is not None, "it was asked for its algorithms"
    if len(distinct(network.node[distinct(space.devices)])) > 1:
        for c, grid, devices in _replicated(space, split):
            for place, algorithm in enumerate(("ring", "tree")):
                scheme = f"{LIBRARY}-{algorithm}-{library.protocols[-1].name}"
                rounds = _rounds(network, scheme, grid, devices)
                nodes[c], ranks[c], rates[place, c] = *rounds.spread, 1 / rounds.busy_s_per_byte.sum()
    tree = rates[1] / (library.tree_share or 1.0)  # the tuner counts its own share of a tree's bandwidth
    return Spread(nodes, ranks, rates[0], tree)


def candidate_all_reduces(network: ClusterRoutes, space: ConfigSpace) -> list[str]:
    """Return the algorithms among which ``auto`` chooses.

    Hierarchical ones are left out on clusters without these levels, where they equal others; those with a message
    between every two replicas where there are too many replicas.
    """
    left_out = set(_ALL_PAIRS) if space.parts.max() > _MOST_PAIRS else set()
    left_out |= {"hierarchical"} if not network.node.any() else set()
    left_out |= {"hierarchical-3"} if not network.rack.any() else set()
    return [scheme for scheme in ALL_REDUCES if scheme not in left_out]


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncChoice:
    """Algorithm of one buffer's synchronisation, and the fastest other one."""

    scheme: str
    """The algorithm, one of ``ALL_REDUCES``."""
    price_s: float
    """Its time."""
    runner_up: str = ""
    """The fastest other algorithm; empty where the algorithm was given."""
    runner_up_s: float = 0.0
    """Time of that one."""


@lru_cache(maxsize=4096)
def choose_all_reduce(
    network: ClusterRoutes, gradient_sync: str, space: ConfigSpace, parameter_bytes: float, *, split: tuple[str, ...]
) -> SyncChoice:
    """Choose the all-reduce algorithm for a space of one configuration: the fastest, or what the library takes.

    Of equally fast ones it is the first.

    Args:
        network: Routes of the cluster.
        gradient_sync: One of ``GRADIENT_SYNCS``; any but ``auto`` and ``library`` is itself the choice.
        space: The layer's configuration.
        parameter_bytes: Bytes of the buffer, all shards together.
        split: Dimensions of the layer's output that split the buffer.
    """
    if gradient_sync == LIBRARY:
        families = library_families(network, distinct(space.devices))
        schemes = [scheme for family in families for scheme in family]
        chosen = _library_choice(network, space, parameter_bytes, split)
        rest_s = np.delete(chosen.family_s[:, 0], chosen.family[0])
        names = [family[-1] for i, family in enumerate(families) if i != chosen.family[0]]
        return SyncChoice(
            scheme=schemes[int(chosen.scheme[0])],
            price_s=float(chosen.seconds[0]),
            runner_up=names[int(rest_s.argmin())] if names else "",
            runner_up_s=float(rest_s.min(initial=np.inf)) if names else 0.0,
        )
    schemes = candidate_all_reduces(network, space) if gradient_sync == AUTO else [gradient_sync]
    prices = {each: float(all_reduce_s(network, each, space, parameter_bytes, split=split)[0]) for each in schemes}
    least = min(prices.values())
    scheme = next(name for name, price in prices.items() if price <= least * (1 + _EQUAL))
    price_s = prices.pop(scheme)
    other = min(prices, key=lambda name: prices[name], default="")
    return SyncChoice(scheme=scheme, price_s=price_s, runner_up=other, runner_up_s=prices.get(other, 0.0))


def layer_choice(
    network: ClusterRoutes, gradient_sync: str, layer: Layer, space: ConfigSpace, element_bytes: int
) -> SyncChoice | None:
    """Choose the algorithm for the slower of a layer's gradient buffers, for a space of one configuration.

    Args:
        network: Routes of the cluster.
        gradient_sync: One of ``GRADIENT_SYNCS``.
        layer: The layer.
        space: Its configuration.
        element_bytes: Bytes of one element.

    Returns:
        The choice; None where nothing is synchronised.
    """
    choices = []
    for split in layer.splits_of_parameters:
        count = sum(p.elements for p in layer.parameters if p.split == split)
        choices.append(choose_all_reduce(network, gradient_sync, space, float(count * element_bytes), split=split))
    slowest = max(choices, key=lambda choice: choice.price_s, default=None)
    return slowest if slowest and slowest.price_s > 0 else None
