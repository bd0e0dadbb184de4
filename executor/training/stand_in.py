"""Placeholder parts that compute nothing: for runs in which only the messages are real."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import torch
from torch import Tensor
from typing_extensions import override

from executor.layers.base import NO_BUFFERS, PartContext, PartLayer, TrainingStep


def wake_in_time() -> None:
    """Make this thread's waits end within some 20 microseconds; Linux adds 50 of its own to each, to save power."""
    with suppress(OSError):  # other systems have no such setting
        Path("/proc/self/timerslack_ns").write_text("1")


class StandInPart(PartLayer):
    """A part with constant tensors of the right shapes: zeros or, where they will be compressed, random elements."""

    def __init__(
        self, context: PartContext, *, sums_statistics: bool, is_loss: bool, dtype: torch.dtype, random: bool = False
    ) -> None:
        super().__init__(context)
        make = torch.randn if random else torch.zeros
        self._output = make(context.held.shape, dtype=dtype)
        self.completes = context.product != context.held
        self._product = make(context.product.shape, dtype=dtype) if self.completes else self._output
        self._input_gradients = [make(box.shape, dtype=dtype) for box in context.inputs]
        self._gradients = {name: make(box.shape, dtype=dtype) for name, box in context.parameters.items()}
        self.loss = torch.zeros((), dtype=dtype) if is_loss else None
        shape, rows = context.held.shape, context.layer.operation.row_statistics
        self.reduces = sums_statistics or (rows > 0 and shape[1] < context.layer.output.size("channel"))
        if self.reduces:
            size = (2, shape[1]) if sums_statistics else (1, rows, context.held.elements // shape[1])
            self._statistics = self.statistics = torch.zeros(size, dtype=dtype)

    @override
    def forward(self, inputs: Sequence[Tensor], parameters: Mapping[str, Tensor], step: TrainingStep) -> Tensor:
        return self._product

    @override
    def complete_forward(self, sums: Tensor, parameters: Mapping[str, Tensor], step: TrainingStep) -> Tensor:
        return self._output

    @override
    def finish_forward(self) -> Tensor:
        self.statistics = self._statistics  # those of others may have come beside them
        return self._output

    @override
    def begin_backward(self, gradient: Tensor | None) -> None:
        pass

    @override
    def finish_backward(self) -> None:
        pass

    @property
    @override
    def share_gradient(self) -> Tensor:
        return self._output

    @override
    def complete_backward(self, gradient: Tensor) -> None:
        pass

    @override
    def activation_gradient(self) -> list[Tensor]:
        return self._input_gradients

    @override
    def weight_gradient(self, out: Mapping[str, Tensor] = NO_BUFFERS) -> dict[str, Tensor]:
        return self._gradients

    @override
    def release(self) -> None:
        pass
