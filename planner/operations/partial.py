"""A layer whose input channels are split: partial sums over slices of them, and the layer that adds those up."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from hwprofiles import Floats
from hwprofiles.compute import Kernels
from planner.graph import IN_CHANNEL, Kept, Layer, Need, Parameter, Shape
from planner.operations.base import OperationBase, Part
from planner.operations.convolution import Convolution
from planner.operations.linear import Linear

__all__ = ["PartialProduct", "PartialSum", "Reducing", "undivided"]

Reducing = Convolution | Linear
"""Kinds of layers that sum over their input channels; of convolutions, those of one group."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartialProduct:
    """The product of a convolution or a fully connected layer, with a sum of its own for each slice of the channels.

    The output has the dimension ``in_channel``: index j holds the sums over the j-th of ``slices`` equal slices of
    the input channels.  A part for index j reads that slice alone, and holds that slice of the weights.

    Work: that of the layer on one slice, for each slice, without what follows the product.
    """

    operation: Reducing
    """The undivided layer's."""
    slices: int

    @property
    def kind(self) -> str:
        """The undivided layer's, partial."""
        return f"partial {self.operation.kind}"

    @property
    def product(self) -> Reducing:
        """The layer's product alone."""
        if isinstance(self.operation, Convolution):
            return replace(self.operation, bias=False, batch_norm=False, activation=None)
        return replace(self.operation, bias=False, activation=None, dropout=0.0)

    @property
    def winograd(self) -> bool:
        """As the undivided layer."""
        return self.operation.winograd

    @property
    def statistics(self) -> int:
        """The sum normalises."""
        return 0

    def sliced(self, inputs: Sequence[Shape]) -> tuple[Shape, ...]:
        """Shape of the input with one slice of its channels."""
        (shape,) = inputs
        return (Shape(shape.dims, (shape.sizes[0], shape.size("channel") // self.slices, *shape.positions)),)

    def output(self, inputs: Sequence[Shape]) -> Shape:
        """The undivided layer's, with the slices behind the channels."""
        whole = self.operation.output(inputs)
        return Shape((*whole.dims[:2], IN_CHANNEL, *whole.dims[2:]), (*whole.sizes[:2], self.slices, *whole.positions))

    def parallel_dims(self, output: Shape) -> tuple[str, ...]:
        """All dimensions of the output."""
        return output.dims

    def needs(self, slot: int, inputs: Sequence[Shape]) -> tuple[Need, ...]:
        """What the undivided layer needs, of a slice of the channels."""
        sample, _, *positions = self.operation.needs(slot, inputs)
        return (sample, Need(dim=IN_CHANNEL, group_in=self.sliced(inputs)[0].size("channel")), *positions)

    def parameters(self, inputs: Sequence[Shape]) -> tuple[Parameter, ...]:
        """The undivided layer's weights, split with its channels and with the slices."""
        return self.product.parameters(inputs)

    def kept(self, part: Part) -> Kept:
        """The slice of the input."""
        return Kept(inputs=True)

    def kernels(self, phase: str, inputs: Sequence[Shape], output: Shape, part: dict[str, Floats]) -> Kernels:
        """Work of parts of the given sizes, shape (C,), in one of ``LAYER_PHASES``."""
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
    """The sum of a layer's partial sums, then all that follows the product in the undivided layer.

    Traffic: forward the partial sums and the output once, then the passes of what follows.  Each partial sum has the
    gradient of the output, which only what follows touches.
    """

    kind: ClassVar[str] = "partial sum"
    operation: Reducing
    """The undivided layer's."""

    @property
    def statistics(self) -> int:
        """Sums over the batch where the layer normalises."""
        return self.operation.statistics

    def output(self, inputs: Sequence[Shape]) -> Shape:
        """The undivided layer's: without the slices."""
        (shape,) = inputs
        return Shape((*shape.dims[:2], *shape.dims[3:]), (*shape.sizes[:2], *shape.positions))

    def needs(self, slot: int, inputs: Sequence[Shape]) -> tuple[Need, ...]:
        """The same part of all partial sums."""
        return tuple(Need(dim=None if dim == IN_CHANNEL else dim) for dim in inputs[slot].dims)

    def parameters(self, inputs: Sequence[Shape]) -> tuple[Parameter, ...]:
        """Those of the undivided layer but its weights: bias, and scale and shift of a normalisation."""
        return tuple(p for p in self.operation.parameters(inputs) if p.name != "weight")

    def kept(self, part: Part) -> Kept:
        """What the undivided layer keeps, without its input."""
        return replace(self.operation.kept(part), inputs=False, passes_on=True)

    def _forward(self, part: Part) -> Kernels:
        count, (passes, _) = part.inputs[0].size(IN_CHANNEL), self.operation.passes
        return part.streaming(flop=(count - 1) * part.outputs, elements=(count + 1 + passes) * part.outputs)

    def _activation_gradient(self, part: Part) -> Kernels:
        _, passes = self.operation.passes
        touched = part.outputs if passes else 0.0 * part.outputs
        return part.streaming(flop=touched, elements=passes * part.outputs)


def undivided(layer: Layer) -> Layer | None:
    """The layer whose partial sums a layer makes; None for other layers."""
    if not isinstance(layer.operation, PartialProduct):
        return None
    whole = layer.operation.operation
    return replace(layer, operation=whole, output=whole.output(layer.input_shapes))
