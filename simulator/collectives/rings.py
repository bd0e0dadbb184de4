"""Collectives on rings: every rank sends to the next and receives from the one before, all the time."""

from dataclasses import replace

import numpy as np

from hwprofiles import Ints
from simulator.collectives.rounds import Round, round_of

__all__ = ["all_gather", "all_reduce", "nested_all_reduce", "reduce_scatter"]


def all_reduce(count: int) -> list[Round]:
    """Reduce-scatter and all-gather in one go: 2(p - 1) steps of a p-th of the buffer.

    Source: Patarasuk and Yuan, "Bandwidth optimal all-reduce algorithms for clusters of workstations", 2009, Sec. 4.
    """
    return nested_all_reduce(np.arange(count))


def reduce_scatter(count: int) -> list[Round]:
    """Rank r ends with piece r of the sum."""
    rank = np.arange(count)
    return [
        round_of(
            rank, (rank + 1) % count, pieces=count, turn=rank - 1, span=count, repeats=count - 1, adds=count - 1
        )
    ]  # fmt: skip


def all_gather(count: int) -> list[Round]:
    """Rank r begins with piece r, and ends with all."""
    rank = np.arange(count)
    return [round_of(rank, (rank + 1) % count, pieces=count, turn=rank, span=count, repeats=count - 1)]


def nested_all_reduce(grid: Ints) -> list[Round]:
    """Rings inside the innermost groups, then across them on what each rank holds, and so on, and back.

    Args:
        grid: Ranks by place, such as shape (racks, nodes, devices); one axis is one ring of all.
    """
    rank, place, axes = grid.ravel(), np.indices(grid.shape).reshape(grid.ndim, -1), range(grid.ndim - 1, -1, -1)
    inward: list[Round] = []
    outward: list[Round] = []
    low, width = np.zeros(grid.size, dtype=np.int64), grid.size
    for axis in axes:
        count, last = grid.shape[axis], axis == 0
        width //= count
        following = np.roll(grid, -1, axis=axis).ravel()
        step = round_of(rank, following, pieces=grid.size, low=low, width=width, span=count, repeats=count - 1)
        adding = replace(step, turn=place[axis] - 1, adds=np.full(grid.size, count - 1))
        inward.append(replace(adding, repeats=2 * (count - 1)) if last else adding)
        if not last:
            outward.append(replace(step, turn=place[axis]))
        low = low + place[axis] * width
    return [*inward, *reversed(outward)]
