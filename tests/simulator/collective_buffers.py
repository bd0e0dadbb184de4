"""Carry out collectives on buffers of integers, as their rounds say: which pieces go where, added or put in place."""

import numpy as np

from simulator.collectives.rounds import ChunkPattern, round_of
from simulator.collectives.schemes import rank_rounds


def pieces_of(rounds):
    """Pieces in which all rounds of a collective can be counted."""
    return int(np.lcm.reduce([step.chunks for step in rounds])) if rounds else 1


def carry_out(rounds, held):
    """Run rounds on ``held`` (ranks, pieces): messages of a repeat leave together, then arrive."""
    pieces = pieces_of(rounds)
    for step in rounds:
        fine = pieces // step.chunks
        for repeat in range(step.repeats):
            before, first = held.copy(), step.first_chunk(repeat)
            for source, target, low, adds in zip(step.source, step.target, first, step.adds, strict=True):
                sent = slice(low * fine, (low + step.width) * fine)
                held[target, sent] = before[source, sent] + (held[target, sent] if repeat < adds else 0)
    return held


def device_rounds(scheme, groups, nodes):
    """The rounds of groups of devices, given the node of every device of the cluster."""
    devices, nodes = np.array(groups, dtype=np.int64), np.array(nodes, dtype=np.int64)
    plans = rank_rounds(scheme, devices, nodes, np.zeros_like(nodes))
    return [[step.among(group) for step in plan] for plan, group in zip(plans, devices, strict=True)]


def all_to_all(count):
    """One round in which every rank sends a p-th of its buffer to every other; rank a's chunk for b is a p + b."""
    source, target = np.divmod(np.arange(count * count), count)
    others = source != target
    source, target = source[others], target[others]
    return round_of(source, target, ChunkPattern(count, low=source * count + target))


def group_of(scheme, count, per_node=2, per_rack=4):
    """The rounds of one group of all ranks."""
    ranks = np.arange(count)
    return rank_rounds(scheme, ranks[None], ranks // per_node, ranks // per_rack)[0]
