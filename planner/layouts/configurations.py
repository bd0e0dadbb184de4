"""Configurations: the equal parts that a layer's output is split into, and the devices that hold them."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from itertools import combinations_with_replacement
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from groundwork.array_types import Ints
from groundwork.errors import ConfigError
from groundwork.sparse_rows import row_owners
from groundwork.suggestions import did_you_mean
from planner.graph.computation_graph import Layer
from planner.graph.shapes import REPEATED, SUMMED, Shape
from planner.layouts.mesh import Mesh

LETTERS = {
    "sample": "n",
    "channel": "c",
    SUMMED: "k",
    "length": "l",
    "depth": "d",
    "height": "h",
    "width": "w",
    REPEATED: "r",
}
"""Letters that stand for the indices in print, in the order in which parts are numbered."""
CHANNELS = ("channel",)
"""Dimensions that split most parameters."""
_SUMS = 2
"""Place of the slices of a sum in the order in which parts are numbered: behind samples and channels."""


@dataclass(frozen=True, slots=True)
class Configuration:
    """Degrees of parallelism of one layer, and the devices that hold its parts.

    Parts are numbered in row-major order of the output's dimensions (sample slowest), so that
    neighbours in space get neighbouring devices.
    """

    degrees: Mapping[str, int]
    """Degree of each dimension that may be split; all others have 1.  On a mesh also that of ``SUMMED``, and the number
    of devices that compute each part, ``REPEATED``."""
    devices: tuple[int, ...]
    """Device of every part; all are different."""
    mesh: Mesh | None = None
    """Mesh of these devices; None: parts are numbered in their order."""
    splits: tuple[str | None, ...] = ()
    """Index that each axis of the mesh splits; None: the axis repeats the computation."""

    @classmethod
    def on(cls, mesh: Mesh, splits: Sequence[str | None], dims: Sequence[str]) -> "Configuration":
        """Return the configuration of a layer on a mesh.

        Args:
            mesh: The mesh.
            splits: Index that each of its axes splits, or None.
            dims: Dimensions of the layer that may be split; those that no axis splits have degree 1.

        Raises:
            ConfigError: There are not as many splits as axes, or one is no index.
        """
        indices = [REPEATED if index is None else index for index in splits]
        if len(indices) != len(mesh.axes):
            raise ConfigError(f"splits must be one for each of {len(mesh.axes)} axes of the mesh, got {list(splits)}")
        for index in indices:
            if index not in LETTERS:
                known = ", ".join(name for name in LETTERS if name != REPEATED)
                raise ConfigError(f"splits must be of {known} or None, got {index!r}{did_you_mean(index, LETTERS)}")
        degrees = dict.fromkeys(dims, 1)
        for index, size in zip(indices, mesh.sizes, strict=True):
            degrees[index] = degrees.get(index, 1) * size
        # parts are numbered by index, and by axis where several axes split one index
        order = sorted(range(len(indices)), key=lambda axis: list(LETTERS).index(indices[axis]))
        devices = np.array(mesh.devices, dtype=np.int64).reshape(mesh.sizes).transpose(order).ravel()
        ordered = {dim: degrees[dim] for dim in LETTERS if dim in degrees}
        return cls(ordered, tuple(devices.tolist()), mesh, tuple(splits))

    @classmethod
    def of(cls, degrees: Mapping[str, int], devices: Sequence[int]) -> "Configuration":
        """Return the configuration of degrees in any order, on a mesh with an axis for each where one splits a sum.

        Args:
            degrees: By index; ``in_channel`` is another word for ``SUMMED``.
            devices: Devices of the parts, in the order in which parts are numbered.
        """
        named = {SUMMED if dim == "in_channel" else dim: degree for dim, degree in degrees.items()}
        ordered = {dim: named[dim] for dim in (*LETTERS, *named) if dim in named and (dim, named[dim]) != (SUMMED, 1)}
        if SUMMED not in ordered or math.prod(ordered.values()) != max(len(devices), 1):  # no mesh, to be refused
            return cls(ordered, tuple(devices))
        axes = {dim: degree for dim, degree in ordered.items() if degree > 1}
        return cls.on(Mesh(tuple(axes.items()), tuple(devices)), tuple(axes), [dim for dim in ordered if dim != SUMMED])

    @property
    def parts(self) -> int:
        """Number of parts."""
        return len(self.devices)

    def describe(self) -> str:
        """Return the degrees as the papers print them: ``n=4 c=1 h=2 w=2``."""
        return " ".join(f"{LETTERS[dim]}={degree}" for dim, degree in self.degrees.items())


Strategy = Mapping[str, Configuration]
"""Configurations of a network's layers, by the layer's name."""


def part_bounds(size: int, degree: int) -> NDArray[np.int64]:
    """Return the bounds of a dimension's parts, shape (degree + 1,): part i is [bounds[i], bounds[i + 1])."""
    return np.arange(degree + 1, dtype=np.int64) * size // degree


