"""Fusion of layers for pricing: normalisation and activation into products, and chains of elementwise operations.

Convolutions take a batch normalisation behind them and then an activation, sums and fully connected layers an
activation, the latter also dropout, as the built-in models are written.  Elementwise operations of one shape that
follow one another become one kernel, as compilers make one of them.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from planner.graph.computation_graph import Layer
from planner.graph.operation import Operation
from planner.graph.parameters import Parameter
from planner.graph.shapes import IntervalMap
from planner.importing.read_elementwise import FUSED_ACTIVATIONS
from planner.importing.recording import renamed_steps, whole_axes
from planner.operations.computation import Operand, Step
from planner.operations.convolution import Convolution
from planner.operations.dropout import Dropout
from planner.operations.joining import Add
from planner.operations.linear import Linear
from planner.operations.normalisation import BatchNorm
from planner.operations.streaming import Elementwise


@dataclass(frozen=True, slots=True)
class Fused:
    """Layers that became one."""

    into: str
    """Name of the layer that is left."""
    steps: tuple[str, ...]
    """Operations that it has taken in, in order; all of a chain of elementwise ones."""


def fused_layers(layers: Sequence[Layer], read: Sequence[str]) -> tuple[list[Layer], list[Fused]]:
    """Return layers with chains made one, and what was fused."""
    uses = Counter([source for layer in layers for source in layer.inputs]) + Counter(read)
    left: dict[str, Layer] = {}
    renamed: dict[str, str] = {}
    taken: dict[str, list[str]] = {}
    for layer in layers:
        layer = replace(layer, inputs=tuple(renamed.get(name, name) for name in layer.inputs))
        for slot, source in enumerate(layer.inputs):
            one = left.get(source)
            if one is None or uses[source] != 1:
                continue
            joined = _joined(one, layer, slot)
            if joined is None:
                continue
            left.pop(source)
            name = layer.name if isinstance(joined.operation, Elementwise) else one.name
            operation = layer.operation
            steps = operation.steps if isinstance(operation, Elementwise) else (operation.kind,)
            taken[name] = [*taken.pop(one.name, []), *steps]
            renamed[layer.name] = name
            uses[name] = uses[layer.name]
            layer = replace(joined, name=name)
            break
        left[layer.name] = layer
    rows = [(name, left[name].operation, steps) for name, steps in taken.items()]
    return list(left.values()), [Fused(n, o.steps if isinstance(o, Elementwise) else tuple(s)) for n, o, s in rows]


def _joined(one: Layer, other: Layer, slot: int) -> Layer | None:
    """Return the layer that two become, the second reading the first alone in a slot; None if they stay apart."""
    first, second = one.operation, other.operation
    if isinstance(first, Convolution) and isinstance(second, BatchNorm):
        if first.batch_norm or first.activation or not second.affine:
            return None
        keys = (*one.keys, *((f"norm_{name}", key) for name, key in other.keys))
        normed = replace(
            first, batch_norm=True, activation=second.activation, norm_eps=second.eps, norm_momentum=second.momentum
        )
        return replace(one, operation=normed, keys=keys)
    activation = _activation(other, one)
    drops = isinstance(first, Linear) and first.dropout > 0
    takes = isinstance(first, Convolution | BatchNorm | Add | Linear) and not first.activation
    if activation and takes and not drops:
        return replace(one, operation=replace(first, activation=activation))  # type: ignore[type-var]
    if isinstance(first, Linear) and isinstance(second, Dropout) and not first.dropout:
        return replace(one, operation=replace(first, dropout=second.dropout))
    return _chained(one, other, slot)


def _activation(layer: Layer, before: Layer) -> str | None:
    """Return the activation that a layer is, of exactly what the layer before computes."""
    operation = layer.operation
    if not isinstance(operation, Elementwise) or len(layer.inputs) != 1 or operation.weights:
        return None
    slope = next((dict(s.arguments).get("negative_slope", 0.01) for s in operation.computes), 0.01)
    plain = (
        slope == 0.01
        and layer.output == before.output
        and all(_is_identity(m, d) for m, d in zip(operation.reads[0], before.output.dims, strict=True))
    )
    return (
        operation.steps[0] if plain and len(operation.steps) == 1 and operation.steps[0] in FUSED_ACTIVATIONS else None
    )


def _is_identity(each: IntervalMap, dim: str) -> bool:
    return each == IntervalMap(dim=dim)


def _chained(one: Layer, other: Layer, slot: int) -> Layer | None:
    """Return two elementwise layers of one shape as one."""
    first, second = _as_elementwise(one), _as_elementwise(other)
    if first is None or second is None or one.output != other.output:
        return None
    if not isinstance(one.operation, Elementwise) and not isinstance(other.operation, Elementwise):
        return None
    identity = all(
        _is_identity(m, dim) or size == 1
        for m, dim, size in zip(second.reads[slot], one.output.dims, one.output.sizes, strict=True)
    )
    names = [*one.inputs, *(name for i, name in enumerate(other.inputs) if i != slot)]
    shapes = [*one.input_shapes, *(shape for i, shape in enumerate(other.input_shapes) if i != slot)]
    reads = [*first.reads, *(maps for i, maps in enumerate(second.reads) if i != slot)]
    if not identity or len(names) > 8:
        return None
    # a tensor that both read in the same way is read once
    rows = list(dict.fromkeys(zip(names, shapes, reads, strict=True)))
    saves = "nothing" if first.saves == second.saves == "nothing" else "inputs"
    weights = _joined_weights(one, first, other, second)
    if weights is None:
        return None
    named = {key: each.name for key, each in weights.items()}
    operation = replace(
        second,
        steps=(*first.steps, *second.steps),
        reads=tuple(row[2] for row in rows),
        saves=saves,
        weights=tuple(weights.values()),
        computes=_joined_steps(one, first, other, second, slot, rows, named),
    )
    return replace(
        other,
        operation=operation,
        inputs=tuple(row[0] for row in rows),
        input_shapes=tuple(row[1] for row in rows),
        keys=tuple((name, key) for key, name in named.items()),
    )


def _joined_weights(one: Layer, first: Elementwise, other: Layer, second: Elementwise) -> dict[str, Parameter] | None:
    """Return the parameters of two layers together, by key; None where both use one, each along another axis."""
    found: dict[str, Parameter] = {}
    for layer, operation in ((one, first), (other, second)):
        keys = dict(layer.keys)
        for each in operation.weights:
            known = found.setdefault(keys[each.name], replace(each, name=f"weight{len(found) or ''}"))
            if known.indices != each.indices:
                return None
    return found


def _joined_steps(
    one: Layer,
    first: Elementwise,
    other: Layer,
    second: Elementwise,
    slot: int,
    rows: Sequence[Any],
    weights: Mapping[str, str],
) -> tuple[Step, ...]:
    """Return what two layers compute one after the other; nothing where it is not known of one of them."""
    if not first.computes or not second.computes:
        return ()
    own = list(zip(one.inputs, one.input_shapes, first.reads, strict=True))
    read = list(zip(other.inputs, other.input_shapes, second.reads, strict=True))
    names, behind = ({name: weights[key] for name, key in layer.keys} for layer in (one, other))
    slots = {i: rows.index(row) for i, row in enumerate(own)}
    others = {i: rows.index(row) for i, row in enumerate(read) if i != slot}
    before = renamed_steps(first.computes, names, slots, 0, None)
    return (*before, *renamed_steps(second.computes, behind, others, len(before), slot))


def _plain_step(layer: Layer, operation: Add | Dropout) -> Step:
    """Return the step of a sum of two tensors, or of dropout."""
    axes = whole_axes(layer.output)
    names = ("self", "other") if isinstance(operation, Add) else ("input",)
    operands = tuple(Operand(name=name, input=i, axes=axes) for i, name in enumerate(names))
    if isinstance(operation, Add):
        return Step(form="pointwise", call="add", out=axes, operands=operands)
    return Step(form="dropout", call="dropout", out=axes, operands=operands, arguments=(("p", operation.dropout),))


def _as_elementwise(layer: Layer) -> Elementwise | None:
    """Return an elementwise operation, or a sum without activation as one."""
    operation: Operation = layer.operation
    if isinstance(operation, Elementwise):
        return operation
    if isinstance(operation, Add | Dropout) and not getattr(operation, "activation", None):
        identity = tuple(IntervalMap(dim=dim) for dim in layer.output.dims)
        return Elementwise(
            dims=layer.output.dims[1:],
            sizes=layer.output.sizes[1:],
            reads=(identity,) * len(layer.inputs),
            steps=(operation.kind,),
            saves="nothing",
            computes=(_plain_step(layer, operation),),
        )
    return None
