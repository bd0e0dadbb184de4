"""Redistribution: the steps that bring a tensor from the layout in which it is made to that in which it is read.

On every axis of a mesh a tensor is split along a dimension, replicated, or partial: to be summed.  Two layers of one
mesh, a product that sums over slices of its input and one that needs all channels, with the axis ``tensor``::

    made        partial       split (channel)   replicated    split (samples)
    read        replicated    replicated        split         split (channel)
    step        all-reduce    all-gather        none, local   all-to-all

The way back is the same function: gradients are made in the layout in which a consumer read the tensor, partial on each
axis that splits an index which the tensor lacks, and the producer needs them where it holds the tensor.

Source:
    Xu et al., "GSPMD", 2021, Sec. 3: shardings by axis, and the collectives between them.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from groundwork.array_types import Floats, Ints
from planner.graph.shapes import SUMMED, IntervalMap, Shape
from planner.layouts.configurations import ConfigSpace, part_bounds
from planner.layouts.mesh import Mesh

REPLICATED, PARTIAL = -1, -2
"""Placements on an axis beside the dimensions of the tensor, which are counted from 0."""
Placements = tuple[int, ...]
"""Placement of a tensor on every axis of a mesh."""


@dataclass(frozen=True, slots=True)
class RedistributionStep:
    """A collective on all groups of devices along one axis of a mesh, or a slice that each device takes of its own."""

    collective: str
    """``all-gather``, ``reduce-scatter``, ``all-reduce``, ``all-to-all`` or ``slice``."""
    axis: int
    dim: int
    """Dimension of the tensor that is gathered, scattered or sliced; -1 for an all-reduce."""
    buffer: Placements
    """Placements in which each group has its whole buffer, or each device of an all-to-all: after an all-gather, else
    before."""
    gathered: int = -1
    """Dimension that an all-to-all gathers while it scatters ``dim``."""

    @property
    def sends(self) -> bool:
        """True for all but slices."""
        return self.collective != "slice"


@dataclass(frozen=True, slots=True)
class Redistribution:
    """The collectives that bring a tensor to a layer of the same mesh, and its gradient back."""

    mesh: Mesh
    forward: tuple[RedistributionStep, ...]
    backward: tuple[RedistributionStep, ...]


@lru_cache(maxsize=4096)
def redistribution_of(
    producer: ConfigSpace, consumer: ConfigSpace, interval_maps: tuple[IntervalMap, ...], source: Shape
) -> Redistribution | None:
    """Return the collectives between two layers; None where they have no common mesh, or need regions one by one.

    Args:
        producer: Space of the layer that makes the tensor, with one configuration.
        consumer: Space of the layer that reads it, with one configuration.
        interval_maps: For each dimension of the tensor, the interval that the consumer's operation reads.
        source: Shape of the tensor.
    """
    there, back = (
        layouts_between(producer, consumer, interval_maps, source, backward=backward) for backward in (False, True)
    )
    if there is None or back is None:
        return None
    mesh, *_ = there
    forward, backward = (steps_between(made, read, mesh, source) for _, made, read in (there, back))
    return None if forward is None or backward is None else Redistribution(mesh, forward, backward)


def layouts_between(
    producer: ConfigSpace,
    consumer: ConfigSpace,
    interval_maps: tuple[IntervalMap, ...],
    source: Shape,
    *,
    backward: bool,
) -> tuple[Mesh, Placements, Placements] | None:
    """Return the mesh of two layers, and the placements in which a tensor, or its gradient, is made and is needed.

    The meshes of the layers may have their axes in different orders, as each splits its indices: the mesh has that of
    one of them, in which the axes that split a dimension of either layout keep theirs.

    Arguments as for ``redistribution_of``.

    Returns:
        None where the layers have no common mesh, no order of its axes serves both, or a layer has no layout on them.
    """
    maker, reader = (None if space.given is None else space.given.mesh for space in (producer, consumer))
    if maker is None or reader is None:
        return None
    made, read = made_in(producer), read_in(consumer, interval_maps, source)
    order = maker.order_of(reader)
    if made is None or read is None or order is None:
        return None
    held, needed = (gradient_wanted_in(made), gradient_made_in(consumer, read)) if backward else (made, read)
    if _in_order(read, order):
        mesh, needed = maker, tuple(needed[axis] for axis in order)
    elif _in_order(made, back := tuple(order.index(axis) for axis in range(len(order)))):
        mesh, held = reader, tuple(held[axis] for axis in back)
    else:
        return None
    return (mesh, needed, held) if backward else (mesh, held, needed)


def _in_order(places: Placements, order: Sequence[int]) -> bool:
    """Return whether axes that split one dimension stay in their order where all axes are put into another one."""
    pairs = ((a, b) for k, b in enumerate(order) for a in order[:k])
    return all(a < b for a, b in pairs if places[a] == places[b] >= 0)


@lru_cache(maxsize=65536)
def made_in(space: ConfigSpace) -> Placements | None:
    """Return the placements of a layer's output on its mesh; its space holds one configuration on a mesh.

    Returns:
        None where a layer completes its sums along axes outside of those that split channels: parts of the channels do
        not follow each other in the order of the axes.
    """
    assert space.given is not None, "a layout of axes needs a mesh"
    dims, splits = space.output.dims, space.given.splits
    places = {None: REPLICATED, SUMMED: PARTIAL} | {dim: d for d, dim in enumerate(dims)}
    if space.completed[0] > 1:
        places[SUMMED] = places["channel"]
        of_channels = [index for index in splits if index in ("channel", SUMMED)]
        if of_channels != sorted(of_channels):  # "channel" comes before ``SUMMED``
            return None
    return tuple(places[index] for index in splits)


@lru_cache(maxsize=65536)
def read_in(space: ConfigSpace, interval_maps: tuple[IntervalMap, ...], source: Shape) -> Placements | None:
    """Return the placements in which a layer reads an input.

    Args:
        space: Space of the layer, with one configuration on a mesh.
        interval_maps: For each dimension of the input, the interval that the layer's operation reads.
        source: Shape of the input.

    Returns:
        None where parts read regions that are no parts of the input, such as windows with a halo.
    """
    assert space.given is not None, "a layout of axes needs a mesh"
    places: dict[str, int] = {}
    for d, (each, size) in enumerate(zip(interval_maps, source.sizes, strict=True)):
        if each.dim is None:
            continue
        if each.dim in places:
            return None
        if each.dim != SUMMED:
            column = space.output.dims.index(each.dim)
            degree = int(space.degrees[0, column])
            bounds = part_bounds(space.output.sizes[column], degree)
            low, high = each.interval(bounds[:-1], bounds[1:], size)
            parts = part_bounds(size, degree)
            if not ((low == parts[:-1]).all() and (high == parts[1:]).all()):
                if not ((low == 0).all() and (high == size).all()):
                    return None
                continue  # every part reads all of it
        places[each.dim] = d
    return tuple(REPLICATED if index is None else places.get(index, REPLICATED) for index in space.given.splits)


def gradient_made_in(space: ConfigSpace, read: Placements) -> Placements:
    """Return the placements of the gradient of an input: partial where the axis splits what the input lacks."""
    assert space.given is not None, "a layout of axes needs a mesh"
    rows = zip(space.given.splits, read, strict=True)
    return tuple(PARTIAL if place == REPLICATED and index is not None else place for index, place in rows)


def gradient_wanted_in(made: Placements) -> Placements:
    """Return the placements in which a layer needs the gradient of an output that it made in some placements."""
    return tuple(REPLICATED if place == PARTIAL else place for place in made)


@lru_cache(maxsize=65536)
def steps_between(
    made: Placements, read: Placements, mesh: Mesh, source: Shape
) -> tuple[RedistributionStep, ...] | None:
    """Return the steps between two layouts on one mesh: slices, sums and all-to-alls, then what is gathered.

    Args:
        made: Placements in which the tensor is made.
        read: Placements in which it is read.
        mesh: The mesh.
        source: Shape of the tensor.

    Returns:
        No steps where devices hold what they read.  None where an outer axis of a dimension would move without the
        inner ones, or an all-to-all would have unequal parts: regions are then sent one by one.
    """
    if not _keeps_order(made, read, len(source.sizes)):
        return None
    now, steps = list(made), list[RedistributionStep]()

    def gather(axes: Iterable[int]) -> None:
        """Gather what some axes split and readers do not, the inner axes of a dimension first."""
        for axis in sorted(axes, reverse=True):
            if now[axis] >= 0 and read[axis] == REPLICATED:
                dim, now[axis] = now[axis], REPLICATED
                steps.append(RedistributionStep("all-gather", axis, dim, tuple(now)))

    for axis, (place, wanted) in enumerate(zip(made, read, strict=True)):  # outer axes of a dimension split it first
        collective = _collective(place, wanted)
        if not collective:
            continue
        moved = place if collective == "all-to-all" else -1
        gather(inner for inner in range(axis + 1, len(now)) if now[inner] == moved)
        steps.append(RedistributionStep(collective, axis, wanted, tuple(now), moved))
        equal = _divides(now, moved, mesh, source)
        now[axis] = wanted
        if moved >= 0 and not (equal and _divides(now, wanted, mesh, source)):
            return None
    gather(range(len(now)))
    return tuple(steps)


def _collective(made: int, read: int) -> str:
    """Return what brings a tensor to a placement on an axis, if that splits it or has its sum; empty for nothing."""
    if made == REPLICATED and read >= 0:
        return "slice"
    if made == PARTIAL and read != PARTIAL:
        return "all-reduce" if read == REPLICATED else "reduce-scatter"
    return "all-to-all" if made != read and min(made, read) >= 0 else ""


def _keeps_order(made: Placements, read: Placements, dims: int) -> bool:
    """Return whether axes that begin or end to split a dimension are its inner ones, and none waits for another's."""
    for dim in range(dims):
        before, after = ([a for a, place in enumerate(layout) if place == dim] for layout in (made, read))
        if before != after[: len(before)] and after != before[: len(after)]:
            return False
    moves = [dim for pair in zip(made, read, strict=True) if min(pair) >= 0 and pair[0] != pair[1] for dim in pair]
    return len(set(moves)) == len(moves)


