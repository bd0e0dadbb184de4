"""The collectives by name, and how groups of devices carry out an all-reduce."""

from collections.abc import Callable
from functools import lru_cache

from groundwork.array_types import Ints
from groundwork.errors import ConfigError
from simulator.collectives.halving import doubling_all_gather, halving_all_reduce, halving_reduce_scatter
from simulator.collectives.hierarchy import three_level_all_reduce, two_level_all_reduce
from simulator.collectives.rings import ring_all_gather, ring_all_reduce, ring_reduce_scatter
from simulator.collectives.rounds import Round
from simulator.collectives.servers import (
    direct_all_gather,
    direct_reduce_scatter,
    one_server,
    one_shot,
    spread_servers,
)
from simulator.collectives.trees import double_tree_all_reduce, scattered_broadcast, tree_all_reduce, tree_broadcast

Flat = Callable[[int], list[Round]]
"""A collective that needs to know nothing but the number of ranks."""

_FLAT: dict[str, Flat] = {
    "ring": ring_all_reduce,
    "ps": one_server,
    "ps-spread": spread_servers,
    "tree": tree_all_reduce,
    "double-tree": double_tree_all_reduce,
    "halving": halving_all_reduce,
    "direct": one_shot,
}
ALL_REDUCES = (*_FLAT, "hierarchical", "hierarchical-3")
"""Algorithms by name that leave the sum of all buffers on every rank."""

REDUCE_SCATTERS: dict[str, Flat] = {
    "ring": ring_reduce_scatter,
    "halving": halving_reduce_scatter,
    "direct": direct_reduce_scatter,
}
"""Algorithms by name that leave chunk r of the sum on rank r; each takes the number of ranks."""
ALL_GATHERS: dict[str, Flat] = {
    "ring": ring_all_gather,
    "halving": doubling_all_gather,
    "direct": direct_all_gather,
}
"""Algorithms by name that give chunk r, held by rank r, to all ranks."""
BROADCASTS: dict[str, Flat] = {"tree": tree_broadcast, "scattered": scattered_broadcast}
"""Algorithms by name that give rank 0's buffer to all ranks."""


@lru_cache(maxsize=4096)
def _flat(scheme: str, count: int) -> tuple[Round, ...]:
    """Return the rounds of a flat all-reduce, one object for every scheme and number of ranks."""
    return tuple(_FLAT[scheme](count))


@lru_cache(maxsize=4096)
def _by_level(nodes: tuple[int, ...], racks: tuple[int, ...]) -> tuple[Round, ...]:
    """Return the rounds of a hierarchical all-reduce; two levels where ``racks`` is empty."""
    return tuple(three_level_all_reduce(nodes, racks) if racks else two_level_all_reduce(nodes))


def rank_rounds(scheme: str, groups: Ints, nodes: Ints, racks: Ints) -> list[tuple[Round, ...]]:
    """Return rounds between ranks that all-reduce the buffers of every group.

    All groups follow one pattern, round by round, so that they can run in step; where ``scheme`` would
    give them different ones, they use rings.  Equal patterns are the same object.

    Args:
        scheme: One of ``ALL_REDUCES``.
        groups: Shape (groups, p): devices, all different.
        nodes: Node of every device of the cluster.
        racks: Rack of every device of the cluster.

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
    used_racks = racks if scheme == "hierarchical-3" else racks[:0]
    plans = [
        _by_level(_labels(nodes[group]), _labels(used_racks[group]) if len(used_racks) else ()) for group in groups
    ]
    if len({tuple((step.share, step.repeats) for step in plan) for plan in plans}) > 1:
        plans = [_flat("ring", count)] * len(groups)
    return plans


def _labels(values: Ints) -> tuple[int, ...]:
    """Renumber values from 0 in order of appearance, so that equal patterns share an entry of the cache."""
    number: dict[int, int] = {}
    return tuple(number.setdefault(value, len(number)) for value in values.tolist())
