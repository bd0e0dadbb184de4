"""Collectives that follow the levels of a cluster: devices in nodes, nodes in racks."""

from collections.abc import Hashable, Sequence
from typing import TypeVar

import numpy as np

from simulator.collectives.rings import nested_ring_all_reduce, ring_all_reduce
from simulator.collectives.rounds import Round

Member = TypeVar("Member")


def two_level_all_reduce(nodes: Sequence[Hashable]) -> list[Round]:
    """Return rings inside the nodes, then across them with one ring for each local rank, then inside again.

    Where the nodes hold different numbers of ranks there is no such pattern, and one flat ring is returned.

    Args:
        nodes: Node of every rank.
    """
    rows = _equal_rows(range(len(nodes)), nodes)
    return nested_ring_all_reduce(np.array(rows)) if rows else ring_all_reduce(len(nodes))


def three_level_all_reduce(nodes: Sequence[Hashable], racks: Sequence[Hashable]) -> list[Round]:
    """Return rings inside the nodes, across the nodes of a rack, across racks, and back.

    Where the racks hold different numbers of nodes, the two levels of ``two_level_all_reduce`` are returned.

    Args:
        nodes: Node of every rank.
        racks: Rack of every rank.
    """
    rows = _equal_rows(range(len(nodes)), nodes)
    grid = _equal_rows(rows, [racks[row[0]] for row in rows])
    return nested_ring_all_reduce(np.array(grid)) if grid else two_level_all_reduce(nodes)


def _equal_rows(members: Sequence[Member], labels: Sequence[Hashable]) -> list[list[Member]]:
    """Return the members by label, in order of appearance; none unless several rows have one length above 1."""
    rows: dict[Hashable, list[Member]] = {}
    for member, label in zip(members, labels, strict=True):
        rows.setdefault(label, []).append(member)
    lengths = {len(row) for row in rows.values()}
    return list(rows.values()) if len(rows) > 1 and len(lengths) == 1 and lengths != {1} else []
