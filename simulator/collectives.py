"""Collectives as rounds of point-to-point messages: what pricing adds up and the engines replay."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hwprofiles.errors import ConfigError

__all__ = ["ALL_REDUCES", "Round", "all_reduce"]

Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class Round:
    """Messages that start together; the round repeats ``repeats`` times, one after the other."""

    source: Ints
    target: Ints
    share: float
    """Size of each message as a share of the buffer that is reduced."""
    repeats: int


def _pairs(pairs: Sequence[tuple[int, int]]) -> tuple[Ints, Ints]:
    array = np.array(pairs, dtype=np.int64).reshape(-1, 2)
    return array[:, 0], array[:, 1]


def _ring(devices: Sequence[int], _nodes: Sequence[int]) -> list[Round]:
    """Reduce-scatter and all-gather around a ring: 2(p - 1) steps of a p-th of the buffer."""
    count = len(devices)
    hops = [(devices[i], devices[(i + 1) % count]) for i in range(count)]
    return [Round(*_pairs(hops), 1 / count, 2 * (count - 1))]


def _parameter_server(devices: Sequence[int], _nodes: Sequence[int]) -> list[Round]:
    """Every replica pushes its gradient to the first device and pulls the result, one after the other."""
    pushes = [(device, devices[0]) for device in devices[1:]]
    return [Round(*_pairs(pushes), 1.0, 1), Round(*_pairs([(b, a) for a, b in pushes]), 1.0, 1)]


def _spread_servers(devices: Sequence[int], _nodes: Sequence[int]) -> list[Round]:
    """Every replica serves a p-th of the parameters: a direct reduce-scatter, then a direct all-gather."""
    exchange = [(a, b) for a in devices for b in devices if a != b]
    return [Round(*_pairs(exchange), 1 / len(devices), 2)]


def _tree(devices: Sequence[int], _nodes: Sequence[int]) -> list[Round]:
    """Reduce along a binomial tree to the first device, then broadcast back."""
    reduce, step = [], 1
    while step < len(devices):
        pairs = [(devices[i + step], devices[i]) for i in range(0, len(devices) - step, 2 * step)]
        reduce.append(pairs)
        step *= 2
    back = [[(b, a) for a, b in pairs] for pairs in reversed(reduce)]
    return [Round(*_pairs(pairs), 1.0, 1) for pairs in reduce + back]


def _hierarchical(devices: Sequence[int], nodes: Sequence[int]) -> list[Round]:
    """Rings inside the nodes, then across them with one ring a local rank, then inside again.

    Where the nodes hold different numbers of replicas there is no such pattern, and one ring serves.
    """
    groups: dict[int, list[int]] = {}
    for device, node in zip(devices, nodes, strict=True):
        groups.setdefault(node, []).append(device)
    rows = list(groups.values())
    inner, outer = len(rows[0]), len(rows)
    if inner == 1 or outer == 1 or any(len(row) != inner for row in rows):
        return _ring(devices, nodes)
    inside = [(row[i], row[(i + 1) % inner]) for row in rows for i in range(inner)]
    across = [(rows[k][i], rows[(k + 1) % outer][i]) for i in range(inner) for k in range(outer)]
    local = Round(*_pairs(inside), 1 / inner, inner - 1)
    return [local, Round(*_pairs(across), 1 / (inner * outer), 2 * (outer - 1)), local]


ALL_REDUCES: dict[str, Callable[[Sequence[int], Sequence[int]], list[Round]]] = {
    "ring": _ring,
    "ps": _parameter_server,
    "ps-spread": _spread_servers,
    "tree": _tree,
    "hierarchical": _hierarchical,
}
"""Ways to sum a buffer over replicas, by name."""


def all_reduce(scheme: str, groups: Sequence[Sequence[int]], nodes: Sequence[int]) -> list[list[Round]]:
    """Rounds that leave, in every group, the sum of the group's buffers on each of its devices.

    All groups follow one pattern, round by round, so that they can run in step; where ``scheme`` would
    give them different ones, they use rings.

    Args:
        scheme: A key of ``ALL_REDUCES``.
        groups: The replicas of each buffer: groups of one size, devices all different.
        nodes: Node of every device of the cluster.

    Returns:
        The rounds of each group, in order; none for groups of one.

    Raises:
        ConfigError: The scheme is unknown.
    """
    if scheme not in ALL_REDUCES:
        raise ConfigError(f"exchange must be one of {', '.join(ALL_REDUCES)}, got {scheme!r}")
    if len(groups[0]) == 1:
        return [[] for _ in groups]
    plans = [ALL_REDUCES[scheme](group, [nodes[device] for device in group]) for group in groups]
    if len({tuple((step.share, step.repeats) for step in plan) for plan in plans}) > 1:
        plans = [_ring(group, ()) for group in groups]
    return plans
