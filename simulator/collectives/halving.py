"""Recursive halving and doubling: log p steps, each with a partner, on blocks of half the size or of twice it.

Source: Rabenseifner, "Optimization of Collective Reduction Operations", ICCS 2004, Sec. 4; Thakur, Rabenseifner and
Gropp, "Optimization of Collective Communication Operations in MPICH", 2005, Sec. 4.5.
"""

import numpy as np

from hwprofiles import Ints
from simulator.collectives import rings
from simulator.collectives.rounds import Round, round_of

__all__ = ["all_gather", "all_reduce", "reduce_scatter"]


def all_reduce(count: int) -> list[Round]:
    """Halve with near partners first, then double back.

    Where p is no power of two, 2**k < p < 2**(k + 1), the odd ones of the first 2 (p - 2**k) ranks give their
    buffers to their neighbours first, and are given the result in the end.
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


def reduce_scatter(count: int) -> list[Round]:
    """Rank r ends with piece r of the sum; rings serve where p is no power of two."""
    return rings.reduce_scatter(count) if count & (count - 1) else _halving(np.arange(count))


def all_gather(count: int) -> list[Round]:
    """Rank r begins with piece r, and ends with all; rings serve where p is no power of two."""
    return rings.all_gather(count) if count & (count - 1) else _doubling(np.arange(count))


def _reversed_bits(power: int) -> Ints:
    index = np.arange(power)
    bits = power.bit_length() - 1
    return np.asarray(sum(((index >> b) & 1) << (bits - 1 - b) for b in range(bits)) + np.zeros_like(index))


def _halving(ranks: Ints) -> list[Round]:
    """``ranks[b]`` ends with the sum of block b."""
    block, rounds, width = np.arange(len(ranks)), [], len(ranks)
    while width > 1:
        width //= 2
        partner = block ^ width
        low = partner & -width
        rounds.append(round_of(ranks, ranks[partner], pieces=len(ranks), low=low, width=width, adds=1))
    return rounds


def _doubling(ranks: Ints) -> list[Round]:
    """``ranks[b]`` begins with block b, and ends with all."""
    block, rounds, width = np.arange(len(ranks)), [], 1
    while width < len(ranks):
        rounds.append(round_of(ranks, ranks[block ^ width], pieces=len(ranks), low=block & -width, width=width))
        width *= 2
    return rounds
