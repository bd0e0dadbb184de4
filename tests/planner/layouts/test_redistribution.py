"""Redistributions against arrays: the steps, carried out on the parts of a mesh, give what the definition says."""

import itertools

import numpy as np
import pytest
from hypothesis import assume, given, strategies as st
from plans import residual_block

from planner.graph.shapes import Shape
from planner.layouts.configurations import Configuration, part_bounds, space_of
from planner.layouts.mesh import Mesh
from planner.layouts.redistribution import (
    PARTIAL,
    REPLICATED,
    Redistribution,
    gradient_layout,
    gradient_wanted_in,
    group_elements,
    steps_between,
)

DIMS = ("sample", "channel", "length")


def mesh_of(sizes):
    """Return a mesh of so many axes on devices in their order."""
    return Mesh(tuple((f"axis{a}", size) for a, size in enumerate(sizes)), tuple(range(int(np.prod(sizes)))))


def region(places, mesh, coordinate, sizes):
    """Return the slices of a tensor that a coordinate holds: each dimension is split by its axes, the outer first."""
    rows = []
    for dim, size in enumerate(sizes):
        part, degree = 0, 1
        for place, axis_size, index in zip(places, mesh.sizes, coordinate, strict=True):
            if place == dim:
                part, degree = part * axis_size + index, degree * axis_size
        bounds = part_bounds(size, degree)
        rows.append(slice(int(bounds[part]), int(bounds[part + 1])))
    return tuple(rows)


TENSOR = Shape(DIMS, (12,) * len(DIMS))


def made(places, mesh, tensor, rng):
    """Return what each coordinate holds: parts of the tensor, or of summands that add up to it over partial axes."""
    partial = [a for a, place in enumerate(places) if place == PARTIAL]
    shape = tuple(mesh.sizes[a] for a in partial)
    summands = rng.integers(-9, 9, (*shape, *tensor.shape)).astype(float)
    summands[(-1,) * len(shape)] += tensor - summands.reshape(-1, *tensor.shape).sum(axis=0)
    held = {}
    for coordinate in itertools.product(*map(range, mesh.sizes)):
        own = summands[tuple(coordinate[a] for a in partial)]
        held[coordinate] = own[region(places, mesh, coordinate, tensor.shape)]
    return held


def carried_out(steps, held, mesh, shape):
    """Return what each coordinate holds after the steps."""
    for step in steps:
        after = {}
        groups = [1 if axis == step.axis else size for axis, size in enumerate(mesh.sizes)]
        whole = group_elements(step.buffer, step.axis, mesh, Shape(DIMS, shape)).reshape(groups)
        for coordinate in held:
            group = (*coordinate[: step.axis], 0, *coordinate[step.axis + 1 :])
            row = [(*coordinate[: step.axis], k, *coordinate[step.axis + 1 :]) for k in range(mesh.sizes[step.axis])]
            if step.collective == "all-gather":
                after[coordinate] = np.concatenate([held[each] for each in row], axis=step.dim)
                assert after[coordinate].size == whole[group]
                continue
            if step.collective == "all-to-all":
                assert all(held[each].size == whole[group] for each in row)
                size = held[coordinate].shape[step.dim] // len(row)
                mine = range(coordinate[step.axis] * size, (coordinate[step.axis] + 1) * size)
                after[coordinate] = np.concatenate([held[each].take(mine, step.dim) for each in row], step.gathered)
                continue
            total = held[coordinate] if step.collective == "slice" else sum(held[each] for each in row)
            assert total.size == whole[group]
            if step.collective in ("reduce-scatter", "slice"):
                bounds = part_bounds(total.shape[step.dim], len(row))
                total = np.take(total, range(*bounds[coordinate[step.axis] :][:2].tolist()), axis=step.dim)
            after[coordinate] = total
        held = after
    return held


