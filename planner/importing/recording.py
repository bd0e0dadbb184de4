"""Records of what layers compute, written while they are read."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from planner.graph.computation_graph import Layer
from planner.graph.shapes import Shape
from planner.importing.axes import Atom, Axes, TracedValue, size_of
from planner.importing.constants import Fixed, UnrecordedError, constant_of, plain_arguments
from planner.operations.computation import DimFactor, Operand, Step, axis_of
from planner.operations.mapped import Mapped

Given = tuple[str, TracedValue | Fixed]
"""A tensor that a step reads, by the name of the argument."""


def axes_text(axes: Axes | Sequence[Sequence[Atom]], shape: Shape) -> tuple[str, ...]:
    """Return the axes of a view of a layer's output as they are written.

    Raises:
        UnrecordedError: An axis has a part of the samples, whose number may change.
    """
    return tuple(axis_of(tuple(_factor(atom, shape) for atom in axis)) for axis in axes)


def _factor(atom: Atom, shape: Shape) -> DimFactor:
    if atom.dim is None:
        return DimFactor(None, atom.size)
    if atom.size == shape.size(atom.dim):
        return DimFactor(atom.dim)
    if atom.dim == "sample":
        raise UnrecordedError("it divides the samples")
    return DimFactor(atom.dim, atom.size, atom.stride)


def recorded(
    layer: Layer,
    read: Sequence[TracedValue],
    form: str,
    call: str,
    operands: Sequence[Given],
    arguments: Mapping[str, Any],
    *,
    out: Axes | Sequence[Sequence[Atom]],
    channel_axes: Mapping[str, int | None],
) -> Layer:
    """Return a layer with what it computes; without, where that cannot be written down.

    Args:
        layer: The layer.
        read: Values of its inputs.
        form: How the step is divided.
        call: Name of the operation.
        operands: Tensors that it reads.
        arguments: All arguments; those that are tensors are left out.
        out: Axes of the result in terms of the layer's output.
        channel_axes: Axis of each constant operand that is the layer's channels, by the name of the argument.
    """
    operation = layer.operation
    assert isinstance(operation, Mapped)
    try:
        slots = _slots(read, [each for _, each in operands])
        rows = tuple(
            _operand(layer, slot, name, each, channel_axes.get(name))
            for slot, (name, each) in zip(slots, operands, strict=True)
        )
        step = Step(
            form=form, call=call, out=axes_text(out, layer.output), operands=rows, arguments=plain_arguments(arguments)
        )
    except UnrecordedError:
        return layer
    return _with_axes(replace(layer, operation=replace(operation, computes=(*operation.computes, step))))


def _operand(layer: Layer, slot: int | None, name: str, given: TracedValue | Fixed, channel: int | None) -> Operand:
    if isinstance(given, Fixed):
        names = {key: each for each, key in layer.keys}
        return Operand(name=name, constant=constant_of(given, names, channel))
    if slot is None:
        raise UnrecordedError(f"it reads {given.layer}, which is no input of it")
    return Operand(name=name, input=slot, axes=axes_text(given.axes, layer.input_shapes[slot]))


def _slots(read: Sequence[TracedValue], operands: Sequence[TracedValue | Fixed]) -> list[int | None]:
    """Return the slot of each operand: where several read the same layer, that of its view, else the next."""
    free = list(range(len(read)))
    rows: list[int | None] = []
    for given in operands:
        if isinstance(given, Fixed):
            rows.append(None)
            continue
        ranked = [(each != given, i not in free, i) for i, each in enumerate(read) if each.layer == given.layer]
        rows.append(min(ranked)[2] if ranked else None)
        free = [i for i in free if i != rows[-1]]
    return rows


def _with_axes(layer: Layer) -> Layer:
    """Return a layer whose parameters say which of their axes the channels split."""
    operation = layer.operation
    assert isinstance(operation, Mapped)
    axes: dict[str, int] = {}
    for step in operation.computes:
        for operand in step.operands:
            for leaf in operand.constant.leaves() if operand.constant else ():
                if leaf.parameter and leaf.along is not None:
                    axes[leaf.parameter] = leaf.along
    weights = tuple(
        replace(each, indices=(*[None] * axes[each.name], "channel")) if each.split and each.name in axes else each
        for each in operation.weights
    )
    return layer if weights == operation.weights else replace(layer, operation=replace(operation, weights=weights))


def whole_axes(shape: Shape) -> tuple[str, ...]:
    """Return the axes of all of a layer's output, in order."""
    return tuple(shape.dims[i] if size > 1 or i == 0 else "one" for i, size in enumerate(shape.sizes))


def channel_axis(out: Axes | Sequence[Sequence[Atom]], shape: Shape, rank: int) -> int | None:
    """Return the axis of an operand of this rank that is all of the channels of a result, broadcast from the right."""
    channels = shape.size("channel")
    for i, axis in enumerate(out):
        place = i - (len(out) - rank)
        if place >= 0 and len(axis) == 1 and axis[0].dim == "channel" and size_of(axis) == channels:
            return place
    return None


def renamed_steps(
    steps: Sequence[Step], names: Mapping[str, str], slots: Mapping[int, int], first: int, joined: int | None
) -> tuple[Step, ...]:
    """Return the steps of a layer that becomes part of another.

    Args:
        steps: The steps.
        names: New names of its parameters.
        slots: New slots of its inputs.
        first: Number of steps before.
        joined: Slot whose tensor is the result of the step before the first; None: none is.
    """
    return tuple(
        replace(step, operands=tuple(_renamed(each, names, slots, first, joined) for each in step.operands))
        for step in steps
    )


def _renamed(
    operand: Operand, names: Mapping[str, str], slots: Mapping[int, int], first: int, joined: int | None
) -> Operand:
    if operand.input is not None and operand.input == joined:
        return replace(operand, input=None, step=first - 1)
    if operand.input is not None:
        return replace(operand, input=slots[operand.input])
    if operand.step is not None:
        return replace(operand, step=operand.step + first)
    assert operand.constant is not None
    return replace(operand, constant=_renamed_constant(operand.constant, names))


def _renamed_constant(constant: Any, names: Mapping[str, str]) -> Any:
    if constant.parameter:
        return replace(constant, parameter=names.get(constant.parameter, constant.parameter))
    rows = tuple((name, _renamed_constant(each, names)) for name, each in constant.operands)
    return replace(constant, operands=rows)
