"""Kernels of layers where nothing joins them: one for each call of PyTorch, forward, and those of its derivative.

A chain of elementwise calls, x * tanh(x), whose kernels read and write an element of x so many times::

    forward     t = tanh(x)     2        backward    dt = g * x          3
                y = x * t       3                    dx = g * t          3
                                                     dx' = dt (1 - t^2)  3
                                                     dx + dx'            3

Loss functions compute in float32, whatever the data type of the scores: these and their gradient are converted.

Source:
    pytorch/pytorch, aten/src/ATen/native/cuda/SoftMax.cu: kernels of log_softmax and of its derivative, which read long
    rows several times.
    pytorch/pytorch, torch/csrc/autograd/FunctionsManual.cpp, split_backward: gradients of slices are joined by cat;
    aten/src/ATen/native/cuda/DilatedMaxPool2d.cu: indices of the largest values, 8 bytes each, are written and read.
    NVIDIA/Megatron-LM, megatron/mpu/cross_entropy.py: calls of the loss of a divided vocabulary.
"""

from collections.abc import Mapping

import numpy as np

from groundwork.array_types import Floats
from planner.derivatives.element_order import is_view
from planner.derivatives.saved_values import PASSED_ON, SAVED, TEMPORARIES
from planner.graph.computation_graph import ComputationGraph, Layer
from planner.graph.data_sources import is_data
from planner.operations.base import ELEMENT_BYTES, INDEX_BYTES, Part
from planner.operations.computation import Operand, Step
from planner.operations.convolution import Convolution
from planner.operations.joining import Add
from planner.operations.linear import Linear
from planner.operations.loss import Loss
from planner.operations.normalisation import BatchNorm
from planner.operations.pooling import Pooling
from planner.operations.products import Attention
from planner.operations.rearrangement import VIEWS
from planner.operations.streaming import Elementwise

_ATTENTION_BACKWARD = 3
"""Kernels of fused attention's backward pass: sums of output times gradient, all gradients, those of queries rounded.
"""
_ROW_ELEMENTS = 1024
"""Elements of the longest row that PyTorch's kernels of a softmax keep in registers; longer ones are read for their
maximum, again for the sum of exponentials (or of gradients), and once more for the result."""
_LABEL_CALLS = 12, 6
"""Kernels on one element a position, forward and backward, of the loss of a divided vocabulary: which labels lie here,
their scores, the logarithm of the sum."""
_NO_GRADIENT = frozenset(name for name, what in SAVED.items() if not what) - PASSED_ON - {"neg", "rsub"}
"""Calls whose result does not change with small changes of their operands."""


def eager_bytes(
    layer: Layer, phase: str, part: Mapping[str, Floats], element_bytes: int, *, fused: bool
) -> list[Floats] | None:
    """Return the bytes that each kernel of one part of a layer reads and writes, shape (1,) each.

    Args:
        layer: The layer.
        phase: ``forward`` or ``activation_gradient``; gradients of parameters are reductions of their own.
        part: Sizes of the part by dimension, shape (1,) each: which kernels there are depends on them.
        element_bytes: Bytes of an element in memory.
        fused: Whether a chain of elementwise calls is one kernel.

    Returns:
        None for layers that are one kernel in each phase.
    """
    operation, held = layer.operation, Part(layer.input_shapes, layer.output, dict(part))
    if isinstance(operation, Loss) and operation.calls:
        return _loss_bytes(operation, phase, held, element_bytes)
    if not fused and isinstance(operation, Pooling) and operation.mode == "max":
        read = operation.read_elements(held) * float(element_bytes)
        moved = read + held.outputs * float(element_bytes + INDEX_BYTES)
        return [moved] if phase == "forward" else [read, moved]  # a gradient is set to zero, then added to
    if not fused and isinstance(operation, Elementwise) and len(operation.computes) > 1:
        chain = _Chain(layer, operation, held, element_bytes)
        return chain.forward if phase == "forward" else chain.backward()
    return None


