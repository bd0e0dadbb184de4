"""Collectives of direct messages: every rank sends straight to the ranks that need its data."""

import numpy as np

from groundwork.array_types import Ints
from simulator.collectives.rounds import ChunkPattern, Round, round_of


def _ordered_pairs(count: int) -> tuple[Ints, Ints]:
    """Return the sources and targets of all ordered pairs of different ranks."""
    source, target = np.divmod(np.arange(count * count), count)
    others = source != target
    return source[others], target[others]


def one_server(count: int) -> list[Round]:
    """Return the all-reduce of a parameter server: every rank pushes its buffer to rank 0, then pulls the sum.

    Source:
        Jia et al. (anonymous), "Exploring the hidden dimension in accelerating convolutional neural networks",
        ICLR 2018 submission, Sec. 5.
    """
    others, server = np.arange(1, count), np.zeros(count - 1, dtype=np.int64)
    return [round_of(others, server, adds=1), round_of(server, others)]


def spread_servers(count: int) -> list[Round]:
    """Return the all-reduce of p parameter servers: a direct reduce-scatter, then a direct all-gather.

    Every rank is the server of a p-th of the buffer.

    Source:
        Seide et al., "1-Bit Stochastic Gradient Descent and its Application to Data-Parallel Distributed
        Training of Speech DNNs", Interspeech 2014, there with compressed messages.
    """
    return [*direct_reduce_scatter(count), *direct_all_gather(count)]


def one_shot(count: int) -> list[Round]:
    """Return the all-reduce in one step, for the smallest buffers: every rank sends its buffer to every other."""
    return [round_of(*_ordered_pairs(count), adds=1)]


def direct_reduce_scatter(count: int) -> list[Round]:
    """Return one step in which every rank sends chunk r to rank r, which then holds chunk r of the sum."""
    source, target = _ordered_pairs(count)
    return [round_of(source, target, ChunkPattern(count, low=target), adds=1)]


def direct_all_gather(count: int) -> list[Round]:
    """Return one step in which every rank r sends the chunk r that it begins with to every other rank."""
    source, target = _ordered_pairs(count)
    return [round_of(source, target, ChunkPattern(count, low=source))]
