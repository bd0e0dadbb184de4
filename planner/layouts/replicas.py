"""Replicas of a whole network: groups of devices that do the same with different samples, of which some are lowered.

A network split by samples alone on the outermost axis, four devices in two replicas of two stages::

    replica 0    stage 0 on device 0    stage 1 on device 2
    replica 1    stage 0 on device 1    stage 1 on device 3

The program of replica 0, with a share of the batch, is that of replica 1 on other devices.  What joins them, the sums
of gradients, is between all devices.  Where device 1 is slower than device 0, replica 1 is of another kind: one replica
of each kind is lowered.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from groundwork.array_types import Ints
from groundwork.sparse_rows import distinct
from planner.graph.computation_graph import ComputationGraph, Layer
from planner.layouts.configurations import ConfigSpace, Configuration, space_of
from planner.layouts.device_classes import DeviceClasses
from planner.layouts.mesh import Mesh

_SAMPLE = "sample"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Replicas(DeviceClasses):
    """Devices of the replicas of a network, and what stands for what: what one replica of a kind sends alone."""

    devices: Ints
    """Shape (replicas, devices of each): devices of one column do the same in replicas of one kind."""
    kind: Ints
    """Kind of each replica, shape (replicas,), numbered by its first, which is lowered for all of the kind."""

    @property
    def count(self) -> int:
        """Number of replicas."""
        return len(self.devices)

    @property
    def firsts(self) -> Ints:
        """First replica of each kind: those that are lowered."""
        return _firsts(self.kind)

    @property
    def of(self) -> Ints:
        """Replica of each device of the cluster, shape (devices,); -1 where nothing is computed on it."""
        replica = np.full(len(self.device_like), -1, dtype=np.int64)
        replica[self.devices] = np.arange(self.count)[:, None]
        return replica

    def in_all(self, lowered: int) -> int:
        """Return what all replicas have of something of which each has the same, as samples."""
        return lowered // len(self.firsts) * self.count

    def images(self, groups: Ints) -> tuple[Ints, Ints]:
        """Return groups of devices of replicas that are lowered in all replicas, those that are lowered first.

        Args:
            groups: Shape (groups, size), each in one replica.

        Returns:
            Devices, shape (groups x replicas of the kind of each, size), and for each the group whose image it is.
        """
        column = np.zeros(len(self.device_like), dtype=np.int64)
        column[self.devices] = np.arange(self.devices.shape[1])
        others = np.setdiff1d(np.arange(self.count), self.firsts)
        alike = self.kind[others][:, None] == self.kind[self.of[groups[:, 0]]]
        other, group = np.nonzero(alike)
        there = self.devices[others[other][:, None], column[groups[group]]]
        return np.concatenate([groups, there]), np.concatenate([np.arange(len(groups)), group])


def _firsts(kind: Ints) -> Ints:
    """Return the first of each kind, in the order of kinds."""
    return np.unique(kind, return_index=True)[1]


def like_replicas(graph: ComputationGraph, spaces: Sequence[ConfigSpace], kinds: Ints) -> Replicas | str:
    """Return the replicas in which a network falls of which fewest devices are lowered; or why that is all.

    Args:
        graph: The network.
        spaces: Space of each layer, which holds its one configuration.
        kinds: Kind of each device of the cluster; replicas are of one kind where their devices are, one by one.
    """
    if without := next((layer.name for layer in graph.layers if layer.output.dims[0] != _SAMPLE), None):
        return f"{without} has no samples to divide"
    degrees = [int(space.degrees[0, 0]) for space in spaces]
    for layer, degree in zip(graph.layers, degrees, strict=True):
        if layer.output.sizes[0] % degree:
            return f"{degree} parts of {layer.output.sizes[0]} samples of {layer.name} are not equal"
    most = math.gcd(*degrees)
    if max(degrees) == 1:
        return "no layer divides samples"
    if most == 1:
        ends = [(graph.layers[at].name, degrees[at]) for at in (int(np.argmin(degrees)), int(np.argmax(degrees)))]
        return " and ".join(f"{name} divides samples by {degree}" for name, degree in ends)
    found: Replicas | None = None
    for count in (n for n in range(most, 1, -1) if most % n == 0 and graph.batch % n == 0):
        grid = _grid(spaces, count, len(kinds))
        if grid is None:
            continue
        _, first, kind = np.unique(kinds[grid], axis=0, return_index=True, return_inverse=True)
        kind = np.argsort(np.argsort(first))[kind.ravel()]  # numbered by their firsts
        least = len(kinds) if found is None else found.devices[found.firsts].size
        if len(first) < count and grid[_firsts(kind)].size < least:
            like = np.arange(len(kinds))
            like[grid] = grid[_firsts(kind)[kind]]
            found = Replicas(devices=grid, kind=kind, device_like=like, link_like=np.empty(0, dtype=np.int64))
    return found or "no two replicas have equal devices for all layers"


def _grid(spaces: Sequence[ConfigSpace], count: int, device_count: int) -> Ints | None:
    """Return the devices of so many replicas, as ``Replicas.devices`` has them; None where layers divide otherwise."""
    column = np.full(device_count, -1, dtype=np.int64)
    grid = np.empty((count, 0), dtype=np.int64)
    for space in {space.devices.tobytes(): space for space in dict.fromkeys(spaces)}.values():
        rows = space.devices.reshape(count, -1)
        new = column[rows[0]] < 0
        column[rows[0][new]] = grid.shape[1] + np.arange(np.count_nonzero(new))
        grid = np.concatenate([grid, rows[:, new]], axis=1) if new.any() else grid
        if not np.array_equal(grid[:, column[rows[0]]], rows):
            return None
    return grid if len(distinct(grid.ravel())) == grid.size else None


def of_lowered(layer: Layer, space: ConfigSpace, replicas: Replicas) -> ConfigSpace:
    """Return the space of a layer in the replicas that are lowered.

    Args:
        layer: The layer, with the samples of these replicas.
        space: Space of the layer with all samples, which holds one configuration.
        replicas: The replicas.
    """
    whole, count, firsts = space.configuration(0), replicas.count, replicas.firsts
    if whole.mesh is None:
        degrees = {**whole.degrees, _SAMPLE: whole.degrees[_SAMPLE] // count * len(firsts)}
        rows = np.array(whole.devices, dtype=np.int64).reshape(count, -1)[firsts]
        small = Configuration(degrees, tuple(rows.ravel().tolist()))
    else:
        dims = [dim for dim in whole.degrees if dim in layer.parallel_dims]
        small = Configuration.on(_mesh_of(whole.mesh, whole.splits, count, firsts), whole.splits, dims)
    return _part_of(space_of(layer, small, len(replicas.device_like)), space)


def _mesh_of(mesh: Mesh, splits: Sequence[str | None], count: int, chosen: Ints) -> Mesh:
    """Return the mesh of some replicas: their coordinates of the axes that split samples, one replica after another."""
    taken, left = [1] * len(mesh.sizes), count
    for axis in (axis for axis, index in enumerate(splits) if index == _SAMPLE):
        taken[axis] = math.gcd(mesh.sizes[axis], left)
        left //= taken[axis]
    sizes = [size // each for size, each in zip(mesh.sizes, taken, strict=True)]
    grid = np.array(mesh.devices, dtype=np.int64).reshape(mesh.sizes)
    parts = [
        grid[tuple(slice(at * size, (at + 1) * size) for at, size in zip(place, sizes, strict=True))]
        for place in zip(*(each.tolist() for each in np.unravel_index(chosen, taken)), strict=True)
    ]
    first = splits.index(_SAMPLE)
    sizes[first] *= len(chosen)
    axes = tuple((name, size) for (name, _), size in zip(mesh.axes, sizes, strict=True))
    return Mesh(axes, tuple(np.concatenate(parts, axis=first).ravel().tolist()))


@lru_cache(maxsize=4096)
def _part_of(small: ConfigSpace, whole: ConfigSpace) -> ConfigSpace:
    """Return the space of the replicas that are lowered, one object for equal layers."""
    return replace(small, whole=whole)