def _divides(places: Sequence[int], dim: int, mesh: Mesh, source: Shape) -> bool:
    """Return whether the axes that split a dimension in some placements make equal parts of it."""
    degree = math.prod(size for size, place in zip(mesh.sizes, places, strict=True) if place == dim)
    return dim < 0 or source.sizes[dim] % degree == 0


@lru_cache(maxsize=4096)
def group_elements(places: Placements, axis: int, mesh: Mesh, source: Shape) -> Floats:
    """Return the elements of a tensor that each group along an axis has, which does not split it; shape (groups,).

    Args:
        places: Placements of the tensor.
        axis: The axis.
        mesh: The mesh.
        source: Shape of the tensor.
    """
    at, elements = np.indices(mesh.sizes), np.ones(mesh.sizes)
    for dim, size in enumerate(source.sizes):
        part, degree = np.zeros(mesh.sizes, dtype=np.int64), 1
        for other in (other for other, place in enumerate(places) if place == dim):
            part, degree = part * mesh.sizes[other] + at[other], degree * mesh.sizes[other]
        elements = elements * np.diff(part_bounds(size, degree))[part]
    return np.moveaxis(elements, axis, -1)[..., 0].ravel()


def part_in(places: Sequence[int], mesh: Mesh, device: int, source: Shape) -> tuple[tuple[int, int], ...]:
    """Return the interval of each dimension of a tensor that a device of a mesh has in some placements."""
    at = np.unravel_index(mesh.devices.index(device), mesh.sizes)
    rows = list[tuple[int, int]]()
    for dim, size in enumerate(source.sizes):
        axes = [axis for axis, place in enumerate(places) if place == dim]
        part, degree = 0, 1
        for axis in axes:  # the outer axis splits into larger parts
            part, degree = part * mesh.sizes[axis] + int(at[axis]), degree * mesh.sizes[axis]
        low, high = part_bounds(size, degree)[part : part + 2].tolist()
        rows.append((low, high))
    return tuple(rows)


