"""Collectives on trees: few steps, of large messages."""

import numpy as np

from groundwork.array_types import Ints
from simulator.collectives.rings import ring_all_gather
from simulator.collectives.rounds import ChunkPattern, Round, round_of, whole_round

TREE_CHUNKS = 8
"""Chunks of each half of the buffer that follow each other through a double tree."""


def tree_all_reduce(count: int) -> list[Round]:
    """Return an all-reduce that reduces along a binomial tree to rank 0, then broadcasts back.

    Source:
        Thakur, Rabenseifner and Gropp, "Optimization of Collective Communication Operations in MPICH", 2005,
        Secs. 4.2 and 4.5.
    """
    up = [whole_round([(child, parent) for parent, child in level], adds=True) for level in _binomial(count)]
    return up + tree_broadcast(count)


def tree_broadcast(count: int) -> list[Round]:
    """Return a broadcast of rank 0's buffer along a binomial tree.

    Source:
        Thakur, Rabenseifner and Gropp, 2005, Sec. 4.2.
    """
    return [whole_round(level, adds=False) for level in reversed(_binomial(count))]


def scattered_broadcast(count: int) -> list[Round]:
    """Return a broadcast for large buffers: rank 0 sends every rank its chunk, and a ring all-gathers the chunks.

    Source:
        Thakur, Rabenseifner and Gropp, 2005, Sec. 4.2, there with a binomial scatter.
    """
    others = np.arange(1, count)
    return [round_of(np.zeros_like(others), others, ChunkPattern(count, low=others)), *ring_all_gather(count)]


def _binomial(count: int) -> list[list[tuple[int, int]]]:
    """Return pairs (parent, child) by level, from neighbours to ranks far apart."""
    steps = [1 << b for b in range((count - 1).bit_length())]
    return [[(i, i + step) for i in range(0, count - step, 2 * step)] for step in steps]


def double_tree_all_reduce(count: int) -> list[Round]:
    """Return an all-reduce that sends each half of the buffer up and down a binary tree of its own.

    Inner ranks of one tree are leaves of the other, so every rank sends and receives about as much.  The halves go
    in ``TREE_CHUNKS`` chunks, one behind the other: while a chunk goes down, later ones go up.

    Source:
        Sanders, Speck and Träff, "Two-tree algorithms for full bandwidth broadcast, reduction and scan", 2009;
        the second tree is the first one mirrored (p even) or shifted by one rank (p odd).
    """
    parent, height, depth = _binary_tree(count)
    child, tallest = np.arange(1, count), int(height.max())
    other = count - 1 - np.arange(count) if count % 2 == 0 else (np.arange(count) + 1) % count
    # Every edge of both trees, first as a message up (adds), then as one down; `level` is the step of chunk 0.
    ups = np.concatenate([height[child], height[child]])
    downs = tallest - 1 + np.concatenate([depth[child], depth[child]])
    low_end, high_end = np.concatenate([child, other[child]]), np.concatenate([parent[child], other[parent[child]]])
    half = np.repeat([0, TREE_CHUNKS], len(child))
    source, target = np.concatenate([low_end, high_end]), np.concatenate([high_end, low_end])
    level, half, adds = np.concatenate([ups, downs]), np.tile(half, 2), np.repeat([1, 0], len(ups))
    rounds = []
    for step in range(2 * tallest + TREE_CHUNKS - 1):
        # An edge is busy for TREE_CHUNKS steps: step s carries chunk s - level.
        now = np.flatnonzero((level <= step) & (step < level + TREE_CHUNKS))
        pattern = ChunkPattern(2 * TREE_CHUNKS, low=half[now] + step - level[now])
        rounds.append(round_of(source[now], target[now], pattern, adds=adds[now], in_order=True))
    return rounds


def _binary_tree(count: int) -> tuple[Ints, Ints, Ints]:
    """Return the parent of every rank, its height over the lowest leaf, and its depth under rank 0.

    Odd ranks are leaves: the lowest set bit of a rank is its level, and its parent has the next higher one.
    """
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
