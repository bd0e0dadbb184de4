"""Parts of imported layers: their recorded computation, with gradients by PyTorch's automatic differentiation."""

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from typing import Any

import torch
from torch import Tensor
from torch.autograd.graph import GradientEdge, get_gradient_edge, saved_tensors_hooks

from executor.layers.base import NO_BUFFERS, PartContext, PartLayer, TrainingStep
from executor.layers.dropout_mask import DropoutMask
from executor.layers.kernels.layout import memory_order, of_one_sample
from executor.recorded.computation import Computation, ComputationInputs
from executor.recorded.views import is_dense
from planner.graph.data_sources import is_data


class _Source(torch.autograd.Function):
    """A tensor whose gradient is wanted, where the graph begins: a leaf of the graph would hold it until the end."""

    @classmethod
    def of(cls, values: Tensor, marker: Tensor) -> Tensor:
        """Return a view of the tensor; the marker, which needs a gradient, makes it part of the graph."""
        view: Tensor = cls.apply(values, marker)  # type: ignore[no-untyped-call]
        return view

    @staticmethod
    def forward(_: Any, values: Tensor, marker: Tensor) -> Tensor:
        """Return a view of the tensor."""
        return values.view_as(values)

    @staticmethod
    def backward(_: Any, gradient: Tensor) -> tuple[None, None]:
        """Return nothing: the gradient has been taken before."""
        return None, None


class RecordedPart(PartLayer):
    """A part of a layer whose computation was recorded when it was imported.

    Between its passes it holds what the operations' derivatives read, as a network in plain PyTorch does, and no other
    tensor: it knows inputs and output as edges of the graph.

    Args:
        context: The part and its layer.
        dtype: Type of the output.
        device: Device of the output.
    """

    def __init__(self, context: PartContext, dtype: torch.dtype, device: torch.device | str) -> None:
        super().__init__(context)
        self._computation = Computation(
            context.layer, context.held, context.inputs, context.parameters, order=context.order
        )
        self._context, self._dtype, self._device = context, dtype, torch.device(device)
        self._frozen = {each.name for each in context.layer.parameters if each.frozen}
        self._inputs: list[GradientEdge | None] = []
        self._parameters: dict[str, GradientEdge] = {}
        self._sizes: dict[str, torch.Size] = {}
        self._output: GradientEdge | None = None
        self._gradient: Tensor | None = None

    def forward(self, inputs: Sequence[Tensor], parameters: Mapping[str, Tensor], step: TrainingStep) -> Tensor:
        """Compute the steps, and keep their graph for the gradients."""
        marker = torch.empty(0, dtype=self._dtype, device=self._device, requires_grad=True)

        def dropped(number: int, share: float, values: Tensor) -> Tensor:
            meta = values.device.type == "meta"  # tensors without values, of which only sizes are asked
            return values if meta else DropoutMask(self._context, share, number).forward(values, step)

        places = {x.untyped_storage().data_ptr() for x in inputs}

        def kept(saved: Tensor) -> Tensor | str:
            """Return a saved tensor, or the name of a view of an input, to be forgotten."""
            if saved.untyped_storage().data_ptr() not in places:
                return saved
            name = f"input {len(self._saved)}"
            self._saved[name] = saved
            return name

        with torch.enable_grad(), saved_tensors_hooks(kept, self._again) if self.forgets else nullcontext():
            data = [is_data(source) for source in self.layer.inputs]
            rows = [x if d else _Source.of(x, marker) for x, d in zip(inputs, data, strict=True)]
            weights = {
                name: each if name in self._frozen else _Source.of(each, marker) for name, each in parameters.items()
            }
            given = ComputationInputs(inputs=rows, parameters=weights, buffers=self.constants, dropped=dropped)
            output = self._computation.run(given, dtype=self._dtype, device=self._device)
        self._inputs = [get_gradient_edge(x) if x.requires_grad else None for x in rows]
        self._parameters = {name: get_gradient_edge(each) for name, each in weights.items() if each.requires_grad}
        self._sizes = {name: each.shape for name, each in weights.items()}
        self._output = get_gradient_edge(output) if output.requires_grad else None
        # as plain PyTorch, the layers leave the elements in the order in which they computed them
        output = output.detach()
        place = output.untyped_storage().data_ptr()
        own = all(place != each.untyped_storage().data_ptr() for each in inputs)
        output = of_one_sample(output if own and is_dense(output.shape, output.stride()) else output.clone())
        self.output_order = memory_order(output)
        return output

    def _again(self, saved: Tensor | str) -> Tensor:
        """Return a saved tensor; no numbers in the place of one that is forgotten, which no gradient reads now."""
        if isinstance(saved, Tensor):
            return saved
        if saved in self._saved:
            return self._saved[saved]
        _, sizes, *_ = self._forgotten[saved]
        return torch.full((), torch.nan, dtype=self._dtype, device=self._device).expand(sizes)

    def begin_backward(self, gradient: Tensor | None) -> None:
        """Keep the gradient."""
        self._gradient = gradient

    def activation_gradient(self) -> list[Tensor]:
        """Return the gradients of the inputs; those of data are zero."""
        rows = self._gradients(self._inputs)
        return [
            self._zeros(box.shape) if g is None else of_one_sample(g) for g, box in zip(rows, self.inputs, strict=True)
        ]

    def weight_gradient(self, out: Mapping[str, Tensor] = NO_BUFFERS) -> dict[str, Tensor]:
        """Return the gradients of the parameters that are trained."""
        rows = zip(self._parameters, self._gradients(list(self._parameters.values())), strict=True)
        return {name: self._zeros(self._sizes[name]) if gradient is None else gradient for name, gradient in rows}

    def _gradients(self, edges: Sequence[GradientEdge | None]) -> list[Tensor | None]:
        """Return the gradients of tensors that the output was computed from; None where it does not depend on one."""
        wanted = [each for each in edges if each is not None]
        if not wanted or self._output is None:
            return [None] * len(edges)
        found = iter(torch.autograd.grad(self._output, wanted, self._gradient, retain_graph=True, allow_unused=True))
        return [None if each is None else next(found) for each in edges]

    def _zeros(self, shape: Sequence[int]) -> Tensor:
        return torch.zeros(shape, dtype=self._dtype, device=self._device)

    def release(self) -> None:
        """Release everything that was saved for the backward pass."""
        super().release()
        self._inputs, self._parameters, self._sizes, self._output, self._gradient = [], {}, {}, None, None
