"""Samples of the mini-batch that a tensor holds: all of them in order, or those of one micro-batch; and positions."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from executor.runtime.boxes import Box
from planner.strategies.zigzag import PositionOrder


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchSamples:
    """The samples of one micro-batch, as ``planner.strategies.micro_batches.interleave_degree`` lays them out.

    The mini-batch lies in shards, one for each part of the layers before the first that computes micro-batches, so
    that no sample moves between parts there.  A micro-batch holds an equal share of every shard.  Two shards and
    three micro-batches of a mini-batch of 12 samples::

        sample          0  1 | 2  3 | 4  5 || 6  7 | 8  9 | 10 11
        micro-batch       0  |   1  |   2  ||   0  |   1  |    2
    """

    batch: int
    """Number of samples of the mini-batch."""
    micro_batches: int = 1
    """Number of micro-batches; 1: the tensor holds the whole mini-batch."""
    shards: int = 1
    """Number of equal shards of the mini-batch."""
    micro_batch: int = 0
    """Index of the micro-batch."""

    def spans(self, low: int, high: int) -> list[tuple[int, int]]:
        """Return the samples of the mini-batch that rows ``low`` to ``high - 1`` hold, as half-open spans in order."""
        if self.micro_batches == 1:
            return [(low, high)]
        shard, share = self.batch // self.shards, self.batch // (self.shards * self.micro_batches)
        spans = []
        while low < high:
            index, offset = divmod(low, share)
            count = min(share - offset, high - low)
            first = index * shard + self.micro_batch * share + offset
            spans.append((first, first + count))
            low += count
        return spans

    def boxes(self, box: Box) -> list[Box]:
        """Return the regions of the mini-batch's tensor that a region of this tensor holds, in order."""
        return [Box((low, *box.low[1:]), (high, *box.high[1:])) for low, high in self.spans(box.low[0], box.high[0])]


def in_order(make: Callable[[Box], Tensor], box: Box, order: PositionOrder | None) -> Tensor:
    """Return a region of a tensor whose positions have another order.

    Args:
        make: Function from a region with positions as they are to its elements.
        box: The region, in the other order.
        order: The order; None: positions are as they are.
    """
    if order is None:
        return make(box)
    places = order.places[box.low[order.dim] : box.high[order.dim]]
    runs = np.split(places, np.flatnonzero(np.diff(places) != 1) + 1)
    return torch.cat([make(_with_positions(box, order.dim, run[0], run[-1])) for run in runs], order.dim)


def _with_positions(box: Box, dim: int, first: int, last: int) -> Box:
    """Return a region with other indices of one dimension."""
    low, high = list(box.low), list(box.high)
    low[dim], high[dim] = int(first), int(last) + 1
    return Box(tuple(low), tuple(high))
