"""Recursive halving and doubling: log p steps, each with one partner, on blocks of half or twice the size.

Source:
    Rabenseifner, "Optimization of Collective Reduction Operations", ICCS 2004; Thakur, Rabenseifner and
    Gropp, "Optimization of Collective Communication Operations in MPICH", 2005, Sec. 4.5.
"""

import numpy as np

from groundwork.array_types import Ints
from simulator.collectives.rings import ring_all_gather, ring_reduce_scatter
from simulator.collectives.rounds import ChunkPattern, Round, round_of


def halving_all_reduce(count: int) -> list[Round]:
    """Return an all-reduce that halves with near partners first and then doubles back.

    Where p is no power of two, 2**k < p < 2**(k + 1), the odd ones of the first 2 (p - 2**k) ranks first send their
    buffers to their neighbours, and receive the result at the end.

    Source:
        Rabenseifner, 2004.
    """
    power = 1 << (count.bit_length() - 1)
    paired = np.arange(0, 2 * (count - power), 2)
    active = np.concatenate([paired, np.arange(2 * len(paired), count)])
    # Block b belongs to the rank whose index has the bits of b in reverse: the largest blocks go to neighbours.
    ranks = active[_reversed_bits(power)]
    rounds = [*_halving(ranks), *_doubling(ranks)]
    if len(paired):
        rounds = [round_of(paired + 1, paired, adds=1), *rounds, round_of(paired, paired + 1)]
    return rounds


def halving_reduce_scatter(count: int) -> list[Round]:
    """Return a reduce-scatter after which rank r holds chunk r of the sum; a ring where p is no power of two.

    Source:
        Thakur, Rabenseifner and Gropp, 2005, Sec. 4.5.
    """
    return ring_reduce_scatter(count) if count & (count - 1) else _halving(np.arange(count))


def doubling_all_gather(count: int) -> list[Round]:
    """Return an all-gather of the chunk r that each rank r begins with; a ring where p is no power of two.

    Source:
        Thakur, Rabenseifner and Gropp, 2005, Sec. 4.5.
    """
    return ring_all_gather(count) if count & (count - 1) else _doubling(np.arange(count))


def _reversed_bits(power: int) -> Ints:
    """Return the indices below a power of two with their bits in reverse order."""
    index = np.arange(power)
    bits = power.bit_length() - 1
    return np.asarray(sum(((index >> b) & 1) << (bits - 1 - b) for b in range(bits)) + np.zeros_like(index))


def _halving(ranks: Ints) -> list[Round]:
    """Return the rounds after which ``ranks[b]`` holds the sum of block b.

    Each step sends the half of the remaining blocks that the partner keeps; four ranks::

        block        0    1    2    3
        width 2     23   23   01   01      to the partner at distance 2
        width 1      1    0    3    2      to the partner at distance 1
    """
    block, rounds, width = np.arange(len(ranks)), [], len(ranks)
    while width > 1:
        width //= 2
        partner = block ^ width
        low = partner & -width  # the partner's aligned group of `width` blocks
        rounds.append(round_of(ranks, ranks[partner], ChunkPattern(len(ranks), low=low, width=width), adds=1))
    return rounds


def _doubling(ranks: Ints) -> list[Round]:
    """Return the rounds in which ``ranks[b]`` begins with block b and all end with all blocks."""
    block, rounds, width = np.arange(len(ranks)), [], 1
    while width < len(ranks):
        pattern = ChunkPattern(len(ranks), low=block & -width, width=width)
        rounds.append(round_of(ranks, ranks[block ^ width], pattern))
        width *= 2
    return rounds
