"""Meshes: devices as an array with named axes, the innermost axis on the devices that are nearest to each other."""

import math
from dataclasses import dataclass

import numpy as np

from groundwork.array_types import Ints


@dataclass(frozen=True, slots=True)
class Mesh:
    """Devices of layers that are split alike.

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

    def on(self, devices: tuple[int, ...]) -> "Mesh":
        """Return a mesh of the same axes on other devices."""
        assert len(devices) == math.prod(self.sizes), "a mesh has as many devices as coordinates"
        return Mesh(self.axes, devices)