def gradient_accesses(graph: ComputationGraph, index: int) -> tuple[float, ...]:
    """Return the accesses of each element of a layer's output by every kernel that makes one gradient of several.

    Gradients by different layers that read it are added, two at a time; views of it share one, and slices of it are
    joined to one.
    """
    kinds = [graph.layers[edge.consumer].operation.kind for edge in graph.consumers[index]]
    viewed = [kind in VIEWS for kind in kinds]
    gradients = viewed.count(False) + any(viewed)
    return (2.0,) * (kinds.count("slice") > 1) + (3.0,) * (gradients - 1)


def gradients_added_in(graph: ComputationGraph, index: int) -> str:
    """Return the phase of a layer that begins with these kernels: its first backward one."""
    return "activation_gradient" if graph.has_phase(index, "activation_gradient") else "weight_gradient"


def launched_kernels(
    graph: ComputationGraph, index: int, phase: str, *, fused: bool, part: Mapping[str, Floats] | None = None
) -> int:
    """Return the number of kernels that a host launches for a layer in one phase, sums of gradients before it included.

    Args:
        graph: The network.
        index: The layer.
        phase: One of ``LAYER_PHASES``.
        fused: Whether a chain of elementwise calls is one kernel, and gradients are added where they are made.
        part: Sizes of a part of the layer, shape (1,) each; None: all of it.
    """
    sums = () if fused or phase != gradients_added_in(graph, index) else gradient_accesses(graph, index)
    return len(sums) + kernel_count(
        graph.layers[index], phase, fused=fused, element_bytes=graph.element_bytes, part=part
    )


def kernel_count(
    layer: Layer,
    phase: str,
    *,
    fused: bool,
    element_bytes: int = ELEMENT_BYTES,
    part: Mapping[str, Floats] | None = None,
) -> int:
    """Return the number of kernels of a part of a layer in one phase.

    Updates count as none: one kernel updates the parameters of dozens of layers.

    Args:
        layer: The layer.
        phase: One of ``LAYER_PHASES``.
        fused: Whether a chain of elementwise calls is one kernel.
        element_bytes: Bytes of an element in memory.
        part: Sizes of the part, shape (1,) each; None: all of the layer.
    """
    if phase == "update":
        return 0
    whole = {dim: np.array([float(layer.output.size(dim))]) for dim in layer.output.dims}
    each = None if phase == "weight_gradient" else eager_bytes(layer, phase, part or whole, element_bytes, fused=fused)
    if each is not None:
        return len(each)
    work = layer.kernels(phase, whole)
    if not (work.flop + work.memory_bytes + work.streamed_bytes).any():
        return 0
    operation = layer.operation
    if phase == "weight_gradient":  # one for each tensor, but one for scale and shift of a normalisation
        return 1 if isinstance(operation, BatchNorm) else len(layer.parameters)
    if isinstance(operation, Attention):  # apart: products, softmax and dropout
        repeated = operation.repeated_elements(Part(layer.input_shapes, layer.output, dict(part or whole)))
        copies = 2 * int(bool((repeated > 0).any()))  # keys and values
        if not operation.fused:
            return (3 if phase == "forward" else 5) + operation.drops + copies
        return (1 if phase == "forward" else _ATTENTION_BACKWARD) + copies
    epilogue = ("batch_norm", "activation", "dropout") if isinstance(operation, Convolution | Linear | Add) else ()
    return 1 + sum(bool(getattr(operation, name, None)) for name in epilogue)


def _loss_bytes(operation: Loss, phase: str, part: Part, element_bytes: int) -> list[Floats]:
    """Return the bytes that each kernel of a cross-entropy in float32 moves; those of single words count as none.

    PyTorch's function.  Forward: scores are converted, the logarithms of their softmax computed, the labels' taken.
    Backward: a gradient of these is set to zero but for the labels', that of the scores computed from both, and
    converted.

    That of a vocabulary that may be divided.  Forward: scores are converted; their maximum is found, subtracted,
    exponentials taken and summed, and divided by the sum.  Backward: one is subtracted at the labels, the result
    multiplied by the gradient of the loss and converted.
    """
    scores = part.outputs * float(ELEMENT_BYTES)
    converted = [part.outputs * float(element_bytes + ELEMENT_BYTES)] if element_bytes < ELEMENT_BYTES else []
    again = np.where(part.channels > _ROW_ELEMENTS, 1.0, 0.0)
    word = 0.0 * scores
    if operation.by_own_calls(part).all():
        if phase == "forward":
            return [*converted, (2.0 + 2.0 * again) * scores, word]
        return [scores, word, (3.0 + again) * scores, *converted]
    if phase == "forward":
        return [*converted, scores, 2.0 * scores, 2.0 * scores, scores, 2.0 * scores, *[word] * _LABEL_CALLS[0]]
    return [*[word] * _LABEL_CALLS[1], 2.0 * scores, *converted]


