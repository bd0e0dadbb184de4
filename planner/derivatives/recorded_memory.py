"""Memory of a recorded computation: what its parts save, and how much they take while they compute.

The executor runs the steps under PyTorch's automatic differentiation.  Each step makes a tensor, or a view of one;
its derivative reads some of the tensors, which live on; the others are released after the last step that reads them::

    x --pow--> a --mul--> b --add(x)--> c --tanh--> d        saved: x (by pow), d (by tanh)
                                                              while b is made: a and b; a is released, and so on

Sizes are by part, in elements.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from groundwork.array_types import Floats
from planner.derivatives.element_order import (
    DimOrder,
    is_scattered,
    is_view,
    lies_well,
    order_behind,
    order_like,
    order_of_shape,
    sized_axes,
)
from planner.derivatives.saved_values import PASSED_ON, SAVED, TEMPORARIES
from planner.graph.computation_graph import Layer
from planner.graph.data_sources import is_data
from planner.graph.shapes import Shape
from planner.operations.base import Part
from planner.operations.computation import Constant, Operand, Step, parse_axis
from planner.operations.mapped import Mapped
from planner.operations.products import Attention

_Source = tuple[str, int]
"""A tensor of the computation: an input by slot, a step's result, a parameter by step."""
_INPUTS, _WEIGHTS = "inputs", "weights"
_CONSTANT, _NONE = "constant", frozenset[str]()
_INDEX_BYTES = 8
"""Bytes of an index of a row or of a maximum."""


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class RecordedMemory:
    """Memory of the parts of a layer in elements, shape (parts,) each."""

    saves_inputs: tuple[bool, ...]
    """By slot, whether a derivative reads the input itself."""
    copies: Floats
    """Copies of inputs in another order, which derivatives read instead of them."""
    saves_output: bool
    saved: Floats
    """Other tensors that derivatives read."""
    index_bytes: Floats
    """Bytes of those of other types."""
    forward: Floats
    """Most that is allocated at once while the steps run, the output and what is saved included."""
    activation_gradient: Floats
    """Most that is allocated beside the gradients of the inputs while these are computed."""
    weight_gradient: Floats
    """Most that is allocated beside the gradients of the parameters."""
    passes_gradient: bool
    """True if the gradient of the only input is that of the output."""
    channels_last: bool
    """True if the output has its channels last in memory."""


@dataclass(slots=True, eq=False)
class _Tensor:
    """A tensor that a step reads or makes."""

    source: _Source
    storage: object
    """Whatever is equal for tensors that share their memory; ``_CONSTANT`` where the memory is counted elsewhere."""
    size: Floats
    order: DimOrder
    needs: frozenset[str] = _NONE
    """Whose gradients its own is for: those of the inputs, of the weights, or none."""
    copied: bool = False
    """True if it is a copy of its source in another order."""
    scattered: bool = False
    """True if its gradient lies as no tensor of its source's dimensions does: it is copied once more."""


@dataclass(slots=True, eq=False)
class _Derivative:
    """Backward pass of a step."""

    needs: frozenset[str]
    operands: list[_Tensor]
    passes: bool
    """True if the gradient of the result is that of operands of its size."""
    temporaries: Mapping[str, Floats]
    """What is allocated beside the gradients of inputs, and of weights."""
    result: Floats


@dataclass(slots=True, eq=False)
class _Tape:
    """The steps so far."""

    live: dict[object, Floats] = field(default_factory=dict)
    """Sizes of storages that the steps have allocated and still hold."""
    saved: dict[object, Floats] = field(default_factory=dict)
    """Storages that derivatives read, inputs included."""
    index_bytes: Floats | float = 0.0
    peak: Floats | float = 0.0
    derivatives: list[_Derivative] = field(default_factory=list)

    def allocate(self, storage: object, size: Floats) -> None:
        """Allocate a storage."""
        self.live[storage] = size
        self.note()

    def note(self, more: Floats | float = 0.0) -> None:
        """Note how much is allocated, with more that is released at once."""
        self.peak = np.maximum(self.peak, sum(self.live.values(), more))

    def keep(self, storage: object, size: Floats) -> None:
        """Allocate a storage that a derivative reads."""
        self.saved[storage] = size
        self.allocate(storage, size)

    def save(self, tensor: _Tensor) -> None:
        """Keep a tensor for the backward pass."""
        if tensor.storage is not _CONSTANT:
            self.saved[tensor.storage] = tensor.size


def recorded_memory(
    layer: Layer, part: Part, reads: Sequence[Floats], channels_last: Sequence[bool], *, widened: float = 1.0
) -> RecordedMemory:
    """Return the memory of the parts of a layer whose computation is recorded.

    Args:
        layer: The layer.
        part: Its parts.
        reads: By slot, the elements of the input that each part reads.
        channels_last: By slot, whether the input has its channels last in memory.
        widened: Bytes of an element in which RMS norms compute, by those of one of a tensor.
    """
    return _Steps(layer, part, reads, channels_last, widened).memory()


