"""Rings side by side, each with its part of the buffer, as libraries run them over several links and cards."""

from itertools import pairwise

import numpy as np

from groundwork.array_types import Ints
from simulator.collectives.rounds import ChunkPattern, Round, round_of, whole_round

RING_COLLECTIVES = ("all-reduce", "all-gather", "reduce-scatter")
"""Collectives that rings carry out, each rank sending in every step."""


def parallel_rings(orders: Ints, collective: str = "all-reduce") -> Round:
    """Return a collective on several rings at the same time, an equal part of the buffer on each.

    Two rings over two nodes of two devices, so that each card carries one of them in each direction::

        order [0, 1, 2, 3]    leaves node 0 at 1, enters node 1 at 2
        order [1, 0, 3, 2]    leaves node 0 at 0, enters node 1 at 3

    Of an all-gather or reduce-scatter each rank holds the chunk of its place in the ring, of every ring's part.

    Args:
        orders: Ranks in the order of each ring, shape (rings, p), p >= 2; each row holds every rank once.
        collective: One of ``RING_COLLECTIVES``.

    Source:
        Patarasuk and Yuan, "Bandwidth optimal all-reduce algorithms for clusters of workstations", 2009, for each.
    """
    rings, count = orders.shape
    gather, place = collective == "all-gather", np.tile(np.arange(count), rings)
    pattern = ChunkPattern(
        chunks=rings * count,
        low=np.repeat(np.arange(rings) * count, count),
        turn=place if gather else place - 1,
        span=count,
    )
    return round_of(
        orders.ravel(),
        np.roll(orders, -1, axis=1).ravel(),
        pattern,
        repeats=(2 if collective == "all-reduce" else 1) * (count - 1),
        adds=0 if gather else count - 1,
    )


def chain_rounds(order: Ints) -> list[Round]:
    """Return an all-reduce along a chain: each rank adds its buffer to the sum on its way up, which then comes back.

    Args:
        order: Ranks along the chain, shape (p,).
    """
    up = [whole_round([(low, high)], adds=True) for low, high in pairwise(order.tolist())]
    return up + [whole_round([(high, low)], adds=False) for low, high in reversed(list(pairwise(order.tolist())))]