class _Chain:
    """Kernels of a chain of elementwise calls; sizes are by part, in elements."""

    def __init__(self, layer: Layer, operation: Elementwise, part: Part, element_bytes: int) -> None:
        self._layer, self._steps, self._part, self._bytes = layer, operation.computes, part, element_bytes
        self._inputs = [operation.read_elements(part, slot) for slot in range(len(layer.inputs))]
        self._results: list[Floats] = []
        self.forward: list[Floats] = []
        """Bytes of the forward kernels."""
        for step in self._steps:
            read = [self._size(each) for each in step.operands]
            last = len(self._results) == len(self._steps) - 1
            size = part.outputs if last else np.maximum.reduce([0.0 * part.outputs, *read])
            self._results.append(size)
            if not is_view(step):
                mask = size if step.form == "dropout" else 0.0
                self.forward.append(self._moved(sum(read, size)) + mask)

    def backward(self) -> list[Floats]:
        """Return the bytes of the kernels that compute the gradients of the inputs."""
        moved: list[Floats] = []
        brought: dict[tuple[str, int], int] = {("step", len(self._steps) - 1): 1}
        for number, step in reversed(list(enumerate(self._steps))):
            count = brought.pop(("step", number), 0)
            if not count or step.call in _NO_GRADIENT:
                continue
            moved += [self._moved(3.0 * self._results[number])] * (count - 1)  # gradients by several ways are added
            for operand in step.operands:
                source = self._source(operand)
                if source is not None:
                    brought[source] = brought.get(source, 0) + 1
                    moved += self._derivative(step, operand, self._results[number])
        return moved + [
            self._moved(3.0 * self._inputs[slot]) for (_, slot), count in brought.items() for _ in range(count - 1)
        ]

    def _derivative(self, step: Step, operand: Operand, size: Floats) -> list[Floats]:
        """Return the bytes of the kernels that compute the gradient of an operand from that of a result."""
        own, what = self._size(operand), SAVED.get(step.call, "first")
        kernels: list[Floats] = []
        if step.form == "dropout" or what == "condition":
            kernels = [] if is_view(step) else [self._moved(2.0 * size) + size]  # a mask of a byte an element
        elif what == "factors":
            others = sum((self._size(each) for each in step.operands if each is not operand), 0.0 * size)
            kernels = [self._moved(2.0 * size + others)]
        elif what == "operands":
            kernels = [self._moved(2.0 * size + sum(self._size(each) for each in step.operands))]
        elif what:
            kernels = [self._moved(2.0 * size)] * TEMPORARIES.get(step.call, 0) + [self._moved(3.0 * size)]
        elif step.call not in PASSED_ON:
            kernels = [self._moved(2.0 * size)]
        if np.any(own < size):  # it was broadcast: its gradient is a sum
            kernels.append(self._moved(size + own))
        return kernels

    def _source(self, operand: Operand) -> tuple[str, int] | None:
        """Return the tensor whose gradient an operand's gradient is a term of; None for data and constants."""
        if operand.step is not None:
            return "step", operand.step
        if operand.input is None or is_data(self._layer.inputs[operand.input]):
            return None
        return "input", operand.input

    def _size(self, operand: Operand) -> Floats:
        """Return the elements that an operand has in memory."""
        if operand.step is not None:
            return self._results[operand.step]
        if operand.input is not None:
            return self._inputs[operand.input]
        assert operand.constant is not None
        return 0.0 * self._part.outputs + float(np.prod(operand.constant.shape))

    def _moved(self, elements: Floats) -> Floats:
        """Return the bytes of elements."""
        return np.asarray(elements * float(self._bytes))
