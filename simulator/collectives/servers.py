"""Collectives without a pattern on the way: everyone sends straight to whom it concerns."""

import numpy as np

from hwprofiles import Ints
from simulator.collectives.rounds import Round, round_of

__all__ = ["all_gather", "all_to_all", "one_server", "one_shot", "reduce_scatter", "spread_servers"]


def _everyone_to_everyone(count: int) -> tuple[Ints, Ints]:
    source, target = np.divmod(np.arange(count * count), count)
    others = source != target
    return source[others], target[others]


def one_server(count: int) -> list[Round]:
    """Every rank pushes its buffer to rank 0 and pulls the sum, one after the other."""
    others, server = np.arange(1, count), np.zeros(count - 1, dtype=np.int64)
    return [round_of(others, server, adds=1), round_of(server, others)]


def spread_servers(count: int) -> list[Round]:
    """Every rank serves a p-th of the buffer: a direct reduce-scatter, then a direct all-gather."""
    return [*reduce_scatter(count), *all_gather(count)]


def one_shot(count: int) -> list[Round]:
    """Every rank sends its whole buffer to every other: one step, for the smallest buffers."""
    return [round_of(*_everyone_to_everyone(count), adds=1)]


def reduce_scatter(count: int) -> list[Round]:
    """Rank r ends with piece r of the sum."""
    source, target = _everyone_to_everyone(count)
    return [round_of(source, target, pieces=count, low=target, adds=1)]


def all_gather(count: int) -> list[Round]:
    """Rank r begins with piece r, and ends with all."""
    source, target = _everyone_to_everyone(count)
    return [round_of(source, target, pieces=count, low=source)]


def all_to_all(count: int) -> list[Round]:
    """Every rank has a p-th of its buffer for every other; what rank a has for b is piece a p + b."""
    source, target = _everyone_to_everyone(count)
    return [round_of(source, target, pieces=count, low=source * count + target)]
