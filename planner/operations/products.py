"""Products over any dimensions: with trained matrices, of two tensors, and attention."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import cast

import numpy as np

from groundwork.array_types import Floats
from groundwork.errors import ConfigError
from hwprofiles.compute.fused_kernels import FusedKernels, attention_kernels, expert_product_kernels
from hwprofiles.compute.kernels import ConvolutionWindow, Kernels
from planner.graph.operation import SavedTensors
from planner.graph.parameters import Parameter
from planner.graph.shapes import SUMMED, IntervalMap, Shape
from planner.operations.base import Part
from planner.operations.checks import check_int
from planner.operations.mapped import DIMENSIONS, Mapped
from planner.operations.matrix_work import MatrixWork, loaded_share

_SOFTMAX, _SOFTMAX_BACKWARD, _DROPOUT = 2.0, 3.0, 2.25
"""Accesses of each score by passes between the products: read and written; backward read with the weight; read, written
and a byte of a mask."""
PRODUCTS = ("matrix_product", "batched_product", "convolution_of_any_kind", "transposed_convolution", "recurrence")


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorProduct(MatrixWork, Mapped):
    """A product that sums ``depth`` terms for each output element; of two tensors, it has a gradient of either."""

    kind: str
    """One of ``PRODUCTS``."""
    depth: float
    """Multiply-adds an output element; a mean where border elements have fewer, as in transposed convolutions."""
    columns: int = 0
    """Columns of each of many small products; 0: output channels are the rows of one product.  With trained weights
    each channel has a matrix of its own, as experts have."""

    @property
    def has_experts(self) -> bool:
        """True if each channel has a trained matrix of its own."""
        return self.columns > 0 and any(weight.split for weight in self.weights)

    @property
    def _windows(self) -> Sequence[IntervalMap]:
        """Windows of a convolution over the positions of its output; none of other products."""
        maps = self.reads[0][2:] if self.kind == "convolution_of_any_kind" else ()
        return maps if [each.dim for each in maps] == [*self.dims[1:]] else ()

    @property
    def window(self) -> ConvolutionWindow | None:
        """Geometry of a convolution, as of ``Convolution``; None of other products, and of samples among positions."""
        maps = self._windows
        kernel, stride, dilation = ([getattr(m, name) for m in maps] for name in ("kernel", "stride", "dilation"))
        inside = self.reads[0][1].group_out if maps and self.reads[0][1].dim else self.sizes[0]
        return ConvolutionWindow.of(kernel, stride, dilation, self.sizes[0] // inside) if maps else None

    @property
    def _loaded_share(self) -> float:
        maps = self._windows
        return loaded_share([each.kernel for each in maps], [each.stride for each in maps])

    @property
    def sections(self) -> int:
        """Sections of the channels, such as queries, keys and values; several are the last dimension of the output."""
        return self.sizes[-1] if any(weight.sections for weight in self.weights) else 1

    def parallel_dims(self, output: Shape) -> tuple[str, ...]:
        """Return all dimensions of the output but that of sections, of which each part has all."""
        return output.dims[:-1] if self.sections > 1 else output.dims

    def __post_init__(self) -> None:
        Mapped.__post_init__(self)
        if not 0 < self.depth < float("inf"):
            raise ConfigError(f"{self.kind}.depth must be > 0 and finite, got {self.depth!r}")
        check_int(f"{self.kind}.columns", self.columns, 0)
        if self.kind not in PRODUCTS:
            raise ConfigError(f"kind of a product must be one of {', '.join(PRODUCTS)}, got {self.kind!r}")

    @property
    def expert_features(self) -> str:
        """Dimension of the columns of the experts' matrices; empty where each part has whole matrices."""
        return self.dims[-1] if self._expert_axes else ""

    @property
    def _expert_axes(self) -> tuple[tuple[str | None, ...], str] | None:
        """Index of each axis of the experts' matrices, by labels of the product, and what is summed of its input."""
        if not self.has_experts or not len(self.computes) == len(self.weights) == 1:
            return None
        step = self.computes[0]
        one, two = step.operand("one"), step.operand("two")
        trained = two.constant.parameter if two is not None and two.constant is not None else ""
        if step.form != "contract" or one is None or trained != self.weights[0].name:
            return None
        first, second, out = (cast(tuple[str, ...], step.argument(name)) for name in ("first", "second", "out"))
        dims = dict(zip(out, step.out, strict=True))
        indices = tuple(dims.get(label, SUMMED) for label in second)
        read = dict(zip(first, one.axes, strict=True)).get(second[indices.index(SUMMED)]) if SUMMED in indices else None
        known = sorted(indices) == sorted(("channel", SUMMED, self.dims[-1])) and step.out[-1] == self.dims[-1]
        return (indices, read) if known and read in DIMENSIONS else None

    def summed_size(self, inputs: Sequence[Shape]) -> int:
        """Return the input channels where all of them, and nothing else, are summed over with one matrix.

        Of experts, which have a matrix each, these are the features of their rows.
        """
        if self._expert_axes:
            return inputs[0].size(self._expert_axes[1])
        matrices = [weight for weight in self.weights if len(weight.module_shape) > 1]
        if self.kind != "matrix_product" or self.columns or len(self.reads) != 1 or len(matrices) != 1:
            return 0
        (weight,), size = matrices, inputs[0].size("channel")
        plain = self.reads[0][1] == IntervalMap(dim=None) and weight.split and len(weight.module_shape) == 2
        return size if plain and self.depth == weight.shape[_summed_axis(weight)] == size else 0

    def interval_maps(self, slot: int, inputs: Sequence[Shape]) -> tuple[IntervalMap, ...]:
        """Return the listed maps, and that of what is summed over."""
        maps, experts = self.reads[slot], self._expert_axes
        if not self.summed_size(inputs):
            return maps
        place = inputs[slot].dims.index(experts[1] if experts else "channel")
        return (*maps[:place], IntervalMap(dim=SUMMED), *maps[place + 1 :])

    def parameters(self, inputs: Sequence[Shape]) -> tuple[Parameter, ...]:
        """Return the listed tensors; the rows of a matrix are those of the index that is summed over."""
        if experts := self._expert_axes:
            return (replace(self.weights[0], indices=experts[0]),)
        if not self.summed_size(inputs):
            return self.weights
        return tuple(_summing(each) if len(each.module_shape) == 2 else each for each in self.weights)

    def saved_tensors(self, part: Part) -> SavedTensors:
        """Return the inputs, which both gradients read."""
        return SavedTensors(inputs=True)

    def fused_kernels(
        self, phase: str, inputs: Sequence[Shape], output: Shape, part: dict[str, Floats], element_bytes: int
    ) -> FusedKernels | None:
        """Return the kernel of all experts of a part in a phase; that of an activation gradient has rows of inputs."""
        if not self.has_experts or phase == "update":
            return None
        held = Part(tuple(inputs), output, part)
        rows = self._rows(held)
        sizes = held.outputs * 0.0 + self.depth / held.slices, held.outputs * 0.0 + rows
        depth, columns = sizes[::-1] if phase == "activation_gradient" else sizes
        return expert_product_kernels(
            rows=held.outputs / rows,
            depth=depth,
            columns=columns,
            experts=held.channels,
            element_bytes=element_bytes,
        )

    def _activation_gradient(self, part: Part) -> Kernels:
        if not self.weights:
            return _times(self._forward(part), 2.0)
        return MatrixWork._activation_gradient(self, part)

    def _rows(self, part: Part) -> Floats | float:
        """Return the channels of all sections of each part, or the columns of one of many products."""
        if self.expert_features:
            return part.sizes[self.expert_features]
        return float(self.columns) if self.columns else part.channels * float(self.sections)

    def _depth(self, part: Part) -> Floats | float:
        """Return the terms of each sum, of which each part may have a slice."""
        return self.depth / part.slices

    def _matrices(self, part: Part) -> Floats | float:
        """Return the channels of each part where each has a matrix of its own."""
        return part.channels if self.columns else 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Attention(Mapped):
    """Scaled dot-product attention, as one kernel that never writes the weights of the positions to memory, or apart.

    Work: of a head and a query, 2 x keys x (head channels of keys + of values).  A part that holds a share of a head
    computes the weights of the whole head.  The backward kernel computes them once more: 5 products for 2.
    Traffic: queries, keys, values and outputs once; backward also their gradients.  FLOP count all keys, as is usual;
    the fused kernel leaves out what a causal mask does.
    Apart, the scores of all pairs of positions lie in memory: one product writes them and one reads the weights, four
    do so backward; softmax and dropout are passes between, and the weights are kept for the backward pass.

    Source:
        Dao et al., "FlashAttention", NeurIPS 2022, Algorithms 0, 1 and 4.
    """

    kind: str = "attention"
    keys: int
    """Positions that each query reads."""
    key_channels: int
    """Channels of a head of queries and keys."""
    value_channels: int
    """Channels of a head of values and of the output."""
    causal: bool = False
    """True if queries read no later keys."""
    fused: bool = field(default=True, repr=False)
    """True if it is one kernel, which is for the software to say, not for the network."""
    repeats: bool = field(default=False, repr=False)
    """True if keys and values that several heads share are first copied for each of them, as the software says."""
    zigzag: int = field(default=1, repr=False)
    """Parts in whose zigzag order positions lie (``planner.strategies.zigzag``), which a plan says; 1: as they are."""

    @property
    def drops(self) -> bool:
        """True if training drops weights."""
        return any(step.form == "attention" and step.argument("dropout_p") for step in self.computes)

    def __post_init__(self) -> None:
        Mapped.__post_init__(self)
        for name in ("keys", "key_channels", "value_channels"):
            check_int(f"attention.{name}", getattr(self, name), 1)

    def head_counts(self, inputs: Sequence[Shape], output: Shape) -> tuple[int, int]:
        """Return the heads of queries and of keys of the whole layer."""
        whole = {dim: np.array([float(size)]) for dim, size in zip(output.dims, output.sizes, strict=True)}
        part = Part(tuple(inputs), output, whole)
        return int(self._heads(part)[0]), int(self._key_heads(part)[0])

    def saved_tensors(self, part: Part) -> SavedTensors:
        """Return queries, keys, values, and the output with each query's logarithm of its sum, or all weights."""
        if not self.fused:
            scores = self._scores(part)  # also what dropout leaves of the weights, and a byte for each that it kept
            return SavedTensors(inputs=True, elements=(1 + self.drops) * scores, index_bytes=self.drops * scores)
        return SavedTensors(inputs=True, output=True, elements=part.columns * self._heads(part))

    def fused_kernels(
        self, phase: str, inputs: Sequence[Shape], output: Shape, part: dict[str, Floats], element_bytes: int
    ) -> FusedKernels | None:
        """Return the kernel of the forward pass, or that of the backward pass in which all gradients are computed.

        Where queries read no later keys, the part with the last q of k positions reads 1 - q / 2k of them all: it is
        the slowest, and sets the price of all parts.  Parts of a zigzag order read half of them each.
        """
        if not self.fused or phase not in ("forward", "activation_gradient"):
            return None
        held = Part(tuple(inputs), output, part)
        heads = self._heads(held)
        queries = held.columns / held.samples
        kernels = attention_kernels(
            samples=held.samples,
            heads=heads,
            key_heads=self._key_heads(held),
            queries=queries,
            keys=np.full_like(heads, self.keys),
            head_size=np.minimum(held.channels, self.value_channels),
            causal=False,
            element_bytes=element_bytes,
            phase="forward" if phase == "forward" else "backward",
        )
        if not self.causal:
            return kernels
        equal = (self.zigzag > 1) & (queries % (self.keys / self.zigzag) == 0)
        share = np.where(equal, 0.5, np.maximum(1.0 - queries / (2.0 * self.keys), 0.5))
        return replace(kernels, flop=kernels.flop * share)

    def repeated_elements(self, part: Part) -> Floats:
        """Return the elements that copies of keys for each head, and so those of values, read and write; 0 if none."""
        heads, shared = self._heads(part), self._key_heads(part)
        copied = (heads + shared) * part.samples * float(self.keys * self.key_channels)
        return np.where(heads > shared, copied, 0.0) if self.repeats else 0.0 * heads

    def _heads(self, part: Part) -> Floats:
        """Return the heads of which each part computes the weights."""
        return np.ceil(part.channels / self.value_channels)

    def _key_heads(self, part: Part) -> Floats:
        """Return the heads of keys that each part reads: fewer than of queries where groups of these share them."""
        heads = self._heads(part)
        if len(self.reads) < 3:  # queries, keys and values in one tensor
            return heads
        return np.minimum(heads, self.read_elements(part, 1) / (part.samples * self.keys * self.key_channels))

    def _scores(self, part: Part) -> Floats:
        """Return the weights of all heads, queries and keys of each part."""
        return part.columns * self._heads(part) * float(self.keys)

    def _forward(self, part: Part) -> Kernels:
        return self._work(part, products=1.0, softmax=_SOFTMAX)

    def _activation_gradient(self, part: Part) -> Kernels:
        return self._work(part, products=2.0 if not self.fused else 2.5, softmax=_SOFTMAX_BACKWARD)

    def _work(self, part: Part, *, products: float, softmax: float) -> Kernels:
        """Return so many times both products and, where they are apart, the passes over the scores between them."""
        elements, streamed = self.all_inputs(part) + part.outputs, 0.0 * part.outputs
        if not self.fused:
            elements = elements + 2.0 * self._scores(part)
            streamed = self._scores(part) * (softmax + (_DROPOUT if self.drops else 0.0))
        depth = self.keys * (1.0 + self._heads(part) * self.key_channels / part.channels)
        width = np.minimum(part.channels, self.value_channels)
        columns = part.outputs / width
        work = part.matrix(rows=width, columns=columns, depth=depth, elements=elements, streamed=streamed)
        return _times(work, products)

    def _weight_gradient(self, part: Part) -> Kernels:
        # a trained bias of the positions, such as relative ones, sums what the backward kernel writes
        return part.streaming(flop=0.0, elements=2.0 * self.held_elements(part))


def _summed_axis(matrix: Parameter) -> int:
    """Return the axis of a matrix that is summed over: behind that of the channels, or the first one."""
    return (matrix.axis + 1) % len(matrix.shape)


def _summing(matrix: Parameter) -> Parameter:
    """Return a matrix whose rows are those of the index that is summed over."""
    axis, indices = _summed_axis(matrix), [*matrix.indices, None][: len(matrix.shape)]
    return replace(matrix, indices=(*indices[:axis], SUMMED, *indices[axis + 1 :]))


def _times(work: Kernels, factor: float) -> Kernels:
    """Return so many kernels, priced as one: each size stays, FLOP and traffic grow."""
    return replace(work, flop=work.flop * factor, memory_bytes=work.memory_bytes * factor)
