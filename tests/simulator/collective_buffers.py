"""Carry out collectives on buffers of integers, as their rounds say: which pieces go where, added or put in place."""

import numpy as np

from simulator.collectives.schemes import rank_rounds


def pieces_of(rounds):
    """Pieces in which all rounds of a collective can be counted."""
    return int(np.lcm.reduce([step.pieces for step in rounds])) if rounds else 1


def carry_out(rounds, held):
    """Run rounds on ``held`` (ranks, pieces): messages of a repeat leave together, then arrive."""
    pieces = pieces_of(rounds)
    for step in rounds:
        fine = pieces // step.pieces
        for repeat in range(step.repeats):
            before, first = held.copy(), step.first_piece(repeat)
            for source, target, low, adds in zip(step.source, step.target, first, step.adds, strict=True):
                sent = slice(low * fine, (low + step.width) * fine)
                held[target, sent] = before[source, sent] + (held[target, sent] if repeat < adds else 0)
    return held


def group_of(scheme, count, per_node=2, per_rack=4):
    """The rounds of one group of all ranks."""
    ranks = np.arange(count)
    return rank_rounds(scheme, ranks[None], ranks // per_node, ranks // per_rack)[0]
