"""Orders of tensors in memory, and whether steps can read what lies in one without a copy of it."""

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise

from planner.graph.shapes import Shape
from planner.operations.computation import Operand, Step, is_matrix_product, parse_axis

DimOrder = tuple[str, ...]
"""Dimensions of a tensor by their place in memory, from the outside in."""


def is_view(step: Step) -> bool:
    """Return whether a step only reads another's memory."""
    words = ("view", "reshape", "_unsafe_view", "flatten", "unflatten", "slice", "select")
    none = step.form == "dropout" and not float(step.argument("p", 0.0) or 0.0)  # type: ignore[arg-type]
    return none or (step.form in ("take", "whole") and step.call in words)


def order_of_shape(shape: Shape, last: bool = False) -> DimOrder:
    """Return the order of a tensor's dimensions in memory."""
    sample, channel, *positions = shape.dims
    return (sample, *positions, channel) if last else shape.dims


def order_like(order: DimOrder, shape: Shape) -> DimOrder:
    """Return the order of a tensor's dimensions where these are those of another shape, with the channels as there."""
    return order if set(order) == set(shape.dims) else order_of_shape(shape, len(order) > 2 and order[-1] == "channel")


def _loops(axes: Sequence[str], strides: Mapping[str, float]) -> list[list[tuple[int, float]]]:
    """Return, axis by axis, the counts and steps of its factors in memory."""
    return [
        [(f.size, f.stride * strides[f.dim] if f.dim else 0.0) for f in parse_axis(axis) if f.size != 1]
        for axis in axes
    ]


def sized_axes(axes: Sequence[str], shape: Shape) -> list[str]:
    """Return axes with the sizes of whole dimensions written out."""
    return ["-".join(f"{w}.{shape.size(w)}.1" if w in shape.dims else w for w in axis.split("-")) for axis in axes]


def _strides(order: DimOrder, shape: Shape) -> dict[str, float]:
    """Return the step in memory of each dimension."""
    strides, run = dict[str, float](), 1.0
    for dim in reversed(order):
        strides[dim] = run
        run *= shape.size(dim)
    return strides


def lies_well(step: Step, operand: Operand, shape: Shape, order: DimOrder) -> bool:
    """Return whether a view of a tensor needs no copy: all that a step reads as one axis has one step in memory.

    Kernels that work on rows read all axes as one, and need the elements of a row side by side.
    """
    strides, roles = _strides(order, shape), _roles(step)
    in_rows = step.form in ("contract", "norm", "along") and not roles
    joined = [_axes_by_role([role], _labels(step, operand.name), operand.axes) for role in roles]
    if not roles:
        joined = [[*operand.axes]] if in_rows else [[axis] for axis in operand.axes]
    loops = [[loop for axis in _loops(sized_axes(axes, shape), strides) for loop in axis] for axes in joined]
    return all(map(_nested, loops)) and not (in_rows and loops[0] and loops[0][-1][1] != 1)


def is_scattered(step: Step, operand: Operand, shape: Shape) -> bool:
    """Return whether the gradient of what a step reads lies as no tensor of a shape does.

    Only products of stacked matrices make gradients that may.
    """
    roles = _roles(step)
    return not roles or _order_of_axes(_axes_by_role(roles, _labels(step, operand.name), operand.axes), shape) is None


def _labels(step: Step, tensor: str) -> tuple[str, ...]:
    """Return the labels of the axes of a product's operand, or of its result, ``out``."""
    given = step.argument({"one": "first", "two": "second"}.get(tensor, tensor))
    return tuple(map(str, given)) if isinstance(given, tuple) else ()


def _axes_by_role(roles: Sequence[Sequence[str]], labels: Sequence[str], axes: Sequence[str]) -> list[str]:
    """Return the axes with these labels in the order of their roles; as they are where there are none."""
    return [axes[labels.index(label)] for role in roles for label in role if label in labels] if roles else [*axes]


def _roles(step: Step) -> list[list[str]]:
    """Return the labels of axes that a product of stacked matrices reads as one: those of stacks, rows, columns, sums.

    The result lies by the first three.  Empty for other steps, and for products with one matrix, which read rows.
    """
    if step.form != "contract":
        return []
    first, second, out = (_labels(step, tensor) for tensor in ("one", "two", "out"))
    if is_matrix_product(first, second, out):
        return []
    return [
        [label for label in out if label in first and label in second],
        [label for label in out if label not in second],
        [label for label in out if label not in first],
        [label for label in dict.fromkeys((*first, *second)) if label not in out],
    ]


def _nested(loops: Sequence[tuple[int, float]]) -> bool:
    """Return whether loops within one another are one loop."""
    return all(step == size * inner for (_, step), (size, inner) in pairwise(loops))


def order_behind(step: Step, shape: Shape) -> DimOrder | None:
    """Return the order in memory of a result whose elements lie as the step's axes say; None if no tensor has it."""
    return _order_of_axes(_axes_by_role(_roles(step)[:-1], _labels(step, "out"), step.out), shape)


def _order_of_axes(axes: Sequence[str], shape: Shape) -> DimOrder | None:
    """Return the order in memory of a tensor whose elements lie as axes say; None if no tensor has it."""
    run, places = 1.0, dict[str, list[tuple[int, float]]]()
    for axis in reversed(sized_axes(axes, shape)):
        for factor in reversed(parse_axis(axis)):
            if factor.dim and factor.size > 1:
                places.setdefault(factor.dim, []).append((factor.stride, run))
            run *= factor.size
    steps = {dim: min(rows)[1] for dim, rows in places.items()}
    if any(place != stride * steps[dim] for dim, rows in places.items() for stride, place in rows):
        return None
    sizes = {dim: shape.size(dim) for dim in shape.dims}
    if sizes["sample"] == 1:
        steps["sample"] = math.inf  # a single sample may lie anywhere: outside, as several would
    return tuple(sorted(shape.dims, key=lambda dim: (-steps.get(dim, 0.0), sizes[dim] > 1, shape.dims.index(dim))))
