"""Collectives on rings: in every step each rank sends to the next one and receives from the previous one."""

from dataclasses import replace

import numpy as np

from groundwork.array_types import Ints
from simulator.collectives.rounds import ChunkPattern, Round, round_of


def ring_all_reduce(count: int) -> list[Round]:
    """Return a ring all-reduce: reduce-scatter, then all-gather, 2(p - 1) steps of a p-th of the buffer.

    Source:
        Patarasuk and Yuan, "Bandwidth optimal all-reduce algorithms for clusters of workstations", 2009.
    """
    return nested_ring_all_reduce(np.arange(count))


def ring_reduce_scatter(count: int) -> list[Round]:
    """Return a ring reduce-scatter, after which rank r holds chunk r of the sum.

    Source:
        Patarasuk and Yuan, 2009: the first p - 1 steps of the all-reduce.
    """
    rank = np.arange(count)
    pattern = ChunkPattern(chunks=count, turn=rank - 1, span=count)
    return [round_of(rank, (rank + 1) % count, pattern, repeats=count - 1, adds=count - 1)]


def ring_all_gather(count: int) -> list[Round]:
    """Return a ring all-gather: rank r begins with chunk r, and every rank ends with all.

    Source:
        Patarasuk and Yuan, 2009: the last p - 1 steps of the all-reduce.
    """
    rank = np.arange(count)
    pattern = ChunkPattern(chunks=count, turn=rank, span=count)
    return [round_of(rank, (rank + 1) % count, pattern, repeats=count - 1)]


def nested_ring_all_reduce(grid: Ints) -> list[Round]:
    """Return a hierarchical all-reduce of rings inside rings.

    Rings reduce-scatter inside the innermost groups, then across them on the part that each rank holds, and so on;
    the outermost rings all-reduce; then the inner rings all-gather.  With 2 nodes of 2 devices::

        inside the nodes   0-1  2-3    reduce-scatter halves of the buffer
        across the nodes   0-2  1-3    all-reduce the half that each device holds
        inside the nodes   0-1  2-3    all-gather the halves

    Args:
        grid: Ranks by position, such as shape (racks, nodes, devices); with one axis it is one ring of all.
    """
    rank, position = grid.ravel(), np.indices(grid.shape).reshape(grid.ndim, -1)
    inward: list[Round] = []
    outward: list[Round] = []
    low, width = np.zeros(grid.size, dtype=np.int64), grid.size
    for axis in range(grid.ndim - 1, -1, -1):
        count, outermost = grid.shape[axis], axis == 0
        width //= count
        following = np.roll(grid, -1, axis=axis).ravel()
        pattern = ChunkPattern(chunks=grid.size, low=low, width=width, span=count)
        step = round_of(rank, following, pattern, repeats=count - 1)
        adding = replace(step, turn=position[axis] - 1, adds=np.full(grid.size, count - 1))
        inward.append(replace(adding, repeats=2 * (count - 1)) if outermost else adding)
        if not outermost:
            outward.append(replace(step, turn=position[axis]))
        # What the next larger rings work on is the block that each rank holds now.
        low = low + position[axis] * width
    return [*inward, *reversed(outward)]
