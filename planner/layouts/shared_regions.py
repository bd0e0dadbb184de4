"""Regions of shared parameters: what devices of a layer that borrows one lack, and which devices send it.

A table of 4 rows is trained by a layer on devices 0 to 3 that splits it in two, so that each half has two replicas,
and borrowed by a layer that needs all of it on devices 2 to 5::

    device             0    1    2    3    4    5
    holds (replica)    a0   b0   a1   b1   -    -
    needs                        ab   ab   ab   ab
    gets                         b0   a1   a0b0 a1b1

A device uses the shard that it holds itself; all others come from the replicas in turn.  Gradients of the regions go
back the same way, so that each is added to one replica, before the replicas are summed.
"""

from typing import NamedTuple

import numpy as np

from groundwork.array_types import Ints
from planner.graph.parameters import SharedParameter
from planner.graph.shapes import IntervalMap
from planner.layouts.configurations import ConfigSpace
from planner.layouts.regions import TransferRegions, needed_regions


class ShardRows(NamedTuple):
    """The region of a parameter on each device of a configuration, by device; shape (P,) or (P, D)."""

    device: Ints
    part: Ints
    low: Ints
    high: Ints

    @property
    def key(self) -> tuple[bytes, ...]:
        """Devices and lower ends: two distributions of a parameter with the same key are the same."""
        return self.device.tobytes(), self.low.tobytes(), self.high.tobytes()


def shard_rows(space: ConfigSpace, c: int, maps: tuple[IntervalMap, ...], shared: SharedParameter) -> ShardRows:
    """Return the regions of a parameter under one configuration of a space.

    Args:
        space: Configurations of a layer that uses it.
        c: Index of the configuration.
        maps: Interval of each dimension that a part holds or needs.
        shared: The parameter.
    """
    regions, rows = needed_regions(space, maps, shared.shape), slice(*space.device_start[c : c + 2].tolist())
    order = np.argsort(space.devices[rows], kind="stable")
    return ShardRows(space.devices[rows][order], order, regions.low[rows][order], regions.high[rows][order])


def shared_transfers(held: ShardRows, needed: ShardRows) -> TransferRegions:
    """Return the regions that devices need, each with the part that it comes from: their own one if that holds it.

    Args:
        held: Shards of the layer that trains the parameter.
        needed: Regions of the layer that borrows it.
    """
    # shards are equal parts along one dimension or none: their first indices tell them apart
    _, first, shard = np.unique(held.low, axis=0, return_index=True, return_inverse=True)
    shard = shard.ravel()
    holders = np.argsort(shard, kind="stable").reshape(len(first), -1)  # by shard and replica
    low = np.maximum(needed.low[:, None], held.low[first])
    high = np.minimum(needed.high[:, None], held.high[first])
    row, met = np.nonzero((high > low).all(axis=2))
    place = holders[met, row % holders.shape[1]]
    own = np.minimum(np.searchsorted(held.device, needed.device[row]), len(held.device) - 1)
    here = (held.device[own] == needed.device[row]) & (shard[own] == met)
    place = np.where(here, own, place)
    return TransferRegions(held.part[place], needed.device[row], low[row, met], high[row, met])


def shared_regions(
    owner: ConfigSpace, borrower: ConfigSpace, shared: SharedParameter, device_count: int
) -> TransferRegions:
    """Return the regions of a shared parameter that a layer borrows, divided along the shards that hold them.

    Args:
        owner: Space of the layer that trains it, with one configuration.
        borrower: Space of the layer that borrows it, with one configuration.
        shared: The parameter.
        device_count: Devices of the cluster.

    Returns:
        Regions in the order of an all-to-all, as ``transfer_regions`` has them.
    """
    regions = shared_transfers(
        shard_rows(owner, 0, shared.held, shared), shard_rows(borrower, 0, shared.needed, shared)
    )
    turn = (regions.device - owner.devices[regions.part]) % device_count
    return regions.take(np.lexsort((regions.device, turn)))
