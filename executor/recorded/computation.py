"""The recorded computation of a layer, on the part of its output that a rank holds."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from executor.recorded import arithmetic, moves
from executor.recorded.calls import channels_apart
from executor.recorded.constants import value_of
from executor.recorded.step_context import Geometry, StepContext, StepTensor
from executor.recorded.views import ResultView, axes_in, cover, sizes_of
from executor.runtime.boxes import Box
from groundwork.errors import ConfigError
from planner.graph.computation_graph import Layer
from planner.graph.shapes import Shape
from planner.operations.computation import Operand, Step
from planner.operations.mapped import Mapped
from planner.operations.products import Attention
from planner.strategies.zigzag import PositionOrder

_FORMS: dict[str, Callable[[StepContext], Tensor]] = {
    "pointwise": arithmetic.computed_pointwise,
    "contract": arithmetic.contracted,
    "attention": arithmetic.attended,
    "along": arithmetic.computed_along,
    "reduce": arithmetic.computed_reduction,
    "embedding": arithmetic.looked_up,
    "dispatch": moves.dispatched_rows,
    "combine": moves.combined_rows,
    "whole": arithmetic.computed_whole,
    "take": moves.taken_elements,
    "join": moves.put_together,
    "pad": moves.with_padding,
}
_BROKEN = (RuntimeError, ValueError, TypeError, IndexError, KeyError, AttributeError, MemoryError)
"""What PyTorch and NumPy raise where a step contradicts the shapes."""


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class ComputationInputs:
    """Tensors of one evaluation."""

    inputs: Sequence[Tensor]
    parameters: Mapping[str, Tensor]
    buffers: Mapping[str, Tensor]
    dropped: Callable[[int, float, Tensor], Tensor]
    """Applies dropout: ``dropped(number of the step, share, region of the output)``."""


class Computation:
    """Steps of a layer on one part.

    Args:
        layer: The layer.
        held: Region of its output that the part computes.
        inputs: Region of each input that it reads.
        parameters: Slice of each parameter that it holds.
        order: Order of the positions of the output, and so of what is read; None: as they are.
    """

    def __init__(
        self,
        layer: Layer,
        held: Box,
        inputs: Sequence[Box],
        parameters: Mapping[str, Box],
        *,
        order: PositionOrder | None = None,
    ) -> None:
        operation = layer.operation
        assert isinstance(operation, Mapped)
        self._layer, self._held, self._inputs, self._parameters = layer, held, tuple(inputs), parameters
        self.steps: tuple[Step, ...] = operation.computes
        self._views = [self._checked_view(step) for step in self.steps]
        self._geometry = [Geometry() for _ in self.steps]
        self._order = order
        self._last_read = {each.step: number for number, step in enumerate(self.steps) for each in step.operands}
        """The last step that reads each result, by the result's step."""

    def _where(self, step: Step) -> str:
        return f"operation {step.call} of layer {self._layer.name}"

    def _checked_view(self, step: Step) -> ResultView:
        """Return the result that a step computes, or refuse a step whose axes contradict its form."""
        try:
            return self._view(step)
        except _BROKEN as error:
            raise self._problem(step, error) from error

    def _problem(self, step: Step, error: Exception) -> ConfigError:
        """Return the error that a step cannot be computed, in one line."""
        if isinstance(error, ConfigError):
            return error
        return ConfigError(f"{self._where(step)} cannot be computed: {' '.join(str(error).split())[:200]}")

    def _view(self, step: Step) -> ResultView:
        """Return the result that a step computes: what the part holds, and all of what is computed together."""
        axes = axes_in(step.out, self._layer.output)
        full: list[int] = []
        if step.form == "along" or step.call == "topk":
            full = [int(a) for a in _tuple(step.argument("axes"))]
        elif step.form == "whole":
            full = list(range(2 if channels_apart(step.call) else 1, len(axes)))
        elif step.form == "norm":
            count = len(_tuple(step.argument("normalized_shape"))) if step.call in ("layer_norm", "rms_norm") else 0
            full = list(range(len(axes) - count if count else 2, len(axes)))
        places = [(a, j) for a in full if a < len(axes) for j in range(len(axes[a]))]
        if step.call == "group_norm" and len(axes[1]) > 1:
            places.append((1, len(axes[1]) - 1))
        elif step.call == "group_norm" and step.argument("num_groups", 1) == 1:
            places += [(1, j) for j in range(len(axes[1]))]
        return ResultView(axes, cover(axes, self._held, places))

    def run(self, given: ComputationInputs, *, dtype: torch.dtype, device: torch.device) -> Tensor:
        """Return the part of the output.

        Raises:
            ConfigError: The steps contradict the shapes, or an operation is unknown.
        """
        results: dict[int, Tensor] = {}
        for number, (step, view) in enumerate(zip(self.steps, self._views, strict=True)):
            try:
                results[number] = self._step(number, step, view, given, results, dtype, device)
            except _BROKEN as error:
                raise self._problem(step, error) from error
            for done in [done for done in results if self._last_read.get(done) == number]:
                del results[done]
        return results[len(self.steps) - 1].to(dtype)

    def _step(
        self,
        number: int,
        step: Step,
        view: ResultView,
        given: ComputationInputs,
        results: Mapping[int, Tensor],
        dtype: torch.dtype,
        device: torch.device,
    ) -> Tensor:
        values = {each.name: self._value(each, given, results, dtype, device) for each in step.operands}
        geometry = self._geometry[number]
        geometry.begin()
        context = StepContext(
            where=self._where(step),
            step=step,
            view=view,
            values=values,
            geometry=geometry,
            dtype=dtype,
            device=device,
            order=self._order,
        )
        if step.form == "norm":
            return arithmetic.normalised(context, self._held)
        if step.form == "dropout":
            ((name, _),) = values.items()
            result = context.placed(context.aligned(name, view.indices()), self._held)
            return given.dropped(number, float(step.argument("p", 0.0) or 0.0), result)  # type: ignore[arg-type]
        apart = isinstance(self._layer.operation, Attention) and not self._layer.operation.fused
        with sdpa_kernel(SDPBackend.MATH) if apart else nullcontext():
            return context.placed(_FORMS[step.form](context), self._held)

    def _value(
        self,
        operand: Operand,
        given: ComputationInputs,
        results: Mapping[int, Tensor],
        dtype: torch.dtype,
        device: torch.device,
    ) -> StepTensor:
        """Return what a step reads."""
        constant, layer = operand.constant, self._layer
        if constant is not None:
            tensor = value_of(constant, given.parameters, given.buffers, dtype=dtype, device=device)
            first: tuple[int, ...] = ()
            if constant.parameter:
                first = self._parameters[constant.parameter].low
            elif constant.along is not None:
                channel = self._held.low[layer.output.dims.index("channel")]
                first = tuple(channel if axis == constant.along else 0 for axis in range(len(constant.shape)))
            return StepTensor(tensor, None, (), constant.shape, constant.along, first)
        if operand.step is not None:
            return _viewed(operand, results[operand.step], self._held, layer.output)
        assert operand.input is not None
        return _viewed(
            operand, given.inputs[operand.input], self._inputs[operand.input], layer.input_shapes[operand.input]
        )


def _viewed(operand: Operand, tensor: Tensor, box: Box, shape: Shape) -> StepTensor:
    axes = axes_in(operand.axes, shape)
    return StepTensor(tensor, box, axes, sizes_of(axes))


def _tuple(given: object) -> tuple[int, ...]:
    if not isinstance(given, tuple) or not all(isinstance(each, int) and each >= 0 for each in given):
        raise ConfigError(f"axes of a step must be a list of numbers, got {str(given)[:80]}")
    return given
