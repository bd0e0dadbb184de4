"""Regions of shared parameters: what devices of a layer that borrows one lack, and which devices send it.

A table of 4 rows is trained by a layer on devices 0 to 3 that splits it in two, so that each half has two replicas,
and borrowed by a layer that needs all of it on devices 2 to 5::

    device             0    1    2    3    4    5
    holds (replica)    a0   b0   a1   b1   -    -
    needs                        ab   ab   ab   ab
    gets                         b0   a1   a0b0 a1b1

A device uses the shard that it holds itself; all others come from the replicas in turn.  Gradients of the regions go
back the same way, so that each is added to one replica, before the replicas are summed; where devices compute the same,
each gradient is counted once.
"""

from typing import NamedTuple

import numpy as np

from groundwork.array_types import Ints
from planner.graph.parameters import SharedParameter
from planner.graph.shapes import SUMMED, IntervalMap
from planner.layouts.configurations import ConfigSpace
from planner.layouts.regions import TransferRegions, needed_regions

_CHANNEL = 1
"""Place of the channels among dimensions; slices of what is summed over are numbered behind them."""


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
    # the replicas of a shard take the devices that need it in turn
    order = np.argsort(met, kind="stable")
    turn = np.empty_like(met)
    turn[order] = np.arange(len(met)) - np.searchsorted(met[order], met[order])
    place = holders[met, turn % holders.shape[1]]
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


def equal_gradients(space: ConfigSpace, maps: tuple[IntervalMap, ...]) -> Ints:
    """Return the devices that make the same gradient of a parameter, shape (groups, devices of each).

    These are devices that compute the same, and those that differ in their slice of what their layer sums over alone,
    where that does not split the parameter.

    Args:
        space: Space of a layer that uses it, with one configuration.
        maps: Interval of each dimension that a part holds or needs.
    """
    sums, repeats = int(space.sums[0]), int(space.repeats[0])
    behind = int(space.degrees[0, _CHANNEL + 1 :].prod())
    grid = space.devices.reshape(-1, sums, behind, repeats)
    if any(each.dim == SUMMED for each in maps):
        return grid.reshape(-1, repeats)
    return np.moveaxis(grid, 1, 2).reshape(-1, sums * repeats)


def shared_gradient_regions(
    owner: ConfigSpace, borrower: ConfigSpace, shared: SharedParameter, device_count: int
) -> TransferRegions:
    """Return the regions of a shared parameter's gradient, by the parts of the layer that trains it.

    Each gradient goes to one replica of a shard, from one of the devices that make the same: its own one if that is
    among them.  Devices that hold the same replica, and make the same gradient of it, all get it.  Where there are
    none of either kind these are the regions of the parameter, reversed.  Arguments as for ``shared_regions``.
    """
    makers, takers = equal_gradients(borrower, shared.needed), equal_gradients(owner, shared.held)
    if makers.shape[1] == takers.shape[1] == 1:
        return shared_regions(owner, borrower, shared, device_count)
    held, needed = (
        needed_regions(owner, shared.held, shared.shape),
        needed_regions(borrower, shared.needed, shared.shape),
    )
    part_of, read_by = owner.part_on(device_count), borrower.part_on(device_count)
    shards: dict[bytes, list[int]] = {}
    for row, part in enumerate(part_of[takers[:, 0]].tolist()):
        shards.setdefault(held.low[part].tobytes(), []).append(row)
    rows, turns = list[tuple[int, int]](), dict.fromkeys(shards, 0)
    for devices in makers:
        read = read_by[devices[0]]
        for shard, replicas in shards.items():
            part = part_of[takers[replicas[0], 0]]
            if (np.maximum(held.low[part], needed.low[read]) >= np.minimum(held.high[part], needed.high[read])).any():
                continue
            near = [row for row in replicas if np.isin(devices, takers[row]).any()]
            chosen = takers[near[0] if near else replicas[turns[shard] % len(replicas)]].tolist()
            turns[shard] += 1
            others = devices.tolist()
            rows += [(part_of[to], to if to in others else others[k % len(others)]) for k, to in enumerate(chosen)]
    parts, sources = np.array(rows, dtype=np.int64).reshape(-1, 2).T
    low = np.maximum(held.low[parts], needed.low[read_by[sources]])
    high = np.minimum(held.high[parts], needed.high[read_by[sources]])
    return TransferRegions(parts, sources, low, high)