def gradient_layout(consumer: ConfigSpace, way: Redistribution | None) -> tuple[object, ...]:
    """Return what tells apart the layouts in which readers of one layout make gradients of it.

    Gradients of equal layouts are summed on each device before they travel.

    Args:
        consumer: Space of the reader, with one configuration.
        way: The collectives that bring the tensor to it, and its gradient back; None where regions travel.
    """
    given = consumer.given
    if given is None or consumer.repeats[0] == 1:
        return (way is None,)
    # of devices that compute the same, one counts; where none do, every device sends what it read
    return way is None, given.mesh, tuple(index is None for index in given.splits)


def row_gathers(space: ConfigSpace) -> list[tuple[Ints, Floats]]:
    """Return the gathers after which each part has what all parts of the channels know of its rows.

    Args:
        space: Space of one configuration.

    Returns:
        Devices of all groups, and how often each of them has a row in the end, shape (groups, p) and (groups,), for
        each axis that splits channels, the inner ones first; none where none does.
    """
    given = space.given
    if given is None or given.mesh is None or "channel" not in given.splits:
        return []
    mesh, made = given.mesh, made_in(space)
    assert made is not None, "a layer that has statistics of rows completes no sums"
    rows = Shape(space.output.dims, tuple(1 if d == 1 else size for d, size in enumerate(space.output.sizes)))
    places, steps, copies = tuple(REPLICATED if place == 1 else place for place in made), [], 1.0
    for axis in reversed(range(len(given.splits))):  # the inner axes first, as those of any gather
        if given.splits[axis] == "channel":
            copies *= mesh.sizes[axis]
            steps.append((mesh.groups(axis), group_elements(places, axis, mesh, rows) * copies))
    return steps