class _Steps:
    """The steps of a layer, taken one after another."""

    def __init__(
        self, layer: Layer, part: Part, reads: Sequence[Floats], channels_last: Sequence[bool], widened: float
    ) -> None:
        operation = layer.operation
        assert isinstance(operation, Mapped)
        self.layer, self.operation, self.part, self.tape, self.widened = layer, operation, part, _Tape(), widened
        self.outputs = part.outputs
        """Elements of the output; inputs and results that are as large have this same array, by which to know them."""
        self.zero = 0.0 * self.outputs
        self.frozen = {each.name for each in layer.parameters if each.frozen}
        self.inputs = [
            _Tensor(
                ("input", slot),
                ("input", slot),
                self.outputs if np.array_equal(size, self.outputs) else size,
                order_of_shape(shape, last),
                _NONE if is_data(source) else frozenset([_INPUTS]),
            )
            for slot, (source, shape, size, last) in enumerate(
                zip(layer.inputs, layer.input_shapes, reads, channels_last, strict=True)
            )
        ]
        self.results: list[_Tensor] = []
        last = {each.step: n for n, step in enumerate(operation.computes) for each in step.operands}
        for number, step in enumerate(operation.computes):
            self._take(number, step)
            kept = [self.results[n].storage for n in range(number + 1) if last.get(n, number) > number or n == number]
            self.tape.live = {s: v for s, v in self.tape.live.items() if s in kept or s in self.tape.saved}

    def memory(self) -> RecordedMemory:
        """Return the memory of all steps."""
        tape, output = self.tape, self.results[-1]
        if output.storage in [each.storage for each in self.inputs]:  # a view is copied: layers own their outputs
            output.storage = "copy"
            tape.allocate("copy", self.outputs)
        copies = [v for s, v in tape.saved.items() if isinstance(s, tuple) and s[0] == "copy"]
        apart = [v for s, v in tape.saved.items() if not (isinstance(s, tuple) and s[0] in ("copy", "input"))]
        shares = output.storage in tape.saved
        saved = sum(apart, self.zero) - (tape.saved[output.storage] if shares else 0.0)
        peaks = {target: self._backward(target) for target in (_INPUTS, _WEIGHTS)}
        derivatives = [row for row in tape.derivatives if _INPUTS in row.needs]
        passes = len(self.inputs) == 1 and all(
            row.passes and all(x.size is row.result and not x.copied for x in row.operands if _INPUTS in x.needs)
            for row in derivatives
        )
        return RecordedMemory(
            saves_inputs=tuple(("input", slot) in tape.saved for slot in range(len(self.inputs))),
            copies=sum(copies, self.zero),
            saves_output=shares,
            saved=saved,
            index_bytes=tape.index_bytes + self.zero,
            forward=tape.peak + self.zero,
            activation_gradient=peaks[_INPUTS],
            weight_gradient=peaks[_WEIGHTS],
            passes_gradient=passes,
            channels_last=output.order[-1] == "channel" and len(output.order) > 2,
        )

    def _take(self, number: int, step: Step) -> None:
        """Take one step: allocate, save, and note how its derivative computes."""
        operands = {each.name: self._read(number, step, each) for each in step.operands}
        needs = frozenset[str]().union(*(each.needs for each in operands.values()))
        size, views = self.outputs, is_view(step)
        first = next(iter(operands.values()), None)
        order = order_behind(step, self.layer.output)
        if step.form == "attention" and self._fused(step):  # the kernel puts the heads of a position side by side
            order = order_of_shape(self.layer.output, last=True)
        elif step.form in ("pointwise", "dropout", "take") or views:
            alike = next((x.order for x in operands.values() if x.size is size), order or self.layer.output.dims)
            order = order_like(alike, self.layer.output)
        elif step.call.startswith("conv_transpose") and first is not None:
            order = order_like(first.order, self.layer.output)
        result = _Tensor(("step", number), ("step", number), size, order or order_of_shape(self.layer.output), needs)
        if views and first is not None:
            result.storage, result.order = first.storage, order_like(first.order, self.layer.output)
        else:
            self.tape.allocate(result.storage, size)
        temporaries = {_INPUTS: self.zero, _WEIGHTS: self.zero}
        if needs:
            temporaries = self._save(step, operands, result)
            for target in (_INPUTS, _WEIGHTS):  # the gradient of a copy is made before that of its source
                copies = [x.size for x in operands.values() if x.scattered and target in x.needs]
                temporaries[target] = sum(copies, temporaries[target])
                if order is None:  # the gradient is brought into the order of the result before
                    temporaries[target] = np.maximum(temporaries[target], size)
        if order is None:  # its order in memory cannot be that of a tensor of the output's dimensions: it is copied
            result.storage = ("placed", number)
            self.tape.allocate(result.storage, size)
        self.results.append(result)
        passes = views or step.call in PASSED_ON
        self.tape.derivatives.append(_Derivative(needs, [*operands.values()], passes, temporaries, size))

    def _read(self, number: int, step: Step, operand: Operand) -> _Tensor:
        """Return what a step reads, copied where its elements do not lie as the step needs them."""
        if operand.constant is not None:
            return self._constant(number, operand.constant)
        if operand.step is not None:
            tensor, shape = self.results[operand.step], self.layer.output
        else:
            assert operand.input is not None
            tensor, shape = self.inputs[operand.input], self.layer.input_shapes[operand.input]
        shared = self._shared_heads(step, operand, shape)
        if shared == 1 and lies_well(step, operand, shape, tensor.order):
            return tensor
        repeats = shared * math.prod(f.size for axis in operand.axes for f in parse_axis(axis) if f.dim is None)
        size = tensor.size * repeats if repeats > 1 else tensor.size
        copy = _Tensor(tensor.source, ("copy", number, operand.name), size, tensor.order, tensor.needs, True)
        copy.scattered = is_scattered(step, operand, shape)
        self.tape.allocate(copy.storage, copy.size)
        return copy

    def _shared_heads(self, step: Step, operand: Operand, shape: Shape) -> int:
        """Return how many heads share keys and values that attention copies for each; those of one head are views."""
        if step.form != "attention" or operand.name == "attn_mask":
            return 1
        rows = ((step.out, self.layer.output), (operand.axes, shape))
        heads = [
            math.prod(f.size for axis in sized_axes(axes[:-2], each) for f in parse_axis(axis)) for axes, each in rows
        ]
        shared = heads[0] // heads[1]
        return shared if self._heads.max() > shared else 1

    def _constant(self, number: int, constant: Constant) -> _Tensor:
        leaves = [leaf.parameter for leaf in constant.leaves() if leaf.parameter]
        trained = any(name not in self.frozen for name in leaves)
        size = self.zero + float(np.prod(constant.shape))
        storage = ("constant", number, constant.call) if constant.call and not leaves else _CONSTANT
        if storage is not _CONSTANT:
            self.tape.allocate(storage, size)
        return _Tensor(("weight", number), storage, size, (), frozenset([_WEIGHTS]) if trained else _NONE)

    @property
    def _heads(self) -> Floats:
        """Heads of attention that each part computes, the last of them perhaps in part."""
        assert isinstance(self.operation, Attention)
        return np.asarray(np.ceil(self.part.channels / self.operation.value_channels))

    def _fused(self, step: Step) -> bool:
        """Return whether attention is one kernel: not if its mask needs a gradient, or heads have gaps in them."""
        assert isinstance(self.operation, Attention)
        mask = step.operand("attn_mask")
        if not self.operation.fused:
            return False
        if mask is not None and mask.constant is not None and any(leaf.parameter for leaf in mask.constant.leaves()):
            return False
        slots = [each.input for each in step.operands if each.input is not None]
        return all(self.inputs[slot].order[-1] == "channel" for slot in slots)

    def _save(self, step: Step, operands: Mapping[str, _Tensor], result: _Tensor) -> dict[str, Floats]:
        """Save what the step's derivative reads; returns what it allocates beside gradients, of inputs and weights."""
        size, form = self.outputs, step.form
        none, whole = {_INPUTS: self.zero, _WEIGHTS: self.zero}, {_INPUTS: self.zero, _WEIGHTS: size}
        if form == "dropout" and not is_view(step):
            self.tape.index_bytes = self.tape.index_bytes + size  # which elements are dropped, a byte each
        elif form == "embedding":
            self.tape.index_bytes = self.tape.index_bytes + _INDEX_BYTES * operands["indices"].size
        elif form == "attention":
            return self._save_attention(step, operands, result)
        elif form == "norm":
            return self._save_norm(step, operands, result)
        elif form == "contract" or SAVED.get(step.call) == "factors":
            self._save_factors(operands)
            # the gradient of a factor that is broadcast is made in full, then summed
            return whole if form == "pointwise" else none
        elif form not in ("take", "join", "pad") and not is_view(step):
            self._save_values(step, operands, result)
            if step.call == "prelu":  # one kernel makes both gradients, of every element
                return {_INPUTS: size, _WEIGHTS: 2 * size}
            temporaries = TEMPORARIES.get(step.call, 0) * size
            if step.call.startswith("conv_transpose"):  # the gradient in one piece
                temporaries = size
            return {_INPUTS: temporaries, _WEIGHTS: temporaries}
        return none

    def _save_factors(self, operands: Mapping[str, _Tensor]) -> None:
        """Save the operands by which another one that needs a gradient is multiplied."""
        factors = {name: each for name, each in operands.items() if name != "bias"}
        for name, each in factors.items():
            if any(other.needs for key, other in factors.items() if key != name):
                self.tape.save(each)

    def _save_values(self, step: Step, operands: Mapping[str, _Tensor], result: _Tensor) -> None:
        """Save result, operands or condition of a step that works on single elements, or that reduces them."""
        what = SAVED.get(step.call, "first")
        if what == "result":
            self.tape.save(result)
        elif what in ("first", "operands"):
            for each in list(operands.values())[: 1 if what == "first" else None]:
                self.tape.save(each)
        elif what == "condition":  # one byte an element
            sizes = [each.size for name, each in operands.items() if name in ("condition", "mask")]
            self.tape.index_bytes = sum(sizes, self.tape.index_bytes)
        if "max_pool" in step.call:
            self.tape.index_bytes = self.tape.index_bytes + _INDEX_BYTES * self.outputs

    def _save_norm(self, step: Step, operands: Mapping[str, _Tensor], result: _Tensor) -> dict[str, Floats]:
        """Save the values and two statistics of each group; what is scaled in a step of its own, too."""
        values, size = operands["input"], self.outputs
        wide = self.widened * size
        if step.call == "rms_norm" and self.widened > 1 and values.size is size:  # it saves what it has converted
            self.tape.keep(("converted", id(result)), wide)
            self.tape.keep(("normalised", id(result)), wide)
            self.tape.note(wide)
            return {_INPUTS: 4 * wide + size, _WEIGHTS: 2 * wide}
        self.tape.save(values)
        sizes = _tuple(step.argument("normalized_shape"))
        rows = values.size / float(np.prod(sizes)) if sizes else self.part.samples
        self.tape.keep(("statistics", id(result)), (1 if step.call == "rms_norm" else 2) * rows)
        divided, squares = values.size is not size, step.call == "rms_norm"
        if not (divided or squares):
            return {_INPUTS: self.zero, _WEIGHTS: self.zero}
        if "weight" in operands:
            self.tape.keep(("normalised", id(result)), size)
        if divided:  # all values are normalised, and those of the part taken and scaled; its gradient is padded
            self.tape.note(np.maximum(values.size - size, size if "bias" in operands else 0.0))
            return {_INPUTS: values.size * (4 if squares else 1), _WEIGHTS: size}
        return {_INPUTS: 4 * size, _WEIGHTS: size}

    def _save_attention(self, step: Step, operands: Mapping[str, _Tensor], result: _Tensor) -> dict[str, Floats]:
        """Save queries, keys, values, and the output with its sums, or the weights where these are computed apart."""
        tape, size, operation = self.tape, self.outputs, self.operation
        assert isinstance(operation, Attention)
        scores = self.part.columns * self._heads
        if self._fused(step):
            for name in ("query", "key", "value"):
                tape.save(operands[name])
            tape.save(result)
            tape.keep("sums", scores)
            return {_INPUTS: self.zero, _WEIGHTS: self.zero}
        scores = scores * operation.keys
        rows = all(operands[name].copied for name in ("query", "key", "value"))
        for name, each in (("weights", scores), ("queries", size), ("keys", size)):
            tape.keep(name, each)
        if rows:  # they lie as the products read them: only what is scaled is made anew
            tape.save(operands["value"])
        else:
            tape.keep("values", size)
        if operation.drops:
            tape.keep("dropped", scores)
            tape.index_bytes = tape.index_bytes + scores
        tape.note(scores + (0.0 if rows else 2.0) * size)
        return {_INPUTS: scores + size, _WEIGHTS: 2 * scores}

    def _backward(self, target: str) -> Floats:
        """Return the most that is allocated at once for the gradients of inputs or weights, beside these."""
        gradients: dict[_Source, Floats | float] = {("step", len(self.results) - 1): 0.0}
        peak: Floats | float = 0.0
        for number, row in reversed(list(enumerate(self.tape.derivatives))):
            if target not in row.needs or ("step", number) not in gradients:
                continue
            given, made = gradients.pop(("step", number)), dict[_Source, Floats | float]()
            held: Floats | float = sum(gradients.values(), given)
            handed: Floats | float = 0.0
            for each in row.operands:
                if target in each.needs:
                    passed = row.passes and each.size is row.result and not each.copied
                    made[each.source] = given if passed else each.size
                    handed = given if passed else handed
            new = sum(made.values(), self.zero) - handed
            peak = np.maximum(peak, held + new + row.temporaries[target])
            gradients |= made
        results = sum((size for source, size in gradients.items() if source[0] != "step"), self.zero)
        return np.maximum(peak - results, 0.0)


def _tuple(given: object) -> tuple[int, ...]:
    return tuple(each for each in given if isinstance(each, int)) if isinstance(given, tuple) else ()
