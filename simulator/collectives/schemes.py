"""The collectives by name, and how groups of devices carry out an all-reduce."""

from collections.abc import Callable, Sequence
from functools import lru_cache

import numpy as np

from hwprofiles import ConfigError, Ints
from simulator.collectives import halving, hierarchy, rings, servers, trees
from simulator.collectives.rounds import Round

__all__ = ["ALL_GATHERS", "ALL_REDUCES", "BROADCASTS", "REDUCE_SCATTERS", "all_reduce", "rank_rounds"]

Flat = Callable[[int], list[Round]]

_FLAT: dict[str, Flat] = {
    "ring": rings.all_reduce,
    "ps": servers.one_server,
    "ps-spread": servers.spread_servers,
    "tree": trees.all_reduce,
    "double-tree": trees.double_all_reduce,
    "halving": halving.all_reduce,
    "direct": servers.one_shot,
}
ALL_REDUCES = (*_FLAT, "hierarchical", "hierarchical-3")
"""Ways to leave the sum of all buffers everywhere, by name."""

REDUCE_SCATTERS: dict[str, Flat] = {
    "ring": rings.reduce_scatter,
    "halving": halving.reduce_scatter,
    "direct": servers.reduce_scatter,
}
"""Ways to leave piece r of the sum on rank r, by name; each takes the number of ranks."""
ALL_GATHERS: dict[str, Flat] = {
    "ring": rings.all_gather,
    "halving": halving.all_gather,
    "direct": servers.all_gather,
}
"""Ways to give piece r, held by rank r, to all."""
BROADCASTS: dict[str, Flat] = {"tree": trees.broadcast, "scattered": trees.scattered_broadcast}
"""Ways to give rank 0's buffer to all."""


@lru_cache(maxsize=4096)
def _flat(scheme: str, count: int) -> tuple[Round, ...]:
    return tuple(_FLAT[scheme](count))


@lru_cache(maxsize=4096)
def _by_level(nodes: tuple[int, ...], racks: tuple[int, ...]) -> tuple[Round, ...]:
    rounds = hierarchy.three_level_all_reduce(nodes, racks) if racks else hierarchy.two_level_all_reduce(nodes)
    return tuple(rounds)


def rank_rounds(scheme: str, groups: Ints, nodes: Ints, racks: Ints) -> list[tuple[Round, ...]]:
    """Rounds, between ranks, that leave in every group the sum of its buffers on each of its devices.

    All groups follow one pattern, round by round, so that they can run in step; where ``scheme`` would
    give them different ones, they use rings.  Equal patterns are the same object.

    Args:
        scheme: One of ``ALL_REDUCES``.
        groups: Shape (groups, p): devices, all different.
        nodes: Node of every device of the cluster.
        racks: Rack of every device.

    Returns:
        The rounds of each group, in order; none for groups of one.

    Raises:
        ConfigError: The scheme is unknown.
    """
    if scheme not in ALL_REDUCES:
        raise ConfigError(f"gradient_sync must be one of {', '.join(ALL_REDUCES)}, got {scheme!r}")
    count = groups.shape[1]
    if count == 1:
        return [()] * len(groups)
    if scheme in _FLAT:
        return [_flat(scheme, count)] * len(groups)
    halls = racks if scheme == "hierarchical-3" else racks[:0]
    plans = [_by_level(_labels(nodes[group]), _labels(halls[group]) if len(halls) else ()) for group in groups]
    if len({tuple((step.share, step.repeats) for step in plan) for plan in plans}) > 1:
        plans = [_flat("ring", count)] * len(groups)
    return plans


def _labels(values: Ints) -> tuple[int, ...]:
    """The same values counted from 0 in order of appearance, so that equal patterns meet in the cache."""
    number: dict[int, int] = {}
    return tuple(number.setdefault(value, len(number)) for value in values.tolist())


def all_reduce(
    scheme: str, groups: Sequence[Sequence[int]], nodes: Sequence[int], *, racks: Sequence[int] = ()
) -> list[list[Round]]:
    """Rounds between devices; see ``rank_rounds``.

    Args:
        scheme: One of ``ALL_REDUCES``.
        groups: The replicas of each buffer: groups of one size, devices all different.
        nodes: Node of every device of the cluster.
        racks: Rack of every device; all in one if left out.

    Raises:
        ConfigError: The scheme is unknown.
    """
    devices, halls = np.array(groups, dtype=np.int64), np.array(racks or [0] * len(nodes), dtype=np.int64)
    plans = rank_rounds(scheme, devices, np.array(nodes, dtype=np.int64), halls)
    return [[step.among(group) for step in plan] for plan, group in zip(plans, devices, strict=True)]
