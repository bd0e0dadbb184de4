"""The exchange of a layer's gradients among the replicas of its parameters: its rounds, its price, its choice."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from hwprofiles import ConfigError, Floats, Ints
from planner.compression import AUTO
from planner.graph import Layer
from planner.parallel import ConfigSpace
from planner.topology import ClusterRoutes
from simulator.collectives import ALL_REDUCES, Round, rank_rounds

__all__ = [
    "GRADIENT_SYNCS",
    "Choice",
    "all_reduce_s",
    "chosen",
    "considered",
    "group_rounds",
    "layer_choice",
    "replica_groups",
]


GRADIENT_SYNCS = (*ALL_REDUCES, AUTO)
"""What an exchange may be called."""
_EQUAL = 1e-12
_ALL_PAIRS = ("direct", "ps-spread")
_MOST_PAIRS = 1024
"""Replicas up to which ``auto`` considers schemes with a message between every two."""


def replica_groups(rank: Ints, before: int, channel: int, after: int, devices: Ints, split: bool) -> Ints:
    """Return the groups of devices that hold the same parameters, each in the order of its synchronisation.

    Args:
        rank: Position of every device in rings (``ClusterRoutes.rank``).
        before: Product of the degrees before the channel dimension (``ConfigSpace.shards``); parts are numbered with
            the last dimension fastest.
        channel: Degree of the channel dimension.
        after: Product of the degrees after the channel dimension.
        devices: Device of each part.
        split: True if a split of the channel dimension splits the parameters.

    Returns:
        Devices, shape (groups, replicas).
    """
    groups = devices.reshape(1, -1)
    if split:
        groups = devices.reshape(before, channel, after).transpose(1, 0, 2).reshape(channel, -1)
    return np.take_along_axis(groups, np.argsort(rank[groups], axis=1), axis=1)


def group_rounds(network: ClusterRoutes, scheme: str, groups: Ints) -> list[tuple[Round, ...]]:
    """Return the rounds of an all-reduce in every group of devices, shape (groups, replicas), between ranks."""
    return rank_rounds(scheme, groups, network.node, network.rack)


@dataclass(frozen=True, slots=True)
class _Unit:
    """An exchange per byte of one replica's parameters: R rounds, priced on the links."""

    busy_s_per_byte: Floats
    """Shape (R,): busiest link of each round, repeats included."""
    share: Floats
    repeats: Floats
    classes: tuple[Ints, ...]
    """Latency classes of each round's routes."""


@lru_cache(maxsize=65536)
def _unit(network: ClusterRoutes, scheme: str, shape: tuple[int, int, int], devices: bytes, split: bool) -> _Unit:
    groups = replica_groups(network.rank, *shape, np.frombuffer(devices, dtype=np.int64), split)
    plans = group_rounds(network, scheme, groups)
    busy, share, repeats, classes = [], [], [], []
    for steps in zip(*plans, strict=True):
        source, target = _ends(groups, steps)
        sent = np.full(len(source), steps[0].share * steps[0].repeats)
        busy.append(float((network.link_loads(source, target, sent) * network.seconds_per_byte).max()))
        share.append(steps[0].share)
        repeats.append(float(steps[0].repeats))
        classes.append(np.unique(network.latency_classes(source, target)))
    return _Unit(np.array(busy), np.array(share), np.array(repeats), tuple(classes))


def _ends(groups: Ints, steps: Sequence[Round]) -> tuple[Ints, Ints]:
    """Devices that send and receive in one round of all groups."""
    if all(step is steps[0] for step in steps):
        return groups[:, steps[0].source].ravel(), groups[:, steps[0].target].ravel()
    rows = list(zip(groups, steps, strict=True))
    source = [group[step.source] for group, step in rows]
    return np.concatenate(source), np.concatenate([group[step.target] for group, step in rows])


@dataclass(frozen=True, slots=True, eq=False)
class _Pack:
    """The units of a space's configurations as arrays: all their R rounds, and the classes of those."""

    configuration: Ints
    """Shape (R,)."""
    busy_s_per_byte: Floats
    share: Floats
    repeats: Floats
    class_start: Ints
    """Shape (R,): first of each round's classes."""
    classes: Ints