@lru_cache(maxsize=4096)
def strides_of(parts: int, device_count: int, node_size: int) -> tuple[int, ...]:
    """Return the distances at which equally spaced devices may hold parts, the first on device 0, in rising order.

    They are powers of two of devices, and of nodes: neighbouring parts lie on neighbouring devices, on every second
    one, on one of each node, of every second node, and so on.  Whatever fits on some devices fits on more.

    Args:
        parts: Number of parts.
        device_count: Devices of the cluster.
        node_size: Devices of its first node.
    """
    most = device_count // parts if parts > 1 else 1  # one part lies on device 0 at any distance
    powers = [1 << k for k in range(most.bit_length())]
    return tuple(
        sorted({stride for unit in (1, node_size) for stride in (unit * power for power in powers) if stride <= most})
    )


@dataclass(frozen=True, eq=False)
class ConfigSpace:
    """Configurations of one layer, as arrays over C configurations and D output dimensions.

    Three configurations of an output of 4 samples and 2 channels, split by samples over devices 0 and 1, and over
    devices 0 and 2, and by both dimensions over devices 0 to 3, are::

        degrees       [[2, 1], [2, 1], [2, 2]]
        strides       [1, 2, 1]
        device_start  [0, 2, 4, 8]
        devices       [0, 1, 0, 2, 0, 1, 2, 3]
    """

    output: Shape
    """Shape of the layer's output."""
    parallel_dims: tuple[str, ...]
    """Dimensions that may be split."""
    degrees: NDArray[np.int64]
    """Degrees of all output dimensions, shape (C, D); 1 where a dimension is not split."""
    strides: NDArray[np.int64]
    """Distance between the devices of neighbouring parts, the first on device 0, shape (C,); none where ``listed``."""
    listed: NDArray[np.int64]
    """Device of each part of each configuration where they are given one by one, shape (parts in all,); else none."""
    sums: NDArray[np.int64]
    """Slices of the summed index of a layer whose readers add its partial sums, shape (C,)."""
    completed: NDArray[np.int64]
    """Slices of the summed index of a layer that completes its sums, shape (C,).  So many parts, which follow each
    other in the channels, compute one product together (``product_space``), of which each has a share in the end."""
    repeats: NDArray[np.int64]
    """Devices that compute each part, shape (C,)."""
    on_meshes: tuple[Configuration, ...] = ()
    """The configurations, where axes of meshes split what is summed over too, or repeat a computation."""
    whole: "ConfigSpace | None" = None
    """Space of all replicas, in that of one of them (``planner.layouts.replicas``)."""

    @property
    def given(self) -> Configuration | None:
        """The configuration, if it is the only one of the space and was given with its mesh; else None."""
        return self.on_meshes[0] if len(self.on_meshes) == 1 else None

    @property
    def in_all(self) -> "ConfigSpace":
        """Space of all replicas: who holds the same parameters, and sums gradients, is found there."""
        return self.whole or self

    @property
    def size(self) -> int:
        """Number of configurations."""
        return len(self.degrees)

    @property
    def part_owners(self) -> NDArray[np.int64]:
        """Configuration of each part, for the parts of all configurations one after another, shape (parts in all,)."""
        return row_owners(self.device_start)

    @property
    def has_copies(self) -> bool:
        """True if devices of one configuration hold the same region, as equal values or as partial sums."""
        return bool((self.sums * self.repeats > 1).any())

    @cached_property
    def parts(self) -> NDArray[np.int64]:
        """Number of parts of each configuration, shape (C,)."""
        return np.asarray(self.degrees.prod(axis=1) * self.sums * self.repeats)

    @cached_property
    def device_start(self) -> NDArray[np.int64]:
        """Offsets into ``devices``, shape (C + 1,)."""
        return np.concatenate([[0], np.cumsum(self.parts)])

    @cached_property
    def devices(self) -> NDArray[np.int64]:
        """Device of each part of each configuration, shape (parts in all,).

        On a mesh parts are numbered by samples, channels, slices of the summed index, positions, and last by the
        devices that compute the same.
        """
        if not len(self.strides):
            return self.listed
        place = np.arange(self.device_start[-1]) - np.repeat(self.device_start[:-1], self.parts)
        return np.asarray(place * np.repeat(self.strides, self.parts))

    def replica_grid(self, split: Sequence[str]) -> NDArray[np.int64]:
        """Return the sizes of the grid of parts in which replicas and those that hold other gradients alternate.

        Parts that differ in dimensions alone that do not split a parameter are replicas: their gradients are summed.
        Those of slices of a sum are of other elements or, of a parameter that the sum does not split, the same, as
        those of parts that compute the same are.

        Args:
            split: Dimensions of the output that split the parameter; of channels, 2 x 3 x 4 parts of samples,
                channels and rows that one device each computes are the grid [2, 3, 4, 1].

        Returns:
            Shape (C, G), G even: the first, third, ... are replicas.
        """
        apart = [dim in split for dim in self.output.dims]
        apart[_SUMS:_SUMS] = [True]
        degrees = (*self.degrees.T[:_SUMS], self.sums, *self.degrees.T[_SUMS:], self.repeats)
        grid = [np.ones(self.size, dtype=np.int64)]
        for degree, own in zip(degrees, (*apart, True), strict=True):
            if own == len(grid) % 2:
                grid.append(degree)
            else:
                grid[-1] = grid[-1] * degree
        return np.column_stack(grid)

    def shards(self, split: Sequence[str]) -> NDArray[np.int64]:
        """Return the shards of a parameter that some dimensions of the output split, and slices of a sum; shape (C,).

        Of a parameter that the sum does not split, the slices all hold the same.
        """
        split_by = [dim in split for dim in self.output.dims]
        return np.asarray(self.degrees[:, split_by].prod(axis=1) * self.sums)

    def configuration(self, index: int) -> Configuration:
        """Return the configuration with this index."""
        if self.on_meshes:
            return self.on_meshes[index]
        degrees = dict(zip(self.output.dims, self.degrees[index].tolist(), strict=True))
        return Configuration({dim: degrees[dim] for dim in self.parallel_dims}, tuple(self.devices_of(index).tolist()))

    def devices_of(self, index: int) -> NDArray[np.int64]:
        """Return the device of each part of the configuration with this index, shape (parts of it,)."""
        if not len(self.strides):
            return self.listed[self.device_start[index] : self.device_start[index + 1]]
        return np.asarray(np.arange(self.parts[index]) * self.strides[index])

    def part_on(self, device_count: int) -> Ints:
        """Return the part that each device holds, in a space of one configuration.

        Returns:
            Shape (device_count,); -1 for devices that hold none.
        """
        part_on = np.full(device_count, -1, dtype=np.int64)
        part_on[self.devices] = np.arange(len(self.devices))
        return part_on

    def largest_part(self) -> dict[str, NDArray[np.float64]]:
        """Return the largest part's size in each dimension, and the slices of the summed index, shape (C,) each.

        Of a layer that completes its sums these are parts of the product.
        """
        space = product_space(self)
        sizes = -(-np.array(space.output.sizes) // space.degrees)
        rows = {dim: sizes[:, d].astype(np.float64) for d, dim in enumerate(space.output.dims)}
        return rows | ({SUMMED: space.sums.astype(np.float64)} if (space.sums > 1).any() else {})

    def only(self, keep: NDArray[np.int64]) -> "ConfigSpace":
        """Return the space with the configurations ``keep`` (indices), in that order."""
        rows = [self.listed[self.device_start[c] : self.device_start[c + 1]] for c in keep.tolist()]
        return ConfigSpace(
            self.output,
            self.parallel_dims,
            degrees=self.degrees[keep],
            strides=self.strides[keep] if len(self.strides) else self.strides,
            listed=np.concatenate(rows) if len(self.listed) else self.listed,
            sums=self.sums[keep],
            completed=self.completed[keep],
            repeats=self.repeats[keep],
            on_meshes=tuple(self.on_meshes[c] for c in keep.tolist()) if self.on_meshes else (),
        )

    def alone(self, index: int) -> "ConfigSpace":
        """Return the space of one of the configurations, one object each time."""
        return self if self.size == 1 else _alone(self, index)


_NONE = np.empty(0, dtype=np.int64)


def _given_space(
    output: Shape, dims: tuple[str, ...], degrees: NDArray[np.int64], devices: Sequence[NDArray[np.int64]]
) -> ConfigSpace:
    """Return a space from degrees, shape (C, D), and the devices of each configuration."""
    once = np.ones(len(devices), dtype=np.int64)
    return ConfigSpace(output, dims, degrees, _NONE, np.concatenate(devices), once, once, once)


@lru_cache(maxsize=65536)
def _alone(space: ConfigSpace, index: int) -> ConfigSpace:
    """Return the space of one configuration; see ``ConfigSpace.alone``."""
    return space.only(np.array([index]))


@lru_cache(maxsize=4096)
def product_space(space: ConfigSpace) -> ConfigSpace:
    """Return the space of the product of a layer that completes its sums; itself where there is nothing to complete.

    Of two slices of the input channels and 4 output channels, with the degrees (1, 2)::

        output     device 0: channels 0-1             device 1: channels 2-3
        product    device 0: channels 0-3, slice 0    device 1: channels 0-3, slice 1
    """
    if (space.completed == 1).all():
        return space
    degrees = space.degrees.copy()
    degrees[:, 1] //= space.completed
    return replace(space, degrees=degrees, sums=space.completed, completed=np.ones_like(space.completed))


def completing_parts(space: ConfigSpace) -> Ints:
    """Return the parts that complete each sum together, in the order of their shares, shape (groups, slices).

    Args:
        space: Space of one configuration.
    """
    sums, before = int(space.completed[0]), int(space.degrees[0, :_SUMS].prod())
    grid = np.arange(len(space.devices)).reshape(before // sums, sums, -1)
    return np.moveaxis(grid, 1, 2).reshape(-1, sums)


@lru_cache(maxsize=4096)
def all_configurations(
    output: Shape, parallel_dims: tuple[str, ...], device_count: int, node_size: int = 1
) -> ConfigSpace:
    """Return every configuration with equal parts: degrees that divide, at most ``device_count`` parts, each stride.

    All configurations on some devices are among those on more.

    Args:
        output: Shape of the layer's output, batch included.
        parallel_dims: Dimensions that may be split.
        device_count: Devices of the cluster.
        node_size: Devices of its first node.

    Source:
        Jia et al., "Exploring Hidden Dimensions in Parallelizing Convolutional Neural Networks", ICML 2018, Table 1,
        for the dimensions.
    """
    degrees: list[tuple[int, ...]] = [()]
    for dim, size in zip(output.dims, output.sizes, strict=True):
        most = min(device_count, size) if dim in parallel_dims else 1
        divisors = [degree for degree in range(1, most + 1) if size % degree == 0]
        degrees = [(*row, degree) for row in degrees for degree in divisors if math.prod(row) * degree <= device_count]
    rows = np.array(degrees, dtype=np.int64)
    strides = [strides_of(parts, device_count, node_size) for parts in rows.prod(axis=1).tolist()]
    rows = np.repeat(rows, [len(each) for each in strides], axis=0)
    once = np.ones(len(rows), dtype=np.int64)
    return ConfigSpace(output, parallel_dims, rows, np.concatenate(strides), _NONE, once, once, once)


def space_of(layer: Layer, configuration: Configuration, device_count: int) -> ConfigSpace:
    """Return the space that holds one given configuration.

    Args:
        layer: Layer of the computation graph.
        configuration: Degrees and devices of the layer.
        device_count: Devices of the cluster.

    Raises:
        ConfigError: It splits a dimension that the layer cannot split, degrees do not divide (on a mesh: are larger
            than what they split), or the devices are not as many as the parts, not all different or not in the cluster.
    """
    where, mesh = f"configuration of {layer.name}", configuration.mesh
    summed = layer.summed_size
    for dim, degree in configuration.degrees.items():
        if mesh is not None and dim == REPEATED:
            continue
        dims = (*(layer.parallel_dims if mesh is None else layer.mesh_dims), *((SUMMED,) if summed else ()))
        if dim not in dims:
            raise ConfigError(f"{where}: {dim} is not one of its parallelizable dimensions {dims}")
        size = summed if dim == SUMMED else layer.output.size(dim)
        if degree < 1 or (size % degree if mesh is None else degree > size):
            rule = "must divide" if mesh is None else "must be at most"
            raise ConfigError(f"{where}: degree of {dim} {rule} {size}, got {degree}")
    degrees = [configuration.degrees.get(dim, 1) for dim in layer.output.dims]
    parts, devices = math.prod(configuration.degrees.values()), configuration.devices
    if parts > device_count:
        raise ConfigError(f"{where}: degrees multiply to {parts} parts, the cluster has {device_count} devices")
    different, least, most = _extent(devices)
    if len(devices) != parts or different != parts:
        raise ConfigError(f"{where}: devices must be {parts} different ones, got {len(devices)}: {list(devices)[:8]}")
    if least < 0 or most >= device_count:
        raise ConfigError(f"{where}: devices must be in 0..{device_count - 1}, got {least}..{most}")
    sums, completes = configuration.degrees.get(SUMMED, 1), layer.operation.completes_sums
    if sums > 1 and completes:
        channel = layer.output.dims.index("channel")
        degrees[channel] *= sums
        if degrees[channel] > layer.output.sizes[channel]:
            raise ConfigError(
                f"{where}: degrees of channel and summed must multiply to at most its {layer.output.sizes[channel]} "
                f"output channels, which as many parts complete, got {degrees[channel]}"
            )
    given = _Given(tuple(configuration.degrees.items()), devices, mesh, configuration.splits)
    return _single(layer.output, layer.parallel_dims, tuple(degrees), given, completes=completes)


@lru_cache(maxsize=4096)
def _extent(devices: tuple[int, ...]) -> tuple[int, int, int]:
    """Return how many different devices there are, the first and the last; looked at once for all layers."""
    return len(set(devices)), min(devices, default=0), max(devices, default=-1)


class _Given(NamedTuple):
    """A configuration as a key."""

    degrees: tuple[tuple[str, int], ...]
    devices: tuple[int, ...]
    mesh: Mesh | None
    splits: tuple[str | None, ...]


@lru_cache(maxsize=4096)
def _single(
    output: Shape, parallel_dims: tuple[str, ...], degrees: tuple[int, ...], given: _Given, *, completes: bool
) -> ConfigSpace:
    """Return a space of one configuration: equal layers share it, and with it all that is known of spaces."""
    known = dict(given.degrees)
    if given.mesh is None and SUMMED not in known:
        devices = [np.array(given.devices, dtype=np.int64)]
        return _given_space(output, parallel_dims, np.array([degrees], dtype=np.int64), devices)
    configuration = Configuration(known, given.devices, given.mesh, given.splits)
    rows = np.array([degrees], dtype=np.int64)
    return _space_on_meshes(output, parallel_dims, rows, (configuration,), completes=completes)


def _space_on_meshes(
    output: Shape,
    parallel_dims: tuple[str, ...],
    degrees: NDArray[np.int64],
    configurations: tuple[Configuration, ...],
    *,
    completes: bool,
) -> ConfigSpace:
    """Return the space of configurations on meshes.

    Args:
        output: Shape of the layer's output.
        parallel_dims: Dimensions that may be split.
        degrees: Of what each part has in the end, shape (C, D).
        configurations: The configurations.
        completes: Whether the layer completes its sums.
    """
    rows = [np.array(each.devices, dtype=np.int64) for each in configurations]
    sums, repeats = (
        np.array([each.degrees.get(index, 1) for each in configurations], dtype=np.int64)
        for index in (SUMMED, REPEATED)
    )
    once = np.ones_like(sums)
    sums, completed = (once, sums) if completes else (sums, once)
    space = _given_space(output, parallel_dims, degrees, rows)
    return replace(space, sums=sums, completed=completed, repeats=repeats, on_meshes=configurations)


def mesh_configurations(layer: Layer, mesh: Mesh) -> ConfigSpace:
    """Return the configurations of a layer on a mesh, each axis of which splits an index, or repeats the computation.

    Axes split indices in the order in which parts are numbered, the outer axes samples; all parts are equal.

    Args:
        layer: Layer of the computation graph.
        mesh: The mesh.
    """
    summed = layer.summed_size
    sizes = {dim: layer.output.size(dim) for dim in layer.mesh_dims} | ({SUMMED: summed} if summed else {})
    indices = tuple((index, sizes[index]) for index in LETTERS if index in sizes)
    completes = layer.operation.completes_sums
    return _mesh_configurations(layer.output, layer.parallel_dims, indices, mesh, completes=completes)


@lru_cache(maxsize=4096)
def _mesh_configurations(
    output: Shape, parallel_dims: tuple[str, ...], sizes: tuple[tuple[str, int], ...], mesh: Mesh, *, completes: bool
) -> ConfigSpace:
    """Return what ``mesh_configurations`` returns; equal layers share it."""
    found, degrees, channels = list[Configuration](), list[list[int]](), output.size("channel")
    for splits in combinations_with_replacement((*dict(sizes), None), len(mesh.axes)):
        each = Configuration.on(mesh, splits, parallel_dims)
        held = dict(each.degrees)
        if completes:
            held["channel"] = held.get("channel", 1) * held.get(SUMMED, 1)
        equal = all(size % each.degrees.get(index, 1) == 0 for index, size in sizes)
        if equal and channels % held.get("channel", 1) == 0:
            found.append(each)
            degrees.append([held.get(dim, 1) for dim in output.dims])
    rows = np.array(degrees, dtype=np.int64)
    return _space_on_meshes(output, parallel_dims, rows, tuple(found), completes=completes)
