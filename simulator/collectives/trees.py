"""Collectives on trees: few steps, of large messages."""

import numpy as np

from hwprofiles import Ints
from simulator.collectives import rings
from simulator.collectives.rounds import Round, round_of, whole_round

__all__ = ["all_reduce", "broadcast", "double_all_reduce", "scattered_broadcast"]

PIECES = 8
"""Pieces of each half of the buffer that follow each other through a double tree."""


def all_reduce(count: int) -> list[Round]:
    """Reduce along a binomial tree to rank 0, then broadcast back."""
    up = [whole_round([(child, parent) for parent, child in level], adds=True) for level in _binomial(count)]
    return up + broadcast(count)


def broadcast(count: int) -> list[Round]:
    """Rank 0's buffer to all along a binomial tree."""
    return [whole_round(level, adds=False) for level in reversed(_binomial(count))]


def scattered_broadcast(count: int) -> list[Round]:
    """Rank 0 sends every rank its piece, and a ring gathers them: for large buffers.

    Source: Thakur, Rabenseifner and Gropp, 2005, Sec. 4.2, there with a binomial scatter.
    """
    others = np.arange(1, count)
    return [round_of(np.zeros_like(others), others, pieces=count, low=others), *rings.all_gather(count)]


def _binomial(count: int) -> list[list[tuple[int, int]]]:
    """Pairs (parent, child), from neighbours to far."""
    steps = [1 << b for b in range((count - 1).bit_length())]
    return [[(i, i + step) for i in range(0, count - step, 2 * step)] for step in steps]


def double_all_reduce(count: int) -> list[Round]:
    """Each half of the buffer up and down a binary tree of its own; inner ranks of one are leaves of the other.

    The halves go in ``PIECES`` pieces, one behind the other: while a piece goes down, later ones go up.

    Source: Sanders, Speck and Träff, "Two-tree algorithms for full bandwidth broadcast, reduction and scan",
    2009, Sec. 2; the second tree is the first mirrored (p even) or shifted by one rank (p odd).
    """
    parent, height, depth = _binary_tree(count)
    child, tall = np.arange(1, count), int(height.max())
    other = count - 1 - np.arange(count) if count % 2 == 0 else (np.arange(count) + 1) % count
    ups = np.concatenate([height[child], height[child]])
    downs = tall - 1 + np.concatenate([depth[child], depth[child]])
    low_end, high_end = np.concatenate([child, other[child]]), np.concatenate([parent[child], other[parent[child]]])
    half = np.repeat([0, PIECES], len(child))
    source, target = np.concatenate([low_end, high_end]), np.concatenate([high_end, low_end])
    level, half, adds = np.concatenate([ups, downs]), np.tile(half, 2), np.repeat([1, 0], len(ups))
    rounds = []
    for step in range(2 * tall + PIECES - 1):
        now = np.flatnonzero((level <= step) & (step < level + PIECES))
        low = half[now] + step - level[now]
        rounds.append(round_of(source[now], target[now], pieces=2 * PIECES, low=low, adds=adds[now], in_order=True))
    return rounds


def _binary_tree(count: int) -> tuple[Ints, Ints, Ints]:
    """Parent, height over the lowest leaf, and depth under rank 0; odd ranks are leaves."""
    rank = np.arange(count)
    bit = rank & -rank
    parent = (rank ^ bit) | (bit << 1)
    parent = np.where(parent < count, parent, rank ^ bit)
    height, depth = np.zeros(count, dtype=np.int64), np.zeros(count, dtype=np.int64)
    for r in sorted(range(1, count), key=lambda r: r & -r):  # children of a rank have lower bits
        height[parent[r]] = max(height[parent[r]], height[r] + 1)
    for r in sorted(range(1, count), key=lambda r: -(r & -r)):
        depth[r] = depth[parent[r]] + 1
    return parent, height, depth
