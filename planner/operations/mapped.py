"""Base of operations that state what they read: the interval of every input dimension, one by one."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import cast

from groundwork.array_types import Floats
from groundwork.errors import ConfigError
from hwprofiles.compute.kernels import Kernels
from planner.graph.operation import Operation
from planner.graph.parameters import Parameter
from planner.graph.shapes import IntervalMap, Shape
from planner.operations.base import OperationBase, Part
from planner.operations.checks import check_int, shape_text
from planner.operations.computation import Step

DIMENSIONS = ("channel", "length", "depth", "height", "width")
"""Dimensions behind the samples, in the order of a shape."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mapped(OperationBase):
    """An operation that lists its output's sizes and the map of every dimension of every input.

    Imported networks divide, merge and transpose dimensions between operations.  The importer follows that and writes
    down, for each dimension of what a layer reads, which interval of its output's dimensions reads which interval.
    """

    dims: tuple[str, ...]
    """Dimensions of the output behind the samples: ``channel``, then the positions."""
    sizes: tuple[int, ...]
    """Their sizes."""
    reads: tuple[tuple[IntervalMap, ...], ...]
    """For each input, the map of each of its dimensions."""
    weights: tuple[Parameter, ...] = ()
    """Trained tensors."""
    computes: tuple[Step, ...] = field(default=(), repr=False)
    """What it computes, step by step; the last step's result is the output.  Empty: it can be planned only."""

    @property
    def _kind(self) -> str:
        """Name of the kind, which the class or a field gives."""
        return cast(Operation, self).kind

    def __post_init__(self) -> None:
        if self.dims[:1] != ("channel",) or len(self.dims) != len(self.sizes) or not set(self.dims) <= {*DIMENSIONS}:
            raise ConfigError(
                f"{self._kind}.dims must be channel and up to three positions, with as many sizes, got "
                f"{list(self.dims)} and {list(self.sizes)}"
            )
        for size in self.sizes:
            check_int(f"{self._kind}.sizes", size, 1)
        for weight in self.weights:
            counted = weight.axis and len(self.sizes) > 1 and weight.shape[weight.axis - 1] == self.sizes[-1]
            if weight.sections and not counted:
                raise ConfigError(
                    f"{self._kind}: axis of parameter {weight.name} must be behind one of its sections, of which the "
                    f"last dimension has {self.sizes[-1]}, got {weight.axis} of {list(weight.shape)}"
                )
        known = {None, "sample", *self.dims}
        for maps in self.reads:
            for each in maps:
                if each.dim not in known:
                    raise ConfigError(f"{self._kind}.reads must name dimensions of the output, got {each.dim!r}")

    @property
    def reads_rows(self) -> bool:
        """True if a step reads an input with its channels innermost."""
        views = (each.axes for step in self.computes for each in step.operands if each.input is not None)
        return any(len(axes) > 1 and axes[-1].startswith("channel") for axes in views)

    def output(self, inputs: Sequence[Shape]) -> Shape:
        """Return the shape of the output: the samples of the first input, and the listed sizes."""
        if not inputs or len(inputs) != len(self.reads):
            raise ConfigError(f"{self._kind} needs {len(self.reads)} inputs, got {len(inputs)}")
        for shape, maps in zip(inputs, self.reads, strict=True):
            if len(maps) != len(shape.dims):
                raise ConfigError(f"{self._kind}.reads must map {len(shape.dims)} dimensions of {shape_text(shape)}")
        return Shape(("sample", *self.dims), (inputs[0].size("sample"), *self.sizes))

    def interval_maps(self, slot: int, inputs: Sequence[Shape]) -> tuple[IntervalMap, ...]:
        """Return the listed maps."""
        return self.reads[slot]

    def parameters(self, inputs: Sequence[Shape]) -> tuple[Parameter, ...]:
        """Return the listed tensors."""
        return self.weights

    def _streams(self, part: Part, flop: float, elements: Floats) -> Kernels:
        """Return kernels without a product: operations an output element, and elements read and written."""
        return part.streaming(flop=flop * part.outputs, elements=elements)
