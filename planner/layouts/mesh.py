"""Meshes: devices as an array with named axes, the innermost axis on the devices that are nearest to each other."""

import math
from dataclasses import dataclass

import numpy as np

from groundwork.array_types import Ints


@dataclass(frozen=True, slots=True)
class Mesh:
    """Devices of layers that are split alike.

    An index that several axes split is split by the outer one first.  Layers that want another order have a mesh of the
    same devices with its axes in that order (``order_of``).

    A mesh of two axes, ``data`` of 2 and ``tensor`` of 3, on devices 0 to 5::

    data 0    devices 0 1 2
    data 1    devices 3 4 5
    """

    axes: tuple[tuple[str, int], ...]
    """Names and sizes, the outermost first."""
    devices: tuple[int, ...]
    """Devices in row-major order of the axes; all are different."""

    @property
    def sizes(self) -> tuple[int, ...]:
        """Sizes of the axes."""
        return tuple(size for _, size in self.axes)

    def groups(self, axis: int) -> Ints:
        """Return the groups of devices that differ in their place along one axis alone, shape (groups, size)."""
        grid = np.array(self.devices, dtype=np.int64).reshape(self.sizes)
        return np.moveaxis(grid, axis, -1).reshape(-1, self.sizes[axis])

    def order_of(self, other: "Mesh") -> tuple[int, ...] | None:
        """Return where each of the axes is in another mesh of the same devices; None where it is no such mesh."""
        if self == other:
            return tuple(range(len(self.axes)))
        if sorted(self.axes) != sorted(other.axes) or len(set(self.axes)) != len(self.axes):
            return None
        order = tuple(other.axes.index(axis) for axis in self.axes)
        grid = np.array(other.devices, dtype=np.int64).reshape(other.sizes).transpose(order)
        return order if grid.ravel().tolist() == list(self.devices) else None

    def on(self, devices: tuple[int, ...]) -> "Mesh":
        """Return a mesh of the same axes on other devices."""
        assert len(devices) == math.prod(self.sizes), "a mesh has as many devices as coordinates"
        return Mesh(self.axes, devices)
