"""Replicas of a whole network: groups of devices that do the same with different samples, of which one is lowered.

A network split by samples alone on the outermost axis, four devices in two replicas of two stages::

    replica 0    stage 0 on device 0    stage 1 on device 2
    replica 1    stage 0 on device 1    stage 1 on device 3

The program of replica 0, with a share of the batch, is that of replica 1 on other devices.  What joins them, the sums
of gradients, is between all devices.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from groundwork.array_types import Ints
from groundwork.sparse_rows import distinct
from hwprofiles.devices.columns import ClusterDevices
from planner.graph.computation_graph import ComputationGraph, Layer
from planner.layouts.configurations import ConfigSpace, Configuration, space_of
from planner.layouts.mesh import Mesh

_SAMPLE = "sample"


@dataclass(frozen=True, slots=True, eq=False)
class Replicas:
    """Devices of the replicas of a network, and what stands for what."""

    devices: Ints
    """Shape (replicas, devices of each): devices of one column do the same.  Those of the first row are lowered."""
    device_like: Ints
    """Device that is lowered in place of each device of the cluster, shape (devices,); itself where nothing is
    computed on it."""
    link_like: Ints
    """Link that carries what each link of the cluster carries, at the same time, shape (links,): of the first replica
    for links that only one other replica uses, else itself."""

    @property
    def count(self) -> int:
        """Number of replicas."""
        return len(self.devices)

    def images(self, groups: Ints) -> Ints:
        """Return groups of devices of the first replica in all replicas, those of the first one first.

        Args:
            groups: Shape (groups, size).

        Returns:
            Shape (replicas x groups, size).
        """
        column = np.zeros(len(self.device_like), dtype=np.int64)
        column[self.devices[0]] = np.arange(self.devices.shape[1])
        return self.devices[:, column[groups]].reshape(-1, groups.shape[1])


def like_replicas(graph: ComputationGraph, spaces: Sequence[ConfigSpace], devices: ClusterDevices) -> Replicas | None:
    """Return the most replicas in which a network falls, all of equal devices; None where it is one.

    Args:
        graph: The network.
        spaces: Space of each layer, which holds its one configuration.
        devices: Devices of the cluster.
    """
    sizes = [layer.output.sizes[0] for layer in graph.layers]
    if any(layer.output.dims[0] != _SAMPLE for layer in graph.layers):
        return None
    degrees = [int(space.degrees[0, 0]) for space in spaces]
    if any(size % degree for size, degree in zip(sizes, degrees, strict=True)):
        return None
    most, kinds = math.gcd(*degrees), devices.told_apart()[1]
    for count in (n for n in range(most, 1, -1) if most % n == 0):
        if graph.batch % count == 0:
            grid = _grid(spaces, count, len(devices))
            if grid is not None and (kinds[grid] == kinds[grid[0]]).all():
                like = np.arange(len(devices))
                like[grid] = grid[0]
                return Replicas(grid, like, np.empty(0, dtype=np.int64))
    return None


def _grid(spaces: Sequence[ConfigSpace], count: int, device_count: int) -> Ints | None:
    """Return the devices of so many replicas, as ``Replicas.devices`` has them; None where layers divide otherwise."""
    column = np.full(device_count, -1, dtype=np.int64)
    grid = np.empty((count, 0), dtype=np.int64)
    for space in {space.devices.tobytes(): space for space in spaces}.values():
        rows = space.devices.reshape(count, -1)
        new = column[rows[0]] < 0
        column[rows[0][new]] = grid.shape[1] + np.arange(np.count_nonzero(new))
        grid = np.concatenate([grid, rows[:, new]], axis=1) if new.any() else grid
        if not np.array_equal(grid[:, column[rows[0]]], rows):
            return None
    return grid if len(distinct(grid.ravel())) == grid.size else None


def of_one_replica(layer: Layer, space: ConfigSpace, count: int, device_count: int) -> ConfigSpace:
    """Return the space of a layer in the first of several replicas.

    Args:
        layer: The layer, with the samples of one replica.
        space: Space of the layer with all samples, which holds one configuration.
        count: Number of replicas.
        device_count: Devices of the cluster.
    """
    whole = space.configuration(0)
    if whole.mesh is None:
        degrees = {**whole.degrees, _SAMPLE: whole.degrees[_SAMPLE] // count}
        small = Configuration(degrees, whole.devices[: len(whole.devices) // count])
    else:
        dims = [dim for dim in whole.degrees if dim in layer.parallel_dims]
        small = Configuration.on(_first_of(whole.mesh, whole.splits, count), whole.splits, dims)
    return _part_of(space_of(layer, small, device_count), space)


def _first_of(mesh: Mesh, splits: Sequence[str | None], count: int) -> Mesh:
    """Return the mesh of the first of several replicas: the first coordinates of the axes that split samples."""
    sizes, left = list(mesh.sizes), count
    for axis in (axis for axis, index in enumerate(splits) if index == _SAMPLE):
        taken = math.gcd(sizes[axis], left)
        sizes[axis], left = sizes[axis] // taken, left // taken
    grid = np.array(mesh.devices, dtype=np.int64).reshape(mesh.sizes)[tuple(slice(size) for size in sizes)]
    axes = tuple((name, size) for (name, _), size in zip(mesh.axes, sizes, strict=True))
    return Mesh(axes, tuple(grid.ravel().tolist()))


@lru_cache(maxsize=4096)
def _part_of(small: ConfigSpace, whole: ConfigSpace) -> ConfigSpace:
    """Return the space of one replica, one object for equal layers."""
    return replace(small, whole=whole)
