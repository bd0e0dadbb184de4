"""Products whose channels are sections, such as queries, keys and values, each read by a slice of its own.

Equal parts of 2,304 channels would hold all queries and half of the keys.  With the sections as a dimension of their
own, parts of the 768 channels hold the same heads of queries, keys and values::

    channel 2304, length 1024                       channel 768, height 1024, width 3
    slices from channel 0, 768 and 1536     become  index 0, 1 and 2 of the width

It is the same product, of a weight of one more axis.
"""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from planner.graph.computation_graph import Layer
from planner.graph.parameters import Parameter
from planner.graph.shapes import IntervalMap, Shape
from planner.operations.checks import POSITIONS
from planner.operations.computation import Constant, DimFactor, Operand, Step, axis_of, parse_axis
from planner.operations.products import TensorProduct
from planner.operations.rearrangement import Rearrangement


def in_sections(layers: Sequence[Layer], read: Sequence[str]) -> list[Layer]:
    """Return layers with the sections of products as a dimension."""
    changed = {layer.name: layer for layer in layers}
    uses = Counter(key for layer in layers for _, key in layer.keys)
    readers = defaultdict[str, list[Layer]](list)
    for layer in layers:
        for source in set(layer.inputs):
            readers[source].append(layer)
    for layer in layers:
        if layer.name not in read and all(uses[key] == 1 for _, key in layer.keys):
            changed |= {each.name: each for each in _sections(layer, readers[layer.name])}
    return list(changed.values())


@dataclass(frozen=True)
class _Sections:
    """Sections of the channels of an output."""

    count: int
    channels: int
    names: Mapping[str, str]
    dim: str

    def axis(self, text: str) -> str | None:
        """Return an axis of a view of the output with the new dimensions; None if it is none of whole sections."""
        factors = list[DimFactor]()
        for each in parse_axis(text):
            size = each.size or self.count * self.channels
            if each.dim != "channel":
                factors.append(replace(each, dim=each.dim and self.names[each.dim]))
            elif size * each.stride <= self.channels:
                factors.append(each)
            elif each.stride % self.channels == 0:
                whole = each.size == self.count
                factors.append(DimFactor(self.dim, 0 if whole else each.size, each.stride // self.channels))
            elif each.stride == 1 and size == self.count * self.channels:
                factors += [DimFactor(self.dim), DimFactor("channel")]
            else:
                return None
        return axis_of(tuple(factors))


def _sections(layer: Layer, readers: Sequence[Layer]) -> list[Layer]:
    """Return a product and the slices that read it, if these are its sections; else nothing."""
    product = layer.operation
    sizes = {each.output.size("channel") for each in readers}
    if not isinstance(product, TensorProduct) or not product.summed_size(layer.input_shapes) or len(sizes) != 1:
        return []
    (channels,), whole = sizes, layer.output.size("channel")
    new = next((each for each in POSITIONS if len(each) == len(layer.output.positions) + 1), ())
    if whole % channels or whole == channels or not new:
        return []
    names = dict(zip(layer.output.dims, ("sample", "channel", *new), strict=False))
    sections = _Sections(whole // channels, channels, names, new[-1])
    made = [_product(layer, product, sections)]
    made += [_slice(each, made[0].output if made[0] else layer.output, sections) for each in readers]
    return [each for each in made if each] if all(made) else []


def _product(layer: Layer, product: TensorProduct, sections: _Sections) -> Layer | None:
    """Return the product with its new dimensions; None if what it computes cannot be written so."""
    steps = []
    for step in product.computes:
        labels = step.argument("second"), step.argument("out")
        if step.form != "contract" or not all(isinstance(row, tuple) and "n" in row for row in labels):
            return None
        if step.out[-1] != "channel" or any(each.step is not None for each in step.operands):
            return None
        out = [sections.axis(each) for each in step.out[:-1]]
        operands = tuple(replace(each, constant=_constant(each.constant, sections)) for each in step.operands)
        if None in out or any(each.constant and each.constant.call for each in operands):
            return None
        arguments = tuple(
            (name, tuple(part for label in row for part in (("s", "n") if label == "n" else (label,))))
            if name in ("second", "out") and isinstance(row, tuple)
            else (name, row)
            for name, row in step.arguments
        )
        axes = (*(each for each in out if each), sections.dim, "channel")
        steps.append(replace(step, out=axes, operands=operands, arguments=arguments))
    reads = tuple(
        tuple(replace(each, dim=each.dim and sections.names[each.dim]) for each in row) for row in product.reads
    )
    operation = replace(
        product,
        dims=(*(sections.names[dim] for dim in product.dims), sections.dim),
        sizes=(sections.channels, *product.sizes[1:], sections.count),
        reads=reads,
        weights=tuple(_weight(each, sections) for each in product.weights),
        computes=tuple(steps),
    )
    return replace(layer, operation=operation, output=operation.output(layer.input_shapes))


def _weight(weight: Parameter, sections: _Sections) -> Parameter:
    shape = _parted(weight.shape, weight.axis, sections)
    return replace(weight, shape=shape, indices=(None, *weight.indices), sections=True)


def _constant(constant: Constant | None, sections: _Sections) -> Constant | None:
    """Return a parameter of a step, with an axis of sections before that of channels."""
    if constant is None or constant.along is None or constant.call:
        return constant
    shape = _parted(constant.shape, constant.along, sections)
    return replace(constant, shape=shape, along=constant.along + 1)


def _parted(shape: tuple[int, ...], axis: int, sections: _Sections) -> tuple[int, ...]:
    return (*shape[:axis], sections.count, sections.channels, *shape[axis + 1 :])


def _slice(layer: Layer, source: Shape, sections: _Sections) -> Layer | None:
    """Return a slice as what it reads of a product in sections; None if it is no section."""
    operation = layer.operation
    if not isinstance(operation, Rearrangement) or operation.kind != "slice" or len(layer.inputs) != 1:
        return None
    sample, channel, *positions = operation.reads[0]
    index = -channel.offset // sections.channels
    if channel != IntervalMap(dim="channel", offset=-index * sections.channels):
        return None
    steps = tuple(_sliced(step, sections) for step in operation.computes)
    reads = (sample, IntervalMap(dim="channel"), *positions, IntervalMap(dim=None, index=index))
    computes = tuple(each for each in steps if each)
    if len(computes) < len(steps):
        return None
    return replace(layer, operation=replace(operation, reads=(reads,), computes=computes), input_shapes=(source,))


def _sliced(step: Step, sections: _Sections) -> Step | None:
    """Return a step of a slice, whose input has the new dimensions."""
    operands = list[Operand]()
    for each in step.operands:
        axes = [sections.axis(axis) if each.input is not None else axis for axis in each.axes]
        if None in axes:
            return None
        operands.append(replace(each, axes=tuple(axis for axis in axes if axis)))
    return replace(step, operands=tuple(operands))