@lru_cache(maxsize=4096)
def _pack(network: ClusterRoutes, scheme: str, space: ConfigSpace, split: bool) -> _Pack:
    units, owner = [], []
    for c, (before, channel, after) in enumerate(space.shards.tolist()):
        if before * after * (1 if split else channel) > 1:
            devices = space.devices[space.device_start[c] : space.device_start[c + 1]].tobytes()
            units.append(_unit(network, scheme, (before, channel, after), devices, split))
            owner.append(c)
    empty, none = np.empty(0), np.empty(0, dtype=np.int64)
    classes = [row for unit in units for row in unit.classes]
    return _Pack(
        np.repeat(np.array(owner, dtype=np.int64), [len(unit.share) for unit in units]) if units else none,
        np.concatenate([empty, *(unit.busy_s_per_byte for unit in units)]),
        np.concatenate([empty, *(unit.share for unit in units)]),
        np.concatenate([empty, *(unit.repeats for unit in units)]),
        np.cumsum([0, *map(len, classes)])[:-1],
        np.concatenate([none, *classes]),
    )


def all_reduce_s(
    network: ClusterRoutes, scheme: str, space: ConfigSpace, parameter_bytes: float, *, split: bool = True
) -> Floats:
    """Time to exchange gradients under every configuration of a space, nothing else running.

    The groups of replicas exchange at the same time; each round is one activity on all its links.

    Args:
        network: Routes of the cluster.
        scheme: One of ``GRADIENT_SYNCS``.
        space: C configurations of the layer.
        parameter_bytes: Size of the layer's parameters, all shards together.
        split: Whether a split of the channel dimension splits them.

    Returns:
        Seconds, shape (C,).

    Raises:
        ConfigError: The scheme is unknown.
    """
    if scheme not in GRADIENT_SYNCS:
        raise ConfigError(f"gradient_sync must be one of {', '.join(GRADIENT_SYNCS)}, got {scheme!r}")
    if scheme == AUTO:
        rows = [all_reduce_s(network, s, space, parameter_bytes, split=split) for s in considered(network, space)]
        return np.asarray(np.min(rows, axis=0))
    if parameter_bytes == 0:
        return np.zeros(space.size)
    pack = _pack(network, scheme, space, split)
    if not len(pack.share):
        return np.zeros(space.size)
    size = (parameter_bytes / (space.shards[:, 1] if split else np.ones(space.size)))[pack.configuration]
    counts = np.diff(pack.class_start, append=len(pack.classes))
    latency = network.class_latencies(pack.classes, np.repeat(pack.share * size, counts))
    seconds = pack.repeats * np.maximum.reduceat(latency, pack.class_start) + pack.busy_s_per_byte * size
    return np.asarray(np.bincount(pack.configuration, seconds, minlength=space.size), dtype=np.float64)


def considered(network: ClusterRoutes, space: ConfigSpace) -> list[str]:
    """Schemes among which ``auto`` chooses: without those that this cluster's levels make equal to others."""
    left_out = set(_ALL_PAIRS) if space.parts.max() > _MOST_PAIRS else set()
    left_out |= {"hierarchical"} if not network.node.any() else set()
    left_out |= {"hierarchical-3"} if not network.rack.any() else set()
    return [scheme for scheme in ALL_REDUCES if scheme not in left_out]


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """How one buffer is exchanged, and what else was considered."""

    scheme: str
    price_s: float
    runner_up: str = ""
    """The cheapest other scheme; none where the scheme was given."""
    runner_up_s: float = 0.0


def chosen(
    network: ClusterRoutes, gradient_sync: str, space: ConfigSpace, parameter_bytes: float, *, split: bool
) -> Choice:
    """Return the algorithm that synchronises a buffer of gradients; of equally fast ones the first.

    Args:
        network: Routes of the cluster.
        gradient_sync: One of ``GRADIENT_SYNCS``; ``auto`` takes the fastest.
        space: Space of one configuration, whose replicas are synchronised.
        parameter_bytes: Size of the buffer of a whole layer.
        split: True if a split of the channel dimension splits the parameters.
    """
    prices = {
        scheme: float(all_reduce_s(network, scheme, space, parameter_bytes, split=split)[0])
        for scheme in (considered(network, space) if gradient_sync == AUTO else [gradient_sync])
    }
    least = min(prices.values())
    scheme = next(name for name, price in prices.items() if price <= least * (1 + _EQUAL))
    price_s = prices.pop(scheme)
    other = min(prices, key=lambda name: prices[name], default="")
    return Choice(scheme=scheme, price_s=price_s, runner_up=other, runner_up_s=prices.get(other, 0.0))


def layer_choice(
    network: ClusterRoutes, gradient_sync: str, layer: Layer, space: ConfigSpace, element_bytes: int
) -> Choice | None:
    """Return the choice for a layer's slowest buffer under one configuration; None if nothing is synchronised."""
    choices = []
    for split in (True, False):
        count = sum(p.elements for p in layer.parameters if p.split is split)
        choices.append(chosen(network, gradient_sync, space, float(count * element_bytes), split=split))
    dearest = max(choices, key=lambda choice: choice.price_s)
    return dearest if dearest.price_s > 0 else None