@st.composite
def cases(draw):
    """Draw a mesh, a tensor that all axes divide, and two layouts of it."""
    sizes = draw(st.sampled_from([(2,), (4,), (2, 2), (2, 3), (3, 2), (2, 2, 2)]))
    tensor = tuple(draw(st.sampled_from([12, 24])) for _ in DIMS)
    places = [REPLICATED, *range(len(DIMS))]
    source = draw(st.tuples(*(st.sampled_from([*places, PARTIAL]) for _ in sizes)))
    target = draw(st.tuples(*(st.sampled_from(places) for _ in sizes)))
    return mesh_of(sizes), tensor, source, target, draw(st.integers(0, 2**16))


@given(cases())
def test_steps_bring_what_is_read(case):
    mesh, sizes, source, target, seed = case
    steps = steps_between(source, target, mesh, Shape(DIMS, sizes))
    assume(steps is not None)
    rng = np.random.default_rng(seed)
    tensor = rng.integers(-9, 9, sizes).astype(float)
    held = carried_out(steps, made(source, mesh, tensor, rng), mesh, sizes)
    for coordinate, values in held.items():
        np.testing.assert_array_equal(values, tensor[region(target, mesh, coordinate, sizes)])


@given(cases())
def test_gradients_have_steps_where_tensors_have_some(case):
    mesh, sizes, source, target, _ = case
    assume(PARTIAL not in source)
    ways = [steps_between(*pair, mesh, Shape(DIMS, sizes)) for pair in ((source, target), (target, source))]
    assert (ways[0] is None) == (ways[1] is None)


@pytest.mark.parametrize(
    ("source", "target", "collectives"),
    [
        ((PARTIAL,), (REPLICATED,), ["all-reduce"]),
        ((PARTIAL,), (2,), ["reduce-scatter"]),
        ((2,), (REPLICATED,), ["all-gather"]),
        ((REPLICATED,), (2,), ["slice"]),
        ((1,), (1,), []),
        ((1,), (2,), ["all-to-all"]),
        ((0, 0), (0, 1), ["all-to-all"]),
        ((0, 0), (REPLICATED, 1), ["all-to-all", "all-gather"]),
        ((1, 1), (0, REPLICATED), ["all-gather", "all-to-all"]),
    ],
)
def test_collectives_of_axes(source, target, collectives):
    steps = steps_between(source, target, mesh_of((2,) * len(source)), TENSOR)
    assert [step.collective for step in steps] == collectives


def test_layouts_without_steps():
    """A dimension moves to another axis, its outer axis moves without the inner one, or parts are unequal."""
    two = mesh_of((2, 2))
    assert steps_between((1, REPLICATED), (REPLICATED, 1), two, TENSOR) is None
    assert steps_between((0, 0), (1, 0), two, TENSOR) is None
    assert steps_between((1, 0), (0, 1), two, TENSOR) is None
    assert steps_between((0, 0), (1, 2), two, TENSOR) is None
    assert steps_between((1,), (2,), mesh_of((5,)), TENSOR) is None


def test_gradients_of_partial_sums_are_whole():
    assert gradient_wanted_in((PARTIAL, 0, REPLICATED)) == (REPLICATED, 0, REPLICATED)


def test_gradients_of_one_layout_are_told_apart_by_who_repeats():
    """Two layers read all of a tensor on four devices; other devices of each compute the same."""
    graph = residual_block()
    first, second = (graph.layers[graph.index[name]] for name in ("first", "sum"))
    rows, columns = (Mesh((("a", 2), ("b", 2)), devices) for devices in ((0, 1, 2, 3), (0, 2, 1, 3)))
    spaces = [
        space_of(layer, Configuration.on(mesh, ("channel", None), layer.parallel_dims), 4)
        for layer, mesh in ((first, rows), (second, rows), (first, columns))
    ]
    same, again, other = (gradient_layout(space, None) for space in spaces)
    assert same == again != other
    split = space_of(first, Configuration.on(rows, ("channel", "sample"), first.parallel_dims), 4)
    assert gradient_layout(split, None) not in (same, other)
    assert gradient_layout(split, None) != gradient_layout(split, Redistribution(rows, (), ()))
