"""Collectives that keep to the levels of a cluster: devices in nodes, nodes in racks."""

from collections.abc import Hashable, Sequence
from typing import TypeVar

import numpy as np

from simulator.collectives import rings
from simulator.collectives.rounds import Round

__all__ = ["three_level_all_reduce", "two_level_all_reduce"]

Member = TypeVar("Member")


def two_level_all_reduce(nodes: Sequence[Hashable]) -> list[Round]:
    """Rings inside the nodes, then across them with one ring a local rank, then inside again.

    Where the nodes hold different numbers of replicas there is no such pattern, and one ring serves.

    Args:
        nodes: Node of every rank.
    """
    rows = _equal_rows(range(len(nodes)), nodes)
    return rings.nested_all_reduce(np.array(rows)) if rows else rings.all_reduce(len(nodes))


def three_level_all_reduce(nodes: Sequence[Hashable], racks: Sequence[Hashable]) -> list[Round]:
    """The same with rings across the nodes of a rack, then across racks; two levels serve where racks differ."""
    rows = _equal_rows(range(len(nodes)), nodes)
    halls = _equal_rows(rows, [racks[row[0]] for row in rows])
    return rings.nested_all_reduce(np.array(halls)) if halls else two_level_all_reduce(nodes)


def _equal_rows(members: Sequence[Member], labels: Sequence[Hashable]) -> list[list[Member]]:
    """Members by label, in order of appearance; none unless there are several rows of one length, above 1."""
    rows: dict[Hashable, list[Member]] = {}
    for member, label in zip(members, labels, strict=True):
        rows.setdefault(label, []).append(member)
    lengths = {len(row) for row in rows.values()}
    return list(rows.values()) if len(rows) > 1 and len(lengths) == 1 and lengths != {1} else []
