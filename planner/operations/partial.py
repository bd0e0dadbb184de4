"""Layers that replace one whose input channels are split: partial sums over slices of them, and the total."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from groundwork.array_types import Floats
from hwprofiles.compute.kernels import Kernels
from planner.graph.computation_graph import Layer, SavedTensors
from planner.graph.parameters import Parameter
from planner.graph.shapes import IN_CHANNEL, IntervalMap, Shape
from planner.operations.base import OperationBase, Part
from planner.operations.convolution import Convolution
from planner.operations.linear import Linear

Reducing = Convolution | Linear
"""Kinds of layers that sum over their input channels; of convolutions, those of one group."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartialProduct:
    """Product of a convolution or a fully connected layer, with a separate sum for each slice of the input channels.

    The output has the dimension ``in_channel``: index j holds the sums over the j-th of ``slices`` equal slices of
    the input channels.  A part for index j reads that slice alone, and holds that slice of the weights.

    Work: that of the layer on one slice, for each slice, without the epilogue.
    """

    operation: Reducing
    """Operation of the undivided layer."""
    slices: int
    """Equal slices of the input channels."""

    @property
    def kind(self) -> str:
        """Name of the kind: ``partial`` and the kind of the undivided layer."""
        return f"partial {self.operation.kind}"

    @property
    def product(self) -> Reducing:
        """Operation of the undivided layer without bias and epilogue."""
        if isinstance(self.operation, Convolution):
            return replace(self.operation, bias=False, batch_norm=False, activation=None)
        return replace(self.operation, bias=False, activation=None, dropout=0.0)

    @property
    def winograd(self) -> bool:
        """True if libraries compute the undivided layer with Winograd's algorithm."""
        return self.operation.winograd

    @property
    def reads_rows(self) -> bool:
        """True if the undivided layer reads an input with its channels innermost."""
        return self.operation.reads_rows

    @property
    def statistics(self) -> int:
        """Elements a channel that are summed over the batch: none, the ``PartialSum`` normalises."""
        return 0

    @property
    def row_statistics(self) -> int:
        """Elements that parts of the channels gather of each row: none."""
        return 0

    def sliced(self, inputs: Sequence[Shape]) -> tuple[Shape, ...]:
        """Return the shape of the input with one slice of its channels."""
        (shape,) = inputs
        return (Shape(shape.dims, (shape.sizes[0], shape.size("channel") // self.slices, *shape.positions)),)

    def output(self, inputs: Sequence[Shape]) -> Shape:
        """Return the output of the undivided layer, with the slices as a dimension behind the channels."""
        whole = self.operation.output(inputs)
        return Shape((*whole.dims[:2], IN_CHANNEL, *whole.dims[2:]), (*whole.sizes[:2], self.slices, *whole.positions))

    def parallel_dims(self, output: Shape) -> tuple[str, ...]:
        """Return all dimensions of the output."""
        return output.dims

    def summed_size(self, inputs: Sequence[Shape]) -> int:
        """Return 0: the slices are a dimension of the output."""
        return 0

    def interval_maps(self, slot: int, inputs: Sequence[Shape]) -> tuple[IntervalMap, ...]:
        """Return the maps of the undivided layer, but one slice of the channels."""
        sample, _, *positions = self.operation.interval_maps(slot, inputs)
        return (sample, IntervalMap(dim=IN_CHANNEL, group_in=self.sliced(inputs)[0].size("channel")), *positions)

    def parameters(self, inputs: Sequence[Shape]) -> tuple[Parameter, ...]:
        """Return the weights of the undivided layer, split with its channels and with the slices."""
        return self.product.parameters(inputs)

    def saved_tensors(self, part: Part) -> SavedTensors:
        """Return the slice of the input."""
        return SavedTensors(inputs=True)

    def fused_kernels(
        self, phase: str, inputs: Sequence[Shape], output: Shape, part: dict[str, Floats], element_bytes: int
    ) -> None:
        """Return None: profiles have measured no fused kernels of partial sums."""

    def kernels(self, phase: str, inputs: Sequence[Shape], output: Shape, part: dict[str, Floats]) -> Kernels:
        """Return the work of parts of the output in one phase.

        Args:
            phase: One of ``LAYER_PHASES``.
            inputs: Whole shapes of the inputs.
            output: Whole shape of the output.
            part: For every dimension of the output, the sizes of the parts, shape (C,) each.

        Returns:
            Kernels of shape (C,).
        """
        slices, sliced = part[IN_CHANNEL], self.sliced(inputs)
        rest = {dim: size for dim, size in part.items() if dim != IN_CHANNEL}
        work = self.product.kernels(phase, sliced, self.product.output(sliced), rest)
        return replace(
            work,
            flop=work.flop * slices,
            memory_bytes=work.memory_bytes * slices,
            streamed_bytes=work.streamed_bytes * slices,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class PartialSum(OperationBase):
    """Sum of a layer's partial sums, with the epilogue of the undivided layer.

    Traffic: forward the partial sums and the output once, then the passes of the epilogue.  The gradient of each
    partial sum is that of the output, behind which only the epilogue computes.
    """

    kind: ClassVar[str] = "partial sum"
    operation: Reducing
    """Operation of the undivided layer."""

    @property
    def statistics(self) -> int:
        """Elements a channel that the epilogue sums over the batch."""
        return self.operation.statistics

    def output(self, inputs: Sequence[Shape]) -> Shape:
        """Return the output of the undivided layer: without the slices."""
        (shape,) = inputs
        return Shape((*shape.dims[:2], *shape.dims[3:]), (*shape.sizes[:2], *shape.positions))

    def interval_maps(self, slot: int, inputs: Sequence[Shape]) -> tuple[IntervalMap, ...]:
        """Return the same interval of the partial sums over all slices."""
        return tuple(IntervalMap(dim=None if dim == IN_CHANNEL else dim) for dim in inputs[slot].dims)

    def parameters(self, inputs: Sequence[Shape]) -> tuple[Parameter, ...]:
        """Return the parameters of the undivided layer but its weights: bias, scale and shift of a normalisation."""
        return tuple(p for p in self.operation.parameters(inputs) if p.name != "weight")

    def saved_tensors(self, part: Part) -> SavedTensors:
        """Return the tensors that the undivided layer keeps, without its input."""
        return replace(self.operation.saved_tensors(part), inputs=False, passes_on=True)

    def _forward(self, part: Part) -> Kernels:
        count, (passes, _) = part.inputs[0].size(IN_CHANNEL), self.operation.passes
        return part.streaming(flop=(count - 1) * part.outputs, elements=(count + 1 + passes) * part.outputs)

    def _activation_gradient(self, part: Part) -> Kernels:
        _, passes = self.operation.passes
        touched = part.outputs if passes else 0.0 * part.outputs
        return part.streaming(flop=touched, elements=passes * part.outputs)


def undivided(layer: Layer) -> Layer | None:
    """Return the layer whose partial sums a layer computes; None for other layers."""
    if not isinstance(layer.operation, PartialProduct):
        return None
    whole = layer.operation.operation
    return replace(layer, operation=whole, output=whole.output(layer.input_shapes))
